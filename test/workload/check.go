package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// CheckConfig says what to check.
type CheckConfig struct {
	// Bootstrap of the cluster to read; the source if empty. Opts are those of the client.
	Bootstrap []string
	Opts      []kgo.Opt
	// Committed reads only what is committed. Else everything acknowledged must be there.
	Committed bool
	// Prefix accepts that records are missing at the end of each partition: a mirror that was
	// stopped, or whose source is dead. What is there must have no hole.
	Prefix bool
	// OpenAborted says that the transaction which the load left open was aborted meanwhile, as a
	// stopped mirror does with it.
	OpenAborted bool
}

// Report is what a check has read.
type Report struct {
	Topics []TopicReport
}

// TopicReport is what a check has read of one topic.
type TopicReport struct {
	Topic string
	Kind  Kind
	// Records read, Doubled of them (only a Plain producer may), and Missing at the end (Prefix).
	Records, Doubled, Missing int64
}

// maxProblems bounds a check's error.
const maxProblems = 20

// Check reads all topics of a cluster and compares them with what the producers were
// told. The error names every difference; records that were neither acknowledged nor
// refused may be there or not. Producers may run meanwhile.
func (l *Load) Check(ctx context.Context, cfg CheckConfig) (Report, error) {
	opts := cfg.Opts
	if len(cfg.Bootstrap) > 0 {
		opts = append([]kgo.Opt{kgo.SeedBrokers(cfg.Bootstrap...)}, opts...)
	}
	cl, err := l.client(opts...)
	if err != nil {
		return Report{}, err
	}
	defer cl.Close()
	isolation := readUncommitted
	if cfg.Committed {
		isolation = readCommitted
	}
	r := newReader(cl, isolation)

	var report Report
	var problems []error
	for _, t := range l.topics {
		tr := TopicReport{Topic: t.name, Kind: t.kind}
		// What is acknowledged now must be in what is read from now on.
		for partition, want := range t.ledger.snapshot() {
			c := checker{load: l, topic: t, partition: int32(partition), cfg: cfg, want: want, report: &tr}
			if err := c.run(ctx, r); err != nil {
				return report, err
			}
			problems = append(problems, c.problems...)
		}
		report.Topics = append(report.Topics, tr)
	}
	if len(problems) > maxProblems {
		more := len(problems) - maxProblems
		problems = append(problems[:maxProblems:maxProblems], fmt.Errorf("and %d more", more))
	}
	return report, errors.Join(problems...)
}

// checker checks one partition.
type checker struct {
	load      *Load
	topic     *topic
	partition int32
	cfg       CheckConfig
	want      account
	report    *TopicReport

	seen     spans
	newest   int64            // highest number seen
	keys     map[string]int64 // newest number of each key
	problems []error
}

func (c *checker) problem(format string, args ...any) {
	if len(c.problems) <= maxProblems {
		c.problems = append(c.problems, fmt.Errorf("%s-%d: %w", c.topic.name, c.partition, fmt.Errorf(format, args...)))
	}
}

func (c *checker) run(ctx context.Context, r *reader) error {
	c.newest, c.keys = -1, make(map[string]int64)
	lastOffset := int64(-1)
	_, err := r.read(ctx, c.topic.name, c.partition, func(ch chunk) error {
		for _, rec := range ch.records {
			if rec.Offset <= lastOffset {
				c.problem("offset %d comes after %d", rec.Offset, lastOffset)
			}
			lastOffset = rec.Offset
			c.record(rec)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.complete()
	return nil
}

func (c *checker) record(rec *kgo.Record) {
	c.report.Records++
	n, err := c.load.filler.numberOf(rec)
	if err != nil {
		c.problem("%w", err)
		return
	}
	switch {
	case n > c.newest:
		c.newest = n
	case c.topic.kind == Plain && c.seen.has(n):
		c.report.Doubled++
		return
	default:
		c.problem("offset %d: number %d comes after %d", rec.Offset, n, c.newest)
		return
	}
	c.seen.add(n, n+1)
	if c.topic.kind.compacted() {
		c.keys[string(rec.Key)] = n
	}
	if c.cfg.Committed && c.want.aborted.has(n) {
		c.problem("offset %d: number %d is of an aborted transaction, but visible", rec.Offset, n)
	}
	if c.cfg.Committed && c.want.open.has(n) {
		c.problem("offset %d: number %d is of the open transaction, but visible", rec.Offset, n)
	}
}

// complete checks that nothing acknowledged is missing.
func (c *checker) complete() {
	if c.topic.kind.compacted() {
		c.completeKeys()
		return
	}
	want := c.want.acked
	if c.cfg.Committed {
		want = c.want.committed
		if len(c.want.open) > 0 && !c.cfg.OpenAborted {
			want = want.below(c.want.open[0].from) // the last stable offset stays before it
		}
	}
	missing := want.minus(c.seen)
	if c.cfg.Prefix {
		c.report.Missing += missing.count()
		missing = missing.below(c.newest)
		c.report.Missing -= missing.count()
	}
	if len(missing) > 0 {
		c.problem("%d acknowledged records are missing: %s", missing.count(), missing)
	}
}

// completeKeys checks that the newest record of each key, or one after it, is there.
func (c *checker) completeKeys() {
	if c.cfg.Prefix {
		return // which records an earlier compaction has left is not known
	}
	for key, want := range c.want.keys {
		got, ok := c.keys[key]
		switch {
		case !ok && want.tombstone: // the cleaner has removed it
		case !ok:
			c.problem("key %s is missing, its newest number is %d", key, want.number)
		case got < want.number && !want.tombstone:
			c.problem("key %s ends with number %d, acknowledged was %d", key, got, want.number)
		}
	}
}

func (s spans) String() string {
	var b strings.Builder
	for i, r := range s {
		if i == 5 {
			b.WriteString(" …")
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d", r.from)
		if r.to-r.from > 1 {
			fmt.Fprintf(&b, "-%d", r.to-1)
		}
	}
	return b.String()
}

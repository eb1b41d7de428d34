package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/test/chaos/check"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

// readers are consumers that read the mirror through the proxies from beginning to end while
// everything else happens: one of committed records, one of all.
type readers struct{ all []*reader }

func (rs *readers) each(do func(*reader)) {
	for _, r := range rs.all {
		do(r)
	}
}

// least is how far all of them are in a partition.
func (rs *readers) least(p tp) int64 {
	least := int64(-1)
	rs.each(func(r *reader) {
		if at := r.position(p); least < 0 || at < least {
			least = at
		}
	})
	return max(least, 0)
}

// stop ends them and waits until they have.
func (rs *readers) stop() {
	rs.each(func(r *reader) { r.cancel() })
	rs.each(func(r *reader) { <-r.done; r.client.Close() })
}

// accounts is what a load knows of its records.
type accounts interface {
	Number(*kgo.Record) (int64, error)
	Account(topic string, partition int32) (workload.Account, error)
}

// reader is one of them.
type reader struct {
	name      string
	committed bool
	client    *kgo.Client
	load      accounts
	kinds     map[string]workload.Kind
	cancel    context.CancelFunc
	done      chan struct{}

	mu       sync.Mutex
	at       map[tp]*seen
	findings check.Findings
	trouble  string // the last error of a fetch
}

// seen is what a reader has seen of one partition.
type seen struct {
	next    int64 // offset after the last record
	newest  int64 // highest number
	numbers workload.Numbers
}

func (w *world) read(ctx context.Context) (*readers, error) {
	rs := &readers{}
	for _, committed := range []bool{true, false} {
		name, level := "uncommitted", kgo.ReadUncommitted()
		if committed {
			name, level = "committed", kgo.ReadCommitted()
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(w.dest.Proxies()...), kgo.ConsumeTopics(w.load.TopicNames()...),
			kgo.FetchIsolationLevel(level), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ClientID("chaos-"+name),
			kgo.MetadataMinAge(250*time.Millisecond), kgo.DisableClientMetrics(), kgo.DialTimeout(2*time.Second),
			kgo.RetryBackoffFn(func(int) time.Duration { return 200 * time.Millisecond }), kgo.KeepControlRecords())
		if err != nil {
			rs.stop()
			return nil, err
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := &reader{
			name: name, committed: committed, client: cl, load: w.load, kinds: map[string]workload.Kind{}, cancel: cancel, done: make(chan struct{}), at: map[tp]*seen{},
		}
		for _, t := range w.load.Topics() {
			r.kinds[t.Name] = t.Kind
		}
		rs.all = append(rs.all, r)
		go func() {
			defer close(r.done)
			r.run(ctx)
		}()
	}
	return rs, nil
}

func (r *reader) run(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := r.client.PollRecords(ctx, 5000)
		r.mu.Lock()
		fetches.EachError(func(topic string, partition int32, err error) {
			if ctx.Err() != nil {
				return
			}
			r.trouble = fmt.Sprintf("%s-%d: %v", topic, partition, err)
			var lost *kgo.ErrDataLoss
			if errors.As(err, &lost) {
				r.findings.Add(&r.findings.Lost, "reader of %s records: %s-%d: read up to %d, which is gone from %d on", r.name, topic, partition, lost.ConsumedTo, lost.ResetTo)
			}
		})
		fetches.EachRecord(r.record)
		r.mu.Unlock()
	}
}

func (r *reader) record(rec *kgo.Record) {
	p := tp{rec.Topic, rec.Partition}
	s := r.at[p]
	if s == nil {
		s = &seen{newest: -1}
		r.at[p] = s
	}
	if rec.Offset < s.next {
		r.findings.Add(&r.findings.Doubled, "reader of %s records: %s: offset %d comes after offset %d", r.name, p, rec.Offset, s.next-1)
		return
	}
	s.next = rec.Offset + 1
	if rec.Attrs.IsControl() {
		return
	}
	n, err := r.load.Number(rec)
	if err != nil {
		r.findings.Add(&r.findings.Foreign, "reader of %s records: %s: %v", r.name, p, err)
		return
	}
	switch kind := r.kinds[rec.Topic]; {
	case n > s.newest:
		s.newest = n
	case kind == workload.Plain: // its producer's retries double records at the source
	case s.numbers.Has(n):
		r.findings.Add(&r.findings.Doubled, "reader of %s records: %s: number %d comes again at offset %d", r.name, p, n, rec.Offset)
	default:
		r.findings.Add(&r.findings.Reordered, "reader of %s records: %s: number %d at offset %d comes after %d", r.name, p, n, rec.Offset, s.newest)
	}
	s.numbers.Add(n)
}

func (r *reader) position(p tp) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.at[p]; s != nil {
		return s.next
	}
	return 0
}

// gaps looks whether the reader went past something that it should have seen: nothing that was
// acknowledged may be missing before the newest record that it has seen.
func (r *reader) gaps(p tp) check.Findings {
	var f check.Findings
	r.mu.Lock()
	s := r.at[p]
	if s == nil || r.kinds[p.topic].Compacted() {
		r.mu.Unlock()
		return f
	}
	saw, newest := s.numbers.Minus(workload.Numbers{}), s.newest // a copy
	r.mu.Unlock()
	account, err := r.load.Account(p.topic, p.partition)
	if err != nil {
		return f
	}
	want := account.Acked
	if r.committed {
		want = account.Committed
	}
	missing := want.Below(newest).Minus(saw)
	if n := missing.Count(); n > 0 {
		f.Add(&f.Lost, "reader of %s records: %s: numbers %s were passed over", r.name, p, missing)
		f.Lost += n - 1
	}
	if r.committed {
		hidden := account.Aborted.Minus(account.Aborted.Minus(saw))
		if n := hidden.Count(); n > 0 {
			f.Add(&f.Foreign, "reader of %s records: %s: aborted numbers %s are visible", r.name, p, hidden)
			f.Foreign += n - 1
		}
	}
	return f
}

// found gives what the readers have found so far, gaps included.
func (rs *readers) found(parts []tp) check.Findings {
	var f check.Findings
	rs.each(func(r *reader) {
		r.mu.Lock()
		f.Merge(r.findings)
		r.mu.Unlock()
		for _, p := range parts {
			f.Merge(r.gaps(p))
		}
	})
	return f
}

// behind fails unless every reader has read everything below the ends.
func (rs *readers) behind(ends map[tp]int64) error {
	var missing []string
	rs.each(func(r *reader) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for p, end := range ends {
			at := int64(0)
			if s := r.at[p]; s != nil {
				at = s.next
			}
			if at < end {
				missing = append(missing, fmt.Sprintf("the reader of %s records is at %d of %d in %s (last trouble: %s)", r.name, at, end, p, r.trouble))
			}
		}
	})
	if len(missing) == 0 {
		return nil
	}
	if more := len(missing) - 3; more > 0 {
		missing = append(missing[:3], fmt.Sprintf("and %d more", more))
	}
	return errors.New(strings.Join(missing, "; "))
}

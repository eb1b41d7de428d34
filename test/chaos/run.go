package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/chaos/check"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/verify"
)

// run is one run: rounds of faults for the length that was asked for, then the reckoning.
func run(ctx context.Context, opt options) (r *report, err error) {
	begun := time.Now()
	r = &report{Seed: opt.seed, Minutes: opt.length.Minutes(), Commit: commit, Kinds: map[kind]int{}}
	w, err := newWorld(ctx, opt)
	defer func() {
		if err != nil || !r.good() {
			err = errors.Join(err, w.keepLogs())
		}
		err = errors.Join(err, w.close())
		r.Duration = time.Since(begun).Seconds()
	}()
	if err != nil {
		return r, err
	}
	c := &chaos{world: w, report: r, begun: time.Now(), upTo: map[tp]int64{}}
	if w.readers, err = w.read(ctx); err != nil {
		return r, err
	}
	w.later(func() error { w.readers.stop(); return nil })
	if err := harness.Await(ctx, recoverLimit, w.well); err != nil {
		return r, fmt.Errorf("before the first fault: %w", err)
	}
	opt.say("mirroring %d topics after %s, seed %d", len(w.load.TopicNames()), time.Since(begun).Round(time.Second), opt.seed)
	c.begun = time.Now()
	if err := c.rounds(ctx); err != nil {
		return r, err
	}
	return r, c.reckon(ctx)
}

// chaos is a run after its world was made.
type chaos struct {
	*world
	report *report
	begun  time.Time
	upTo   map[tp]int64 // compared so far
}

// rounds deals round after round until time is up or something does not come back.
func (c *chaos) rounds(ctx context.Context) error {
	s := newSchedule(c.opt.seed)
	before := c.load.Total()
	begun := time.Now()
	for n := 1; time.Since(begun) < c.opt.length; n++ {
		plans := s.next()
		if n < c.opt.from {
			continue
		}
		ok, err := c.round(ctx, n, plans)
		if err != nil {
			return err
		}
		if !ok || !c.report.Zero() {
			break // what follows would only blur what happened
		}
	}
	after := c.load.Total()
	c.report.Rate = float64(after.Acked-before.Acked) / time.Since(begun).Seconds()
	return nil
}

// round deals faults, waits until all is well and compares what was copied meanwhile. It is
// false if it was not well in time.
func (c *chaos) round(ctx context.Context, n int, plans []planned) (bool, error) {
	if err := c.load.Err(); err != nil {
		return false, err
	}
	faults := make([]happened, len(plans))
	begun, acked := time.Now(), c.load.Total().Acked
	var wg sync.WaitGroup
	for i, p := range plans {
		wg.Go(func() { faults[i] = c.deal(ctx, n, p, begun) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	last := time.Now()
	waited, trouble := c.recovered(ctx, last)
	well := time.Now()
	rate := float64(c.load.Total().Acked-acked) / well.Sub(begun).Seconds()
	var line []string
	for _, f := range faults {
		f.Rate, f.Recovery = rate, well.Sub(f.ended).Seconds()
		if trouble != nil {
			f.Recovery = -1
		}
		if f.counts() && rate < leastRate {
			f.Skipped = fmt.Sprintf("only %.0f records/s were written", rate)
		}
		if f.counts() {
			c.report.Kinds[f.Kind]++
			if trouble != nil {
				c.report.Unrecovered++
			}
		}
		text := string(f.Kind)
		if f.Skipped != "" {
			text += " (does not count: " + f.Skipped + ")"
		}
		line = append(line, text)
		c.report.Faults = append(c.report.Faults, f)
	}
	c.opt.say("round %d: %s: well %.1fs after the last, %.0f records/s, %d faults so far", n, strings.Join(line, ", "),
		well.Sub(last).Seconds(), rate, c.report.count())
	for _, text := range waited {
		c.opt.say("    %s", text)
	}
	if trouble != nil {
		c.opt.say("NOT WELL after %s: %v", recoverLimit, trouble)
		c.report.Trouble = append(c.report.Trouble, fmt.Sprintf("round %d: %v", n, trouble))
		return false, nil
	}
	// A leader at the source that dies in this moment is asked again.
	var found check.Findings
	err := harness.Await(ctx, askAgain, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, askAgain/4)
		defer cancel()
		found, err = c.tails(ctx, c.upTo)
		return err
	})
	if err != nil {
		return false, err
	}
	found.Merge(c.readers.found(c.partitions()))
	if !found.Zero() {
		for _, e := range found.Examples {
			c.opt.say("FOUND %s", e)
		}
		c.report.Merge(found)
	}
	return true, nil
}

// recovered waits until all is well and the readers have what the source had when it began. It also
// says what it waited for.
func (c *chaos) recovered(ctx context.Context, last time.Time) (waited []string, err error) {
	ctx, cancel := context.WithDeadline(ctx, last.Add(recoverLimit))
	defer cancel()
	var ends map[tp]int64
	was := ""
	err = harness.Await(ctx, recoverLimit, func(ctx context.Context) (err error) {
		defer func() {
			if err == nil || ctx.Err() != nil {
				return
			}
			if text := err.Error(); text != was && len(waited) < maxWaited && time.Since(last) > longWait {
				was = text
				waited = append(waited, fmt.Sprintf("%.1fs: %s", time.Since(last).Seconds(), text))
			}
		}()
		if err := c.supervise(ctx); err != nil {
			return err
		}
		if ends == nil {
			if ends, err = c.sourceEnds(ctx); err != nil {
				ends = nil
				return err
			}
		}
		if err := c.well(ctx); err != nil {
			return err
		}
		// Transactions that are open hold the reader of committed records back, and are ended soon.
		return c.readers.behind(ends)
	})
	return waited, err
}

// askAgain is how long a question is asked anew that a cluster could not answer.
const askAgain = 2 * time.Minute

// What is waited for is told when it takes long.
const (
	longWait  = 15 * time.Second
	maxWaited = 12
)

// supervise starts what has ended by itself, as whatever keeps processes alive would do.
func (c *chaos) supervise(ctx context.Context) error {
	for _, s := range c.dest.Sidecars {
		if !s.Running() {
			c.opt.say("sidecar %d has ended by itself and is started", s.Broker)
			if err := s.Launch(ctx); err != nil {
				return err
			}
		}
	}
	for _, n := range append(c.source.Nodes(), c.dest.Cluster.Nodes()...) {
		if !n.Running() {
			c.opt.say("%s has ended by itself and is started", n)
			if err := n.Launch(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// deal waits for the fault's time and strikes.
func (c *chaos) deal(ctx context.Context, round int, p planned, begun time.Time) happened {
	h := happened{Round: round, Kind: p.Kind}
	if err := sleep(ctx, time.Until(begun.Add(p.Start))); err != nil {
		h.Skipped = err.Error()
		return h
	}
	b := &blow{world: c.world, plan: p}
	at := time.Now()
	err := b.strike(ctx)
	h.ended = time.Now()
	h.At, h.Held, h.Evidence = at.Sub(c.begun).Seconds(), h.ended.Sub(at).Seconds(), b.evidence
	if err != nil {
		h.Skipped = firstLine(err)
		if !errors.Is(err, errNotNow) {
			c.opt.say("%s: %v", p.Kind, err)
		}
	} else if len(h.Evidence) == 0 {
		h.Skipped = "nothing shows that it happened"
	}
	return h
}

// reckon stops the producers and compares everything.
func (c *chaos) reckon(ctx context.Context) error {
	stop, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := c.load.Stop(stop); err != nil {
		return err
	}
	total := c.load.Total()
	counts := c.load.Counts()
	c.report.Share = float64(counts["chaos-transactional"].Acked+counts["chaos-compacted-transactional"].Acked) / float64(max(total.Acked, 1))
	c.opt.say("written: %+v", total)
	if c.report.Unrecovered == 0 {
		if err := harness.Await(ctx, recoverLimit, c.complete); err != nil {
			c.report.Unrecovered++
			c.report.Trouble = append(c.report.Trouble, fmt.Sprintf("at the end: %v", err))
			c.opt.say("NOT COMPLETE: %v", err)
		}
	}
	found := c.readers.found(c.partitions())
	logs, records, err := c.compareAll(ctx)
	if err != nil {
		return err
	}
	c.report.Records = records
	found.Merge(logs)
	if c.report.Unrecovered == 0 {
		if err := c.verify(ctx); err != nil {
			return err
		}
	}
	// What the readers have found in rounds is in both.
	if c.report.Zero() || !found.Zero() {
		c.report.Findings = found
	}
	return nil
}

// complete fails unless every log of both sides ends at one place and the readers are there too.
func (c *chaos) complete(ctx context.Context) error {
	if err := c.well(ctx); err != nil {
		return err
	}
	ends, err := c.sourceEnds(ctx)
	if err != nil {
		return err
	}
	for p, end := range ends {
		for _, n := range append(c.source.Brokers(), c.dest.Cluster.Brokers()...) {
			log, err := c.readLog(n, p, max(end-1, 0))
			if err != nil {
				return err
			}
			if log.End != end {
				return fmt.Errorf("%s at %s ends at %d, at the source at %d", p, n, log.End, end)
			}
		}
	}
	return c.readers.behind(ends)
}

// verify compares source and mirror through the proxies, as an operator would.
func (c *chaos) verify(ctx context.Context) error {
	cl, err := c.clientAt(c.dest.Proxies()...)
	if err != nil {
		return err
	}
	defer cl.Close()
	var topics []string
	for _, t := range c.load.Topics() {
		if !t.Kind.Compacted() {
			topics = append(topics, t.Name)
		}
	}
	out, err := verify.Compare(ctx, c.sourceClient, cl, topics, verify.Options{Parallel: 2})
	if err != nil {
		return err
	}
	for _, p := range out.Partitions {
		if p.Difference != nil {
			c.report.Add(&c.report.Diverged, "%s-%d through the proxies: %s", p.Topic, p.Partition, p.Difference)
		}
	}
	return nil
}

package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// verbRequest is a pause, resume or recover in this package's terms.
type verbRequest struct {
	mirror        string
	topics        []string // names or whole-name regexes
	allowTruncate bool     // recover only
	validateOnly  bool
}

// pauseTopics runs on the coordinator of the mirror's name, as do the others here.
// Leaders see what is wanted, and take their partitions through PAUSING to PAUSED.
func (c *Coordinator) pauseTopics(ctx context.Context, r verbRequest) ([]TopicResult, error) {
	return c.change(ctx, r, VerbPause, func(t *Topic) { t.Desired = Paused })
}

func (c *Coordinator) resumeTopics(ctx context.Context, r verbRequest) ([]TopicResult, error) {
	return c.change(ctx, r, VerbResume, func(t *Topic) { t.Desired = Mirroring })
}

// recoverTopics lets failed partitions go on at once from where they failed.
func (c *Coordinator) recoverTopics(ctx context.Context, r verbRequest) ([]TopicResult, error) {
	results, err := c.change(ctx, r, VerbRecover, func(t *Topic) {
		t.Fault = ""
		// A stop truncates nothing, and what comes after it is asked anew.
		t.AllowTruncate = t.Desired != Stopped && (t.AllowTruncate || r.allowTruncate)
	})
	if err != nil || r.validateOnly {
		return results, err
	}
	for i, done := range results {
		if t, ok := c.view.Topic(r.mirror, done.Name); ok && done.Err == nil {
			if err := c.retryFailed(ctx, t, VerbRecover); err != nil {
				results[i].Err = notRetried(t, "recover", err)
			}
		}
	}
	c.requestRefresh(r.mirror)
	return results, nil
}

// change does one verb to topics of a mirror: edit changes the record of those whose
// state allows it. All records are written at once, nothing for a topic that is refused.
func (c *Coordinator) change(ctx context.Context, r verbRequest, verb Event, edit func(*Topic)) ([]TopicResult, error) {
	var results []TopicResult
	err := c.act(ctx, r.mirror, func() error {
		results = nil
		m, err := c.mirror(r.mirror)
		if err != nil {
			return err
		}
		names, err := c.selectTopics(m.Name, r.topics)
		if err != nil {
			return err
		}
		var records []record
		for _, n := range names {
			t, _, refused := c.decide(m.Name, n, verb)
			var note string
			switch {
			case verb != VerbRecover:
			case refused == nil && r.allowTruncate:
				note = c.notGivenUp(t)
			case refused != nil && refused.Code == protocol.InvalidClusterMirrorStates:
				t, refused = c.giveUp(t, r.allowTruncate)
			}
			results = append(results, TopicResult{Name: n, Err: refused, Note: note})
			if refused != nil {
				continue
			}
			before := t.Desired
			edit(&t)
			// Leaders try again at once when it moves. A stop waits no longer than it was to.
			if t.Desired != before || verb == VerbRecover && t.Desired != Stopped {
				t.Since = time.Now().UnixMilli()
			}
			records = append(records, record{kind: kindTopic, topic: topicKey{m.Name, n}, value: t})
		}
		if r.validateOnly || len(records) == 0 {
			return nil
		}
		return c.store.Put(ctx, records...)
	})
	if err != nil {
		return nil, fmt.Errorf("mirror %s: %w", r.mirror, err)
	}
	if !r.validateOnly {
		for _, t := range results {
			if t.Err == nil {
				c.log.Info("mirror topic changed", "mirror", r.mirror, "topic", t.Name, "verb", verb.String(), "note", t.Note)
			}
		}
	}
	return results, nil
}

// retryFailed lets the partitions of a topic that failed begin anew (VerbStart), or go on
// from where they failed (VerbRecover).
func (c *Coordinator) retryFailed(ctx context.Context, t Topic, verb Event) error {
	var errs []error
	for _, p := range c.img.TopicPartitions(t.TopicID) {
		tp := ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition}
		s, _ := c.view.State(t.Mirror, tp)
		if s.State != Failed {
			continue
		}
		next, _ := Next(s.State, s.Previous, verb)
		if err := c.WriteState(ctx, t.Mirror, tp, max(s.LeaderEpoch, p.LeaderEpoch), PartitionState{State: next, StateEpoch: -1}); err != nil {
			c.log.Warn("failed partition is not retried", "mirror", t.Mirror, "topic", t.Name, "partition", p.Partition, "err", err)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// notRetried is the answer for a topic whose record is written, and whose failed partitions
// are still so. The same verb once more retries them.
func notRetried(t Topic, verb string, err error) *Error {
	return refuse(kerr.CoordinatorNotAvailable.Code, "topic %s of mirror %s: partitions that had failed are not retried yet: %v; %s it again", t.Name, t.Mirror, err, verb)
}

// stopRequest is StopMirrorTopics in this package's terms.
type stopRequest struct {
	mirror       string
	topics       []string
	patterns     []string
	validateOnly bool
}

// stopTopics runs on the coordinator of the mirror's name. The source is not asked: a
// stop works while it is dead. Patterns move from include to exclude, and topics that then
// match what is excluded stop too.
func (c *Coordinator) stopTopics(ctx context.Context, r stopRequest) ([]TopicResult, error) {
	var results []TopicResult
	var stopped []string
	warning := c.lastRound(ctx, r)
	err := c.act(ctx, r.mirror, func() error {
		results, stopped = nil, nil
		m, err := c.mirror(r.mirror)
		if err != nil {
			return err
		}
		names, next, err := c.toStop(m, r)
		if err != nil {
			return err
		}
		var records []record
		for _, n := range names {
			t, how, refused := c.decide(m.Name, n, VerbStop)
			results = append(results, TopicResult{Name: n, Err: refused})
			if refused != nil || how == Done {
				continue
			}
			t.Desired, t.Since = Stopped, time.Now().UnixMilli()
			t.AllowTruncate, t.GiveUp = false, nil // said of a mirror that runs
			records = append(records, record{kind: kindTopic, topic: topicKey{m.Name, n}, value: t})
			if len(stopped) == 0 {
				results[len(results)-1].Note = warning // it is of the mirror, and said once
			}
			stopped = append(stopped, n)
		}
		if !maps.Equal(next, m.Configs) {
			m.Configs = next
			// First, so that what stops is not found again.
			records = append([]record{{kind: kindMirror, mirror: m.Name, value: m}}, records...)
		}
		if r.validateOnly || len(records) == 0 {
			return nil
		}
		return c.store.Put(ctx, records...)
	})
	if err != nil {
		return nil, fmt.Errorf("mirror %s: stop topics: %w", r.mirror, err)
	}
	if !r.validateOnly {
		for _, n := range stopped {
			c.log.Info("mirror topic stopping", "mirror", r.mirror, "topic", n)
		}
	}
	return results, nil
}

// toStop returns the topics that a stop means and the mirror's configuration afterwards.
func (c *Coordinator) toStop(m Mirror, r stopRequest) ([]string, config.Properties, error) {
	asked, err := config.ParsePattern(config.JoinList(r.patterns))
	if err != nil {
		return nil, nil, refuse(kerr.InvalidRequest.Code, "mirror %s: %v", m.Name, err)
	}
	next := stopPatterns(m.Configs, r.patterns, r.topics)
	cfg, err := config.ParseStored(next) // a stop must not wait until a key is put right
	if err != nil {
		return nil, nil, refuse(kerr.InvalidRequest.Code, "mirror %s: %v", m.Name, err)
	}
	names := slices.Clone(r.topics)
	if len(r.patterns) > 0 {
		for _, t := range c.view.Topics(m.Name) {
			if asked.Match(t.Name) || t.Desired != Stopped && cfg.TopicsExclude.Match(t.Name) {
				names = append(names, t.Name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > maxTopicsPerRequest {
		return nil, nil, refuse(kerr.InvalidRequest.Code, "mirror %s: %d topics in one request, at most %d", m.Name, len(names), maxTopicsPerRequest)
	}
	return names, next, nil
}

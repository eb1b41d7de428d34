package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// pollInterval is how often --wait looks.
const pollInterval = 500 * time.Millisecond

type topicPartition struct {
	topic     string
	partition int32
}

// waiter decides from one description after another whether a verb has reached its goal.
type waiter struct {
	action string
	topics []string

	failed  map[topicPartition]int64 // FAILED before the verb, since when
	targets map[topicPartition]int64 // where the source ended when a partition was first seen MIRRORING
	states  map[string]string        // of each topic, the least advanced
	reached map[string]bool
}

// remember takes down what failed before the verb was given.
func (w *waiter) remember(m protocol.DescribedMirror) {
	w.failed = map[topicPartition]int64{}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			if coordinator.State(p.State) == coordinator.Failed {
				w.failed[topicPartition{t.TopicName, p.PartitionIndex}] = p.StateSince
			}
		}
	}
}

// look returns how far the topics are, and what is waited for. An error means that the goal
// will not be reached by waiting.
func (w *waiter) look(m protocol.DescribedMirror) (line string, done bool, err error) {
	w.states, w.reached = map[string]string{}, map[string]bool{}
	if w.targets == nil {
		w.targets = map[topicPartition]int64{}
	}
	var ready, all int
	var lag int64
	waits := ""
	for _, t := range m.Topics {
		if !slices.Contains(w.topics, t.TopicName) {
			continue
		}
		here := 0
		for _, p := range t.Partitions {
			tp := topicPartition{t.TopicName, p.PartitionIndex}
			lag += max(partitionLag(p), 0)
			if w.there(tp, p) {
				here++
				continue
			}
			text := fmt.Sprintf("%s-%d is %s", t.TopicName, p.PartitionIndex, stateText(p))
			if w.gaveUp(tp, p) {
				err = errors.Join(err, errors.New(text))
			}
			w.states[t.TopicName] = coordinator.State(p.State).String()
			if waits == "" {
				waits = text
			}
		}
		all += len(t.Partitions)
		ready += here
		// Without partitions it is not created yet, or, for a stop, will never be, once nothing of it is
		// on its way any more.
		w.reached[t.TopicName] = here == len(t.Partitions) && (here > 0 || w.action == "stop" && !t.BeingStopped)
		if w.reached[t.TopicName] {
			w.states[t.TopicName] = w.goal().String()
		}
	}
	done = true
	for _, t := range w.topics {
		if w.reached[t] {
			continue
		}
		done = false
		if waits == "" {
			waits = "topic " + t + " is not created here yet"
			if w.action == "stop" {
				waits = "topic " + t + " is being stopped"
			}
		}
	}
	line = fmt.Sprintf("%d of %s done", ready, plural(all, "partition"))
	if w.action == "start" {
		line += fmt.Sprintf(", lag %d", lag)
	}
	if waits != "" {
		line += "; " + waits
	}
	return line, done, err
}

func stateText(p protocol.DescribedPartition) string {
	text := coordinator.State(p.State).String()
	if d := deref(p.Detail); d != "" {
		text += " (" + d + ")"
	}
	if e := deref(p.ErrorMessage); e != "" {
		text += ": " + oneLine(e)
	}
	return text
}

func (w *waiter) goal() coordinator.State {
	switch w.action {
	case "stop":
		return coordinator.Stopped
	case "pause":
		return coordinator.Paused
	}
	return coordinator.Mirroring
}

// there tells whether a partition has reached the goal. A start's goal is to have all that
// the source had when mirroring began: under load there is always something newer.
func (w *waiter) there(tp topicPartition, p protocol.DescribedPartition) bool {
	if coordinator.State(p.State) != w.goal() {
		return false
	}
	if w.action != "start" {
		return true
	}
	if p.SourceOffset < 0 || p.DestinationOffset < 0 {
		return false
	}
	target, seen := w.targets[tp]
	if !seen {
		target = p.SourceOffset
		w.targets[tp] = target
	}
	return p.DestinationOffset >= target
}

// gaveUp tells whether a partition failed since the verb was given. What failed before may
// be described as it was for a moment.
func (w *waiter) gaveUp(tp topicPartition, p protocol.DescribedPartition) bool {
	if w.action == "stop" || coordinator.State(p.State) != coordinator.Failed {
		return false // a stop goes on from FAILED
	}
	since, before := w.failed[tp]
	return !before || since != p.StateSince
}

// await looks until the goal is reached.
func (o *options) await(ctx context.Context, cl *kgo.Client, p *progress, w *waiter) error {
	defer p.end()
	within, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	last := "no sidecar has answered"
	for {
		m, err := o.fetchMirrors(within, cl)
		if err == nil {
			line, done, err := w.look(m[0])
			p.show(line)
			if done || err != nil {
				return err
			}
			_, last, _ = strings.Cut(line, "; ")
		} else if within.Err() == nil {
			var refused *protocol.Error
			if errors.As(err, &refused) && !protocol.ComesUp(err) {
				return err
			}
			last = err.Error()
			p.show(last)
		}
		select {
		case <-within.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted; mirror %s goes on by itself, --describe shows how far it is: %s", o.mirror, last)
			}
			return timeoutError{fmt.Errorf("mirror %s: not done within %s, it goes on by itself: %s", o.mirror, o.timeout, last)}
		case <-tick.C:
		}
	}
}

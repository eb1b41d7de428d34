package coordinator

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

const (
	// heraldLook is how often the herald looks whether it coordinates what it did not before.
	heraldLook = 5 * time.Second
	// maxNews bounds what has changed and was not looked at yet. The herald waits for nobody, so that
	// this many are only there when the whole state was read anew.
	maxNews = 20_000
)

// EventSinks tells plugins what happens to mirrors, and waits for none: policy.EventDispatch.
type EventSinks interface {
	Tell(q policy.Question, plugins []string, events []*policyv1.Event)
	// Keep ends what is told of all but those mirrors to all but those plugins.
	Keep(plugins map[string][]string)
}

// Herald tells the plugins of mirror.policy.events what happens to the partitions of the mirrors that
// are coordinated here. The view is where it hears of that, so it is what is recorded that is told, by
// whom ever it was written. One that begins to tell of a mirror repeats what has changed
// within policy.HoldEvents: who told before may have ended before it had.
type Herald struct {
	c     *Coordinator
	sinks EventSinks
	log   *slog.Logger

	watcher

	mu   sync.Mutex // guards the following
	news []StateChange
	anew bool // too much has changed, or anything may have

	told map[string][]string // plugins by mirror, as of the last look; only the goroutine touches it
}

// NewHerald returns the herald of a coordinator.
func NewHerald(c *Coordinator, sinks EventSinks, log *slog.Logger) *Herald {
	return &Herald{c: c, sinks: sinks, log: log, watcher: newWatcher(), told: map[string][]string{}}
}

// Start begins to tell once the state was read.
func (h *Herald) Start(context.Context) error {
	h.start(h.c.store.Ready(), h.run, h.c.view.Subscribe(h.hear))
	return nil
}

// Stop ends telling.
func (h *Herald) Stop(ctx context.Context) error { return h.end(ctx, "herald") }

// hear notes what changed. It runs on the view's goroutine, and waits for nothing.
func (h *Herald) hear(c Change) {
	if !c.Reset && len(c.States) == 0 && len(c.Mirrors) == 0 {
		return
	}
	select {
	case <-h.c.store.Ready():
	default:
		return // history; what of it is still news is found when the first look is had
	}
	h.mu.Lock()
	h.news = append(h.news, c.States...)
	if c.Reset || len(h.news) > maxNews {
		h.news, h.anew = nil, true
	}
	h.mu.Unlock()
	h.poke()
}

func (h *Herald) run(ctx context.Context) {
	for ctx.Err() == nil {
		h.look(time.Now())
		t := time.NewTimer(heraldLook)
		select {
		case <-ctx.Done():
		case <-h.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// look tells what has changed since the last look.
func (h *Herald) look(now time.Time) {
	h.mu.Lock()
	news, anew := h.news, h.anew
	h.news, h.anew = nil, false
	h.mu.Unlock()
	mine := map[string][]string{}
	for _, m := range h.c.view.Mirrors() {
		plugins := config.SplitList(m.Configs[config.PolicyPrefix+string(policy.Events)])
		if len(plugins) == 0 {
			continue
		}
		if who, err := h.c.Of(m.Name); err != nil || who != h.c.cfg.Self {
			continue
		}
		mine[m.Name] = plugins
		of := slices.DeleteFunc(slices.Clone(news), func(s StateChange) bool { return s.Mirror != m.Name })
		q := h.c.question(m, policyv1.Round_WHY_UNSPECIFIED)
		var newcomers, others []string
		for _, p := range plugins {
			if !anew && slices.Contains(h.told[m.Name], p) {
				others = append(others, p)
			} else {
				newcomers = append(newcomers, p)
			}
		}
		h.tell(q, others, of)
		if len(newcomers) > 0 {
			h.tell(q, newcomers, append(h.c.recentStates(m.Name, now.Add(-policy.HoldEvents), of), of...))
		}
	}
	h.sinks.Keep(mine)
	h.told = mine
}

func (h *Herald) tell(q policy.Question, plugins []string, changes []StateChange) {
	if len(plugins) == 0 || len(changes) == 0 {
		return
	}
	events := make([]*policyv1.Event, len(changes))
	for i, s := range changes {
		events[i] = &policyv1.Event{
			AtMs: s.At, Topic: h.topicName(s), Partition: s.TopicPartition.Partition,
			FromState: stateName(s.From), ToState: stateName(s.To.State), Detail: s.To.Detail, Error: s.To.ErrorMessage,
		}
	}
	h.sinks.Tell(q, plugins, events)
}

// topicName is that of a change, or its id if nobody knows it any more.
func (h *Herald) topicName(s StateChange) string {
	if s.Topic != "" {
		return s.Topic
	}
	if name, ok := h.c.img.TopicName(s.TopicPartition.TopicID); ok {
		return name
	}
	return s.TopicPartition.TopicID.String()
}

// stateName is "" where there is no state.
func stateName(s State) string {
	if s == Unknown {
		return ""
	}
	return s.String()
}

// recentStates returns the states of a mirror's partitions of which something new was recorded since a
// time, oldest first, but for those of which a change is at hand.
func (c *Coordinator) recentStates(mirror string, since time.Time, but []StateChange) []StateChange {
	at := map[ids.TopicPartition]bool{}
	for _, s := range but {
		at[s.TopicPartition] = true
	}
	v := c.view
	v.mu.RLock()
	defer v.mu.RUnlock()
	var out []StateChange
	for k, s := range v.states {
		if k.mirror == mirror && s.told >= since.UnixMilli() && !at[k.tp] {
			out = append(out, StateChange{Mirror: mirror, Topic: v.topicName(k), TopicPartition: k.tp, From: s.Previous, To: s, At: s.told})
		}
	}
	slices.SortFunc(out, func(a, b StateChange) int { return cmp.Compare(a.At, b.At) })
	return out
}

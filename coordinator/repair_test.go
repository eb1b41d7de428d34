package coordinator

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// reassignLocked does at once what a reassignment asks for: nobody has to get in sync
// here. A request without replicas drops those that are being added.
func (r *rig) reassignLocked(q *kmsg.AlterPartitionAssignmentsRequest) kmsg.Response {
	for _, t := range q.Topics {
		for _, a := range t.Partitions {
			for i, p := range r.parts {
				if p.Topic != t.Topic || p.Partition != a.Partition {
					continue
				}
				n := *p
				target := a.Replicas
				if target != nil && !slices.ContainsFunc(p.Replicas, func(b int32) bool { return !slices.Contains(target, b) }) {
					// Nothing to remove: a removal that is pending goes on.
					target = slices.DeleteFunc(slices.Clone(target), func(b int32) bool { return slices.Contains(p.Removing, b) })
				}
				if target == nil {
					target = slices.DeleteFunc(slices.Clone(p.Replicas), func(b int32) bool { return slices.Contains(p.Adding, b) })
				}
				n.Replicas, n.Adding, n.Removing = target, nil, nil
				n.ISR = slices.DeleteFunc(slices.Clone(p.ISR), func(b int32) bool { return !slices.Contains(target, b) })
				if len(n.ISR) == 0 {
					n.ISR = target // the virtual leader lets them in
				}
				if !slices.Contains(target, n.Leader) {
					n.Leader, n.LeaderEpoch = n.ISR[0], n.LeaderEpoch+1
				}
				r.parts[i] = &n
			}
		}
	}
	return q.ResponseKind()
}

// change edits the image's only partition of a topic.
func (r *rig) change(t Topic, edit func(p *metadata.Partition)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, p := range r.parts {
		if p.TopicID == t.TopicID {
			n := *p
			edit(&n)
			r.parts[i] = &n
		}
	}
	r.showLocked()
}

// reassigned lists what the controller was asked for, in order; nil cancels.
func (r *rig) reassigned() (out [][]int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.requests {
		if a, ok := q.(*kmsg.AlterPartitionAssignmentsRequest); ok {
			out = append(out, a.Topics[0].Partitions[0].Replicas)
		}
	}
	return out
}

// TestRepairs: R19, what a look at an assignment leads to that somebody else has made, or
// that a request has come too late for.
func TestRepairs(t *testing.T) {
	for name, c := range map[string]struct {
		desired State
		state   PartitionState
		now     func(p *metadata.Partition)
		want    [][]int32 // what is asked for, in order
	}{
		"mirrored and none assigned: added": {
			desired: Mirroring, state: PartitionState{State: Mirroring},
			now:  func(p *metadata.Partition) { p.Replicas, p.ISR, p.Leader = []int32{2, 1}, []int32{1, 2}, 2 },
			want: [][]int32{{10002, 10001, 2, 1}},
		},
		"mirrored and being taken away: added, the rest of the change stays": {
			desired: Mirroring, state: PartitionState{State: Mirroring},
			now:  func(p *metadata.Partition) { p.Removing = []int32{10001, 10002, 2} },
			want: [][]int32{{10001, 10002, 1}},
		},
		"mirrored and being taken away, and nothing else is: what is pending must be replaced": {
			desired: Mirroring, state: PartitionState{State: Mirroring},
			now: func(p *metadata.Partition) {
				p.Replicas, p.Adding, p.Removing = []int32{3, 1, 2, 10001, 10002}, []int32{3}, []int32{10001, 10002}
			},
			want: [][]int32{{10001, 3, 1, 2}, {10001, 10002, 3, 1, 2}},
		},
		"mirrored, and one of them on its way to be put back": {
			desired: Mirroring, state: PartitionState{State: Mirroring},
			now: func(p *metadata.Partition) {
				p.Replicas, p.Adding, p.Removing = []int32{10001, 3, 1, 2, 10002}, []int32{3}, []int32{10002}
			},
			want: nil,
		},
		"mirrored, and a real one before them: they come first": {
			desired: Mirroring, state: PartitionState{State: Mirroring},
			now:  func(p *metadata.Partition) { p.Replicas, p.Leader = []int32{2, 10001, 10002, 1}, 2 },
			want: [][]int32{{10001, 10002, 2, 1}},
		},
		"mirrored and one too many: taken away": {
			desired: Mirroring, state: PartitionState{State: Mirroring},
			now: func(p *metadata.Partition) {
				p.Replicas = []int32{10001, 10003, 10002, 1, 2}
				p.ISR = slices.Clone(p.Replicas)
			},
			want: [][]int32{{10001, 10002, 1, 2}},
		},
		"mirrored and one too many on its way: cancelled": {
			desired: Mirroring, state: PartitionState{State: Mirroring},
			now: func(p *metadata.Partition) {
				p.Replicas, p.Adding = []int32{10001, 10002, 10003, 1, 2}, []int32{10003}
			},
			want: [][]int32{nil},
		},
		"stopped and assigned: taken away": {
			desired: Stopped, state: PartitionState{State: Stopped},
			now:  func(p *metadata.Partition) { p.Replicas, p.ISR, p.Leader = []int32{10001, 1, 2}, []int32{1, 2}, 2 },
			want: [][]int32{{2, 1}},
		},
		"stopped, assigned and led by it: taken away": {
			desired: Stopped, state: PartitionState{State: Stopped},
			now:  func(*metadata.Partition) {},
			want: [][]int32{{1, 2}},
		},
		"stopped and on its way: cancelled": {
			desired: Stopped, state: PartitionState{State: Stopped},
			now: func(p *metadata.Partition) {
				p.Replicas, p.Adding, p.ISR, p.Leader = []int32{10001, 1, 2}, []int32{10001}, []int32{1, 2}, 1
			},
			want: [][]int32{nil},
		},
		"stopping, and a target of the removal has left the ISR": {
			desired: Stopped, state: PartitionState{State: Stopping, Detail: DetailQuiesced, LeaderEpoch: 3},
			now: func(p *metadata.Partition) {
				p.Removing, p.ISR = []int32{10001, 10002}, []int32{10001, 10002, 1}
			},
			want: [][]int32{{1}, {1, 2}}, // the one left out comes back
		},
		"stopping, and the removal is on its way": {
			desired: Stopped, state: PartitionState{State: Stopping, Detail: DetailQuiesced, LeaderEpoch: 3},
			now: func(p *metadata.Partition) { p.Removing = []int32{10001, 10002} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			topic := r.mirrorTopic("t", c.desired, Mirroring)
			if c.desired != Stopped {
				r.mu.Lock()
				r.configs["t"] = map[string]string{configMaxMessageBytes: "0"} // else it was handed back by hand
				r.mu.Unlock()
			}
			r.change(topic, c.now)
			r.rec.mu.Lock()
			r.rec.seen[10003] = presence{epoch: -1, since: time.Now().Add(-time.Hour)} // it is not waited for
			r.rec.mu.Unlock()
			c.state.LeaderEpoch = 3
			topic.Wanted = map[string]*string{configMinISR: ptr("1")} // so that no broker is asked for its default
			r.put(record{kind: kindState, partition: partitionKey{"m", ids.TopicPartition{TopicID: topic.TopicID}}, value: c.state},
				record{kind: kindTopic, topic: topicKey{"m", "t"}, value: topic})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if c.want != nil && c.desired == Stopped && c.state.State == Stopped && r.rec.idle(r.topicT("t")) {
				t.Error("nothing is to be done, it seems")
			}
			for range 2 {
				var err error
				if c.desired != Stopped {
					m, _ := r.view.Mirror("m")
					_, err = r.rec.mirrorTopic(ctx, m, topic)
				} else {
					// Without the markers, which are asked for at a broker that is not here.
					var left bool
					if left, _, err = r.rec.handBack(ctx, topic); left && err == nil {
						_, err = r.rec.readd(ctx, topic)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if got := r.reassigned(); !slices.EqualFunc(got, c.want, slices.Equal) {
				t.Errorf("asked for %v, want %v", got, c.want)
			}
		})
	}
}

// TestRepairNamesNobodyNew: of a request that adds, the controller remembers only whom that one adds. Where
// a client moves real replicas around the sidecars, the virtual ones that go are put back, whoever they are:
// another in their place would make the controller forget the real ones that are being added.
func TestRepairNamesNobodyNew(t *testing.T) {
	for _, had := range [][]int32{{10001, 10002}, {10002, 10001}, {10001, 10003}, {10003, 10001}, {10002, 10003}, {10003, 10002}} {
		r := newRig(t)
		r.brokers = append(r.brokers, metadata.Broker{ID: 3}, metadata.Broker{ID: 10003})
		topic := r.mirrorTopic("t", Mirroring, Mirroring)
		r.mu.Lock()
		r.configs["t"] = map[string]string{configMaxMessageBytes: "0"}
		r.mu.Unlock()
		topic.Wanted = map[string]*string{configMinISR: ptr("1")}
		r.put(record{kind: kindTopic, topic: topicKey{"m", "t"}, value: topic},
			record{kind: kindState, partition: partitionKey{"m", ids.TopicPartition{TopicID: topic.TopicID}}, value: PartitionState{State: Mirroring, LeaderEpoch: 3}})
		r.change(topic, func(p *metadata.Partition) {
			p.Replicas, p.Adding, p.Removing = append([]int32{2, 3}, had[0], had[1], 1), []int32{3}, []int32{had[0], had[1], 1}
			p.ISR, p.Leader = []int32{had[0], had[1], 1, 2}, had[0]
		})
		m, _ := r.view.Mirror("m")
		for range 2 {
			if _, err := r.rec.mirrorTopic(t.Context(), m, topic); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := r.reassigned(), [][]int32{{had[0], had[1], 2, 3}}; !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("on %v: asked for %v, want %v", had, got, want)
		}
	}
}

// TestStopTellsWhatItWaitsFor: what cannot go on says which broker to bring back, and goes
// by what its leader has reported all the same.
func TestStopTellsWhatItWaitsFor(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Stopped, Mirroring)
	topic.Wanted = map[string]*string{configMinISR: ptr("1")}
	r.change(topic, func(p *metadata.Partition) { p.ISR, p.ELR = []int32{10001, 10002}, []int32{2} })
	r.put(record{kind: kindState, partition: partitionKey{"m", ids.TopicPartition{TopicID: topic.TopicID}}, value: PartitionState{State: Stopping, Detail: DetailQuiesced, LeaderEpoch: 3}})
	for range 2 {
		if left, _, err := r.rec.handBack(t.Context(), topic); left || err != nil {
			t.Fatal(left, err)
		}
	}
	s := r.stateOf(topic, 0)
	if !strings.Contains(s.ErrorMessage, "bring back broker 2") || s.State != Stopping || s.Detail != DetailQuiesced || s.LeaderEpoch != 3 || s.StateEpoch != 1 {
		t.Errorf("told: %+v", s)
	}
	r.change(topic, func(p *metadata.Partition) { p.ISR, p.ELR = []int32{10001, 10002, 2, 1}, nil })
	if left, _, err := r.rec.handBack(t.Context(), topic); !left || err != nil {
		t.Error("it has not gone on", err)
	}
}

// busyPeers do something before they open.
type busyPeers struct {
	windowPeers
	first func()
}

func (b busyPeers) Request(ctx context.Context, who int32, req kmsg.Request) (kmsg.Response, error) {
	b.first()
	return b.windowPeers.Request(ctx, who, req)
}

// TestRepairIsNotLate: what somebody else has made of an assignment while virtual brokers were
// being opened is not undone.
func TestRepairIsNotLate(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Mirroring, Mirroring)
	topic.Wanted = map[string]*string{configMinISR: ptr("1")}
	r.put(record{kind: kindTopic, topic: topicKey{"m", "t"}, value: topic})
	r.configs["t"] = lockConfigs(1, 2)
	r.change(topic, func(p *metadata.Partition) {
		p.Replicas, p.ISR, p.Adding, p.Removing, p.Leader = []int32{2, 3, 1}, []int32{1, 2}, []int32{3}, []int32{1}, 2
	})
	cancelled := sync.OnceFunc(func() {
		r.change(topic, func(p *metadata.Partition) { p.Replicas, p.Adding, p.Removing = []int32{2, 1}, nil, nil })
	})
	r.deps.Peers = busyPeers{first: cancelled}
	m, _ := r.view.Mirror("m")
	for i, want := range [][]int32{nil, {10001, 10002, 2, 1}} {
		if _, err := r.rec.mirrorTopic(t.Context(), m, topic); err != nil {
			t.Fatal(err)
		}
		if got := r.reassigned(); len(got) != i || i > 0 && !sameSet(got[i-1], want) {
			t.Fatalf("look %d: asked for %v, want %v", i, got, want)
		}
	}
}

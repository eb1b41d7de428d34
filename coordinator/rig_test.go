package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// rig is one coordinator with a state topic in a fake cluster, a metadata image that the
// test sets, a controller that does what it is asked to in that image, and a scripted
// source.
type rig struct {
	*Coordinator
	t    *testing.T
	fake *kfake.Cluster
	rec  *Reconciler
	ref  *Refresher
	src  *fakeSource
	look refreshed

	mu       sync.Mutex // guards the following: what the image says
	parts    []*metadata.Partition
	configs  map[string]map[string]string
	brokers  []metadata.Broker
	requests []kmsg.Request // that the controller got
	policy   []string       // configs that a policy refuses to have changed
}

// fakeSource is a scripted source; a nil error means that it answers.
type fakeSource struct {
	mu     sync.Mutex // guards the following
	id     string
	topics map[string]SourceTopic
	err    error
	opened int
	open   int

	described int // topics, in all
}

func (s *fakeSource) set(edit func(s *fakeSource)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s)
}

func (s *fakeSource) ClusterID(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.err
}

func (s *fakeSource) List(context.Context) ([]SourceTopic, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []SourceTopic
	for _, n := range slices.Sorted(maps.Keys(s.topics)) {
		t := s.topics[n]
		out = append(out, SourceTopic{Name: n, ID: t.ID, Partitions: t.Partitions})
	}
	return out, s.err
}

func (s *fakeSource) Topics(_ context.Context, names []string) (map[string]SourceTopic, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.described += len(names)
	out := map[string]SourceTopic{}
	for _, n := range names {
		if t, ok := s.topics[n]; ok {
			t.Name = n
			out[n] = t
		}
	}
	return out, s.err
}

func (s *fakeSource) Close() { s.set(func(s *fakeSource) { s.open-- }) }

// windowPeers open their virtual brokers and answer nothing else.
type windowPeers struct{}

func (windowPeers) Request(_ context.Context, _ int32, req kmsg.Request) (kmsg.Response, error) {
	if _, ok := req.(*protocol.UncordonVirtualBrokerRequest); ok {
		return req.ResponseKind(), nil
	}
	return nil, fmt.Errorf("%w: not scripted", errPeer)
}

type openBroker struct{}

func (openBroker) Uncordon(context.Context) (func(), error) { return func() {}, nil }

func newRig(t *testing.T) *rig {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, StateTopic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	img := metadata.NewImage(virtual)
	r := &rig{t: t, fake: fake, src: &fakeSource{id: "source", topics: map[string]SourceTopic{}}, configs: map[string]map[string]string{}, brokers: []metadata.Broker{{ID: 1}, {ID: 2}, {ID: 10001}, {ID: 10002}}}
	r.look = refreshed{suspect: map[string]string{}, told: map[string]string{}}
	opts := []kgo.Opt{kgo.SeedBrokers(fake.ListenAddrs()...)}
	store, err := NewStore(StoreConfig{Partitions: 1, ReplicationFactor: 1, Virtual: virtual, Self: 10001, Opts: opts}, img, r, log)
	if err != nil {
		t.Fatal(err)
	}
	dst, err := NewDestination(1, virtual, img, r, opts, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dst.Close)
	open := func(*config.Mirror) (Source, error) {
		r.src.set(func(s *fakeSource) { s.opened++; s.open++ })
		return r.src, nil
	}
	r.Coordinator, err = New(Config{
		Self: 10001, Virtual: virtual, VirtualReplicas: 2, RefreshInterval: time.Hour, ClusterID: "here",
	}, Deps{Image: img, Store: store, Destination: dst, Source: open, Peers: windowPeers{}, Broker: openBroker{}}, log)
	if err != nil {
		t.Fatal(err)
	}
	r.rec = NewReconciler(r.Coordinator, log)
	r.ref = NewRefresher(r.Coordinator, r.rec, log)
	t.Cleanup(r.look.close)
	r.topic(StateTopic, ids.UUID{255}, []int32{1})
	caughtUp := make(chan struct{})
	close(caughtUp)
	if err := store.Start(t.Context(), caughtUp); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopWithin(t, store.Stop) })
	r.put(record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "source", Configs: config.Properties{"bootstrap.servers": "east:9092"}}})
	select {
	case <-store.Ready():
	case <-time.After(30 * time.Second):
		t.Fatal("the state is not read")
	}
	return r
}

// topic adds a topic with one partition for each list of replicas to the image.
func (r *rig) topic(name string, id ids.UUID, replicas ...[]int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(name, id, replicas...)
	r.showLocked()
}

func (r *rig) addLocked(name string, id ids.UUID, replicas ...[]int32) {
	n := int32(0)
	for _, p := range r.parts {
		if p.TopicID == id {
			n++
		}
	}
	for i, b := range replicas {
		r.parts = append(r.parts, &metadata.Partition{Topic: name, TopicID: id, Partition: n + int32(i), Replicas: b, ISR: b, Leader: b[0], LeaderEpoch: 3})
	}
}

func (r *rig) showLocked() {
	r.img.Set(slices.Clone(r.parts), slices.Clone(r.brokers), r.configs)
}

// put writes to the state topic as another sidecar would.
func (r *rig) put(records ...record) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	if err := r.act(ctx, "m", func() error { return r.store.Put(ctx, records...) }); err != nil {
		r.t.Fatal(err)
	}
}

// mirrorTopic adds a mirror topic of mirror m: here, at the source and in the state, with
// these states of its partitions.
func (r *rig) mirrorTopic(name string, desired State, states ...State) Topic {
	r.t.Helper()
	t := Topic{Mirror: "m", Name: name, TopicID: idOf("here " + name), SourceTopicID: idOf("there " + name), Desired: desired, Wanted: map[string]*string{configMinISR: nil}}
	if desired == Stopped && !slices.ContainsFunc(states, func(s State) bool { return s != Stopped }) {
		t.Wanted = nil // given back
	}
	records := []record{{kind: kindTopic, topic: topicKey{"m", name}, value: t}}
	var replicas [][]int32
	for i, s := range states {
		tp := ids.TopicPartition{TopicID: t.TopicID, Partition: int32(i)}
		if s != Unknown {
			records = append(records, record{kind: kindState, partition: partitionKey{"m", tp}, value: PartitionState{State: s, Previous: Mirroring, LeaderEpoch: 3}})
		}
		if desired == Stopped && s == Stopped {
			replicas = append(replicas, []int32{1, 2})
		} else {
			replicas = append(replicas, []int32{10001, 10002, 1, 2})
		}
	}
	r.topic(name, t.TopicID, replicas...)
	r.src.set(func(s *fakeSource) {
		s.topics[name] = SourceTopic{Name: name, ID: t.SourceTopicID, Partitions: int32(len(states))}
	})
	r.put(records...)
	return t
}

func idOf(s string) (id ids.UUID) {
	copy(id[:], s)
	return id
}

// Request implements Controllers: the image shows at once what was asked for.
func (r *rig) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, req)
	defer r.showLocked()
	switch q := req.(type) {
	case *kmsg.CreatePartitionsRequest:
		resp := kmsg.NewPtrCreatePartitionsResponse()
		for _, t := range q.Topics {
			a := kmsg.NewCreatePartitionsResponseTopic()
			a.Topic = t.Topic
			id, _ := r.img.Topic(t.Topic)
			for _, assigned := range t.Assignment {
				r.addLocked(t.Topic, id, assigned.Replicas)
			}
			resp.Topics = append(resp.Topics, a)
		}
		return resp, nil
	case *kmsg.CreateTopicsRequest:
		resp := kmsg.NewPtrCreateTopicsResponse()
		for _, t := range q.Topics {
			a := kmsg.NewCreateTopicsResponseTopic()
			a.Topic = t.Topic
			set := map[string]string{}
			for _, c := range t.Configs {
				set[c.Name] = *c.Value
				if slices.Contains(r.policy, c.Name) {
					a.ErrorCode = kerr.PolicyViolation.Code
				}
			}
			if a.ErrorCode == 0 && !q.ValidateOnly {
				r.configs[t.Topic] = set
				for _, assigned := range t.ReplicaAssignment {
					r.addLocked(t.Topic, idOf("here "+t.Topic), assigned.Replicas)
				}
			}
			resp.Topics = append(resp.Topics, a)
		}
		return resp, nil
	case *kmsg.AlterPartitionAssignmentsRequest:
		return r.reassignLocked(q), nil
	case *kmsg.ElectLeadersRequest:
		for _, t := range q.Topics {
			for i, p := range r.parts {
				if p.Topic == t.Topic && slices.Contains(t.Partitions, p.Partition) && slices.Contains(p.ISR, p.Replicas[0]) {
					n := *p
					n.Leader, n.LeaderEpoch = p.Replicas[0], p.LeaderEpoch+1
					r.parts[i] = &n
				}
			}
		}
		return q.ResponseKind(), nil
	case *kmsg.IncrementalAlterConfigsRequest:
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		for _, res := range q.Resources {
			a := kmsg.NewIncrementalAlterConfigsResponseResource()
			a.ResourceName, a.ResourceType = res.ResourceName, res.ResourceType
			next := maps.Clone(r.configs[res.ResourceName])
			if next == nil {
				next = map[string]string{}
			}
			for _, c := range res.Configs {
				if slices.Contains(r.policy, c.Name) {
					a.ErrorCode = kerr.PolicyViolation.Code
				}
			}
			if a.ErrorCode != 0 {
				resp.Resources = append(resp.Resources, a)
				continue
			}
			for _, c := range res.Configs {
				if c.Value == nil {
					delete(next, c.Name)
				} else {
					next[c.Name] = *c.Value
				}
			}
			r.configs[res.ResourceName] = next
			resp.Resources = append(resp.Resources, a)
		}
		return resp, nil
	}
	return nil, errors.New("not scripted")
}

// asked counts the requests of one kind that the controller got.
func (r *rig) asked(key int16) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.requests {
		if q.Key() == key {
			n++
		}
	}
	return n
}

// refresh looks at the source of mirror m once.
func (r *rig) refresh() (time.Duration, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	return r.ref.refresh(ctx, "m", &r.look)
}

func (r *rig) stateOf(t Topic, partition int32) PartitionState {
	s, _ := r.view.State(t.Mirror, ids.TopicPartition{TopicID: t.TopicID, Partition: partition})
	return s
}

func (r *rig) topicT(name string) Topic {
	r.t.Helper()
	t, ok := r.view.Topic("m", name)
	if !ok {
		r.t.Fatalf("mirror m does not have topic %s", name)
	}
	return t
}

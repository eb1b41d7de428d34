package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
	"github.com/cluster-mirroring/mirror-sidecar/replica/controller"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// side is what a sidecar has of this package, without the data path: its virtual broker
// is registered and alive, but leads nothing and never joins an ISR.
type side struct {
	*Coordinator
	id     int32
	img    *metadata.Image
	store  *Store
	broker *replica.Broker
}

// cable connects the sides of a test in this process, through the messages' bytes.
type cable struct {
	mu    sync.Mutex
	sides map[int32]*side
}

func (w *cable) Request(ctx context.Context, id int32, req kmsg.Request) (kmsg.Response, error) {
	w.mu.Lock()
	s := w.sides[id]
	w.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("%w: no such side", errPeer)
	}
	b, err := s.Handle(ctx, req.Key(), 0, peerClientID+"test", req.AppendTo(nil))
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	return resp, resp.ReadFrom(b)
}

func call[R kmsg.Response](t *testing.T, s *side, req kmsg.Request) R {
	t.Helper()
	b, err := s.Handle(t.Context(), req.Key(), 0, "test", req.AppendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	r, ok := resp.(R)
	if !ok {
		t.Fatalf("answer is %T", resp)
	}
	return r
}

func startSide(t *testing.T, c *harness.Cluster, home int32, w *cable) *side {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil)).With("sidecar", home)
	const virtual = ids.Virtual(10000)
	id := virtual.Of(home)
	ctl, err := controller.New(c.ControllerBootstrap(), nil, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ctl.Close)
	img := metadata.NewImage(virtual)
	obs := metadata.NewObserver(metadata.ObserverConfig{ReplicaID: id, DirectoryID: replica.DirectoryID(c.ID(), id), ClusterID: c.ID()}, img, ctl, log)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := obs.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	select {
	case <-obs.CaughtUp():
	case <-time.After(30 * time.Second):
		t.Fatal("the metadata log is not read")
	}
	reg, _ := img.Broker(home)
	broker, err := replica.NewBroker(replica.BrokerConfig{
		HomeID: home, Virtual: virtual, ClusterID: c.ID(), Lag: obs.Lag, Endpoints: replica.EndpointsLike(reg, "127.0.0.1", 1),
	}, img, ctl, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopWithin(t, broker.Stop) })
	opts := []kgo.Opt{kgo.SeedBrokers(c.Bootstrap(harness.ListenerInternal)...)}
	store, err := NewStore(StoreConfig{Partitions: 4, ReplicationFactor: 3, Virtual: virtual, Self: id, Opts: opts}, img, ctl, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Start(t.Context(), obs.CaughtUp()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopWithin(t, store.Stop) })
	dst, err := NewDestination(home, virtual, img, ctl, opts, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dst.Close)
	co, err := New(Config{
		Self: id, Virtual: virtual, VirtualReplicas: 2, StopReplicaWait: time.Second, RefreshInterval: time.Second, ClusterID: c.ID(),
	}, Deps{Image: img, Store: store, Destination: dst, Source: KafkaSource(config.Providers{}, id), Peers: w, Broker: broker}, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := co.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopWithin(t, co.Stop) })
	rec := NewReconciler(co, log)
	if err := rec.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopWithin(t, rec.Stop) })
	ref := NewRefresher(co, rec, log)
	if err := ref.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopWithin(t, ref.Stop) })
	s := &side{Coordinator: co, id: id, img: img, store: store, broker: broker}
	w.mu.Lock()
	w.sides[id] = s
	w.mu.Unlock()
	return s
}

func stopWithin(t *testing.T, stop func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	if err := stop(ctx); err != nil {
		t.Error(err)
	}
}

func within(t *testing.T, d time.Duration, img *metadata.Image, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	for ctx.Err() == nil {
		step, done := context.WithTimeout(ctx, 100*time.Millisecond)
		err := img.Wait(step, cond) // looks again at least every step: views move too
		done()
		if err == nil {
			return
		}
	}
	t.Fatalf("not within %s: %s", d, what)
}

func message(code int16, msg *string) string {
	if msg == nil {
		return fmt.Sprint(code)
	}
	return fmt.Sprintf("%d %s", code, *msg)
}

// TestRealCluster runs two coordinators on real brokers, through everything that an
// operator can ask for in this step.
func TestRealCluster(t *testing.T) {
	harness.SkipShort(t)
	var src, dst *harness.Cluster
	src = harness.StartT(t, harness.Config{Name: "source", Brokers: 1, FirstID: 7})
	dst = harness.StartT(t, harness.Config{Name: "destination", Brokers: 2, Properties: map[string]string{"default.replication.factor": "2"}})
	w := &cable{sides: map[int32]*side{}}
	a, b := startSide(t, dst, 1, w), startSide(t, dst, 2, w)
	ctx := t.Context()
	srcAdm, dstAdm := kadm.NewClient(src.ClientT(t)), kadm.NewClient(dst.ClientT(t))
	sourceTopic := func(name string, parts int32, configs map[string]*string) {
		if _, err := srcAdm.CreateTopic(ctx, parts, 1, configs, name); err != nil {
			t.Fatal(err)
		}
	}
	sourceTopic("orders", 3, map[string]*string{"retention.ms": ptr("-1"), "max.message.bytes": ptr("2000000"), "cleanup.policy": ptr("compact")})
	sourceTopic("existing", 1, nil)
	sourceTopic("filled", 1, nil)
	sourceTopic("wide", 2, nil)
	for name, parts := range map[string]int32{"existing": 1, "filled": 1, "wide": 1} {
		if _, err := dstAdm.CreateTopic(ctx, parts, 2, map[string]*string{"min.insync.replicas": ptr("2")}, name); err != nil {
			t.Fatal(err)
		}
	}
	producer := dst.ClientT(t, kgo.DefaultProduceTopic("filled"), kgo.RecordDeliveryTimeout(30*time.Second))
	if err := producer.ProduceSync(ctx, kgo.StringRecord("x"), kgo.StringRecord("y")).FirstErr(); err != nil {
		t.Fatal(err)
	}

	create := func(s *side, name, bootstrap string) string {
		req := protocol.NewCreateClusterMirrorRequest()
		req.MirrorName = name
		cfg := protocol.NewMirrorConfig()
		cfg.Name, cfg.Value = "bootstrap.servers", &bootstrap
		req.Configs = append(req.Configs, cfg)
		timeout := protocol.NewMirrorConfig()
		timeout.Name, timeout.Value = "request.timeout.ms", ptr("3000")
		req.Configs = append(req.Configs, timeout)
		r := call[*protocol.CreateClusterMirrorResponse](t, s, &req)
		return message(r.ErrorCode, r.ErrorMessage)
	}
	start := func(s *side, mirror string, topics ...string) map[string]string {
		req := protocol.NewStartMirrorTopicsRequest()
		req.MirrorName, req.Topics = mirror, topics
		r := call[*protocol.StartMirrorTopicsResponse](t, s, &req)
		out := map[string]string{"": message(r.ErrorCode, r.ErrorMessage)}
		for _, x := range r.Topics {
			out[x.Name] = message(x.ErrorCode, x.ErrorMessage)
		}
		return out
	}
	stop := func(s *side, mirror string, topics ...string) map[string]string {
		req := protocol.NewStopMirrorTopicsRequest()
		req.MirrorName, req.Topics = mirror, topics
		r := call[*protocol.StopMirrorTopicsResponse](t, s, &req)
		out := map[string]string{"": message(r.ErrorCode, r.ErrorMessage)}
		for _, x := range r.Topics {
			out[x.Name] = message(x.ErrorCode, x.ErrorMessage)
		}
		return out
	}
	expect := func(what, got, code, words string) {
		t.Helper()
		if got != code && !strings.HasPrefix(got, code+" ") || !strings.Contains(got, words) {
			t.Errorf("%s: got %q, want %s with %q", what, got, code, words)
		}
	}

	// A refused create leaves nothing behind.
	expect("unreachable", create(a, "m", "127.0.0.1:1"), "42", "does not answer")
	expect("itself", create(a, "m", dst.Bootstrap(harness.ListenerInternal)[0]), "42", "this cluster itself")
	expect("name", create(a, "m.stopped", "127.0.0.1:1"), "12835", ".stopped")
	expect("no mirror yet", start(a, "m", "orders")[""], "12837", "no mirror")
	if a.store.Partitions() != 0 {
		t.Fatal("the state topic exists although nothing was created")
	}
	source := src.Bootstrap(harness.ListenerInternal)[0]
	expect("create", create(a, "m", source), "0", "")
	expect("create twice, elsewhere", create(b, "m", source), "12836", "exists")
	expect("second mirror", create(b, "n", source), "0", "")
	for _, p := range a.img.TopicPartitions(must(a.img.Topic(StateTopic))) {
		if len(p.Replicas) != 2 || slices.ContainsFunc(p.Replicas, a.cfg.Virtual.Is) {
			t.Errorf("replicas of the state topic: %v", p.Replicas)
		}
	}

	// Start: what is refused changes nothing.
	got := start(b, "m", "orders", "existing", "filled", "wide", "missing", "__consumer_offsets")
	expect("start", got[""], "0", "")
	expect("orders", got["orders"], "0", "")
	expect("existing", got["existing"], "0", "")
	expect("filled", got["filled"], "42", "2 records")
	expect("wide", got["wide"], "37", "1 partitions here and 2 at the source")
	expect("missing", got["missing"], "3", "does not exist at the source")
	expect("internal", got["__consumer_offsets"], "17", "never mirrored")
	expect("another mirror's", start(a, "n", "orders")["orders"], "12838", "belongs to mirror m")

	// The topic is made with the source's configs and the lock, virtual replicas in front.
	var orders ids.UUID
	within(t, 20*time.Second, a.img, "virtual replicas are assigned", func() bool {
		ok := true
		for _, name := range []string{"orders", "existing"} {
			id, exists := a.img.Topic(name)
			parts := a.img.TopicPartitions(id)
			ok = ok && exists && len(parts) > 0
			for _, p := range parts {
				ok = ok && len(p.Replicas) == 4 && a.cfg.Virtual.Is(p.Replicas[0]) && a.cfg.Virtual.Is(p.Replicas[1])
			}
			if name == "orders" {
				orders = id
			}
		}
		return ok
	})
	cfg := a.img.TopicConfig("orders")
	for k, v := range map[string]string{"max.message.bytes": "0", "min.insync.replicas": "3", "unclean.leader.election.enable": "false", "remote.storage.enable": "false", "retention.ms": "-1", "cleanup.policy": "compact"} {
		if cfg[k] != v {
			t.Errorf("orders: %s=%s, want %s", k, cfg[k], v)
		}
	}
	if v := a.img.TopicConfig("existing")["min.insync.replicas"]; v != "4" {
		t.Errorf("existing: min.insync.replicas=%s, want 2 + 2", v)
	}
	first := map[int32]int{}
	for _, p := range a.img.TopicPartitions(orders) {
		first[p.Replicas[0]]++
	}
	if len(first) != 2 {
		t.Errorf("leadership is not spread: %v", first)
	}
	within(t, 10*time.Second, a.img, "virtual brokers are closed for others again", func() bool {
		for _, s := range []*side{a, b} {
			if reg, ok := a.img.Broker(s.id); !ok || len(reg.CordonedDirs) == 0 {
				return false
			}
		}
		return true
	})
	// Too few in sync is worth another try to a client, so this one has little patience.
	hasty := dst.ClientT(t, kgo.RecordDeliveryTimeout(3*time.Second), kgo.DisableIdempotentWrite())
	if err := hasty.ProduceSync(ctx, &kgo.Record{Topic: "orders", Key: []byte("k"), Value: []byte("x")}).FirstErr(); err == nil {
		t.Error("a locked topic takes a write")
	}

	// State and lineage, written from either side, fenced.
	tp := ids.TopicPartition{TopicID: orders, Partition: 1}
	rec1 := lineage.NewRecord().With(3, lineage.Chain{{Epoch: 3, SourceEpoch: 1, Start: 0}})
	for i, s := range []*side{a, b} {
		epoch := int32(3 + i)
		if err := s.WriteState(ctx, "m", tp, epoch, PartitionState{State: []State{LogTruncation, Mirroring}[i], StateEpoch: -1}); err != nil {
			t.Fatal(err)
		}
		if err := s.WriteLineage(ctx, "m", tp, epoch, rec1); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*side{a, b} {
		if l, err := s.ReadLineage(ctx, "m", tp); err != nil || len(l.Chains[3]) != 1 {
			t.Errorf("lineage: %v %v", l, err)
		}
		if st, err := s.ReadState(ctx, "m", tp); err != nil || st.State != Mirroring || st.LeaderEpoch != 4 || st.StateEpoch != 2 {
			t.Errorf("state: %+v %v", st, err)
		}
		if err := s.WriteState(ctx, "m", tp, 3, PartitionState{State: Failed, StateEpoch: -1}); !errors.Is(err, ErrFencedLeaderEpoch) {
			t.Errorf("an old leader writes: %v", err)
		}
		if err := s.WriteState(ctx, "m", tp, 4, PartitionState{State: Failed, StateEpoch: 1}); !errors.Is(err, ErrFencedStateEpoch) {
			t.Errorf("an old reader writes: %v", err)
		}
		if err := s.WriteState(ctx, "m", tp, 4, PartitionState{State: Stopped, StateEpoch: -1}); !errors.Is(err, ErrTransition) {
			t.Errorf("no such step: %v", err)
		}
		if _, ro := s.ReadOnly(tp); !ro {
			t.Error("a mirror partition is read only")
		}
	}

	// List and describe.
	listReq := protocol.NewListClusterMirrorsRequest()
	list := call[*protocol.ListClusterMirrorsResponse](t, a, &listReq)
	if len(list.Mirrors) != 2 || list.Mirrors[0].TopicCount != 2 || list.Mirrors[0].SourceClusterID != src.ID() {
		t.Errorf("list: %+v", list.Mirrors)
	}
	descReq := protocol.NewDescribeClusterMirrorsRequest()
	desc := call[*protocol.DescribeClusterMirrorsResponse](t, b, &descReq)
	if len(desc.Mirrors) != 2 || len(desc.Mirrors[0].Topics) != 2 || len(desc.Mirrors[0].Topics[1].Partitions) != 3 || State(desc.Mirrors[0].Topics[1].Partitions[1].State) != Mirroring {
		t.Errorf("describe: %+v", desc.Mirrors)
	}

	// Delete is refused while topics run; stop hands back, restores, ends as STOPPED.
	del := func(s *side, name string) string {
		req := protocol.NewDeleteClusterMirrorRequest()
		req.MirrorName = name
		r := call[*protocol.DeleteClusterMirrorResponse](t, s, &req)
		return message(r.ErrorCode, r.ErrorMessage)
	}
	expect("delete", del(b, "m"), "12843", "existing")
	got = stop(a, "m", "orders", "existing", "filled")
	expect("stop", got["orders"], "0", "")
	expect("stop what is not mirrored", got["filled"], "12839", "not in mirror")
	within(t, 20*time.Second, a.img, "orders and existing are stopped", func() bool {
		for _, name := range []string{"orders", "existing"} {
			topic, ok := a.View().Topic("m", name)
			if !ok || !a.stopped(topic) {
				return false
			}
			// A partition that was never led has nothing to stop; its STOPPED is put on record all the
			// same, by way of STOPPING.
			for _, p := range a.img.TopicPartitions(topic.TopicID) {
				if st, _ := a.View().State("m", ids.TopicPartition{TopicID: topic.TopicID, Partition: p.Partition}); st.State != Stopped {
					return false
				}
			}
		}
		return true
	})
	for _, p := range a.img.TopicPartitions(orders) {
		if len(p.Replicas) != 2 {
			t.Errorf("replicas after stop: %v", p.Replicas)
		}
	}
	cfg = a.img.TopicConfig("orders")
	if cfg["max.message.bytes"] != "2000000" || cfg["min.insync.replicas"] != "" || cfg["remote.storage.enable"] != "" {
		t.Errorf("configs after stop: %v", cfg)
	}
	if v := a.img.TopicConfig("existing")["min.insync.replicas"]; v != "2" {
		t.Errorf("existing: min.insync.replicas=%q after stop", v)
	}
	if err := producer.ProduceSync(ctx, &kgo.Record{Topic: "orders", Key: []byte("k"), Value: []byte("x")}).FirstErr(); err != nil {
		t.Errorf("a stopped topic is writable: %v", err)
	}

	// A sidecar that starts now reads all of it; a coordinator that goes is replaced.
	expect("stop again", stop(b, "m", "orders")["orders"], "0", "")
	stopWithin(t, b.broker.Stop)
	within(t, 15*time.Second, a.img, "the other sidecar coordinates everything", func() bool {
		for _, name := range []string{"m", "n", "x", "y", "z"} {
			if who, err := a.Of(name); err != nil || who != a.id {
				return false
			}
		}
		return true
	})
	expect("delete m", del(a, "m"), "0", "")
	expect("delete n", del(a, "n"), "0", "")
	expect("delete again", del(a, "n"), "12837", "no mirror")
	if keys := a.View().partitionKeys("m"); len(keys) != 0 {
		t.Errorf("left after delete: %v", keys)
	}
}

func must[T any](v T, ok bool) T {
	if !ok {
		panic("missing")
	}
	return v
}

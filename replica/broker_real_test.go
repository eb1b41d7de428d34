package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/controller"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// follow is an image of a real cluster's metadata log, and what it takes to have one.
type follow struct {
	img *metadata.Image
	obs *metadata.Observer
	ctl *controller.Client
}

func testLog(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func followCluster(t *testing.T, c *harness.Cluster, id int32) follow {
	t.Helper()
	ctl, err := controller.New(c.ControllerBootstrap(), nil, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	f := follow{img: metadata.NewImage(10000), ctl: ctl}
	f.obs = metadata.NewObserver(metadata.ObserverConfig{ReplicaID: id, DirectoryID: DirectoryID(c.ID(), id), ClusterID: c.ID()}, f.img, ctl, testLog(t))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f.obs.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait(); ctl.Close() })
	select {
	case <-f.obs.CaughtUp():
	case <-time.After(30 * time.Second):
		t.Fatal("the metadata log was not read within 30 s")
	}
	return f
}

func (f follow) broker(t *testing.T, c *harness.Cluster) *Broker {
	t.Helper()
	home, ok := f.img.Broker(homeID)
	if !ok {
		t.Fatal("the home broker is not in the image")
	}
	b, err := NewBroker(BrokerConfig{
		HomeID: homeID, Virtual: 10000, ClusterID: c.ID(), Lag: f.obs.Lag, Endpoints: EndpointsLike(home, "127.0.0.1", 1),
	}, f.img, f.ctl, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		_ = b.Stop(ctx)
	})
	return b
}

// start starts b and returns how long it took until the log showed it unfenced.
func (f follow) start(t *testing.T, b *Broker) time.Duration {
	t.Helper()
	begun := time.Now()
	ctx := within(t, 30*time.Second)
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	f.await(t, "an unfenced and cordoned registration", func() bool {
		r, ok := f.img.Broker(b.ID())
		return ok && r.Epoch == b.Epoch() && !r.Fenced && len(r.CordonedDirs) == 1
	})
	if err := b.await(ctx, func() bool { return !b.ackFenced }); err != nil || !b.Live() {
		t.Fatalf("unfenced in the log but not live: %v", err)
	}
	return time.Since(begun).Round(time.Millisecond)
}

func (f follow) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	if err := f.img.Wait(within(t, 30*time.Second), cond); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

func (f follow) partition(topic string, p int32) *metadata.Partition {
	id, _ := f.img.Topic(topic)
	return f.img.Partition(ids.TopicPartition{TopicID: id, Partition: p})
}

// reassign asks for an assignment; nil replicas cancel one.
func (f follow) reassign(t *testing.T, topic string, replicas []int32) error {
	t.Helper()
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 10_000
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	rp.Replicas = replicas
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := f.ctl.Request(within(t, 30*time.Second), req)
	if err != nil {
		return err
	}
	r := resp.(*kmsg.AlterPartitionAssignmentsResponse)
	return errors.Join(kerr.ErrorForCode(r.ErrorCode), kerr.ErrorForCode(r.Topics[0].Partitions[0].ErrorCode))
}

// activeController asks the controllers which of them is active.
func (f follow) activeController(t *testing.T) int32 {
	t.Helper()
	req := kmsg.NewPtrDescribeQuorumRequest()
	rt := kmsg.NewDescribeQuorumRequestTopic()
	rt.Topic = "__cluster_metadata"
	rt.Partitions = append(rt.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, rt)
	resp, err := f.ctl.Request(within(t, 30*time.Second), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(*kmsg.DescribeQuorumResponse).Topics[0].Partitions[0].LeaderID
}

// One cluster for the whole life of a virtual broker, in its order: three nodes that
// are brokers and controllers, and a metadata log that is cut often.
func TestRealBroker(t *testing.T) {
	t.Parallel()
	c := harness.StartT(t, harness.Config{
		Brokers: 3, Log: testLog(t),
		Format: []string{"--feature", "eligible.leader.replicas.version=1"},
		Properties: map[string]string{
			"metadata.log.max.record.bytes.between.snapshots": "2000",
			"metadata.max.retention.bytes":                    "2048",
		},
	})
	begun := time.Now()
	f := followCluster(t, c, virtualID)
	t.Logf("read the metadata log up to %d in %v", f.img.Offset(), time.Since(begun).Round(time.Millisecond))
	admin := kadm.NewClient(c.ClientT(t))
	ctx := t.Context()

	whole := t // the brokers outlive the steps
	b := f.broker(whole, c)
	if !t.Run("registers, fenced and cordoned, then unfenced", func(t *testing.T) {
		t.Logf("unfenced after %v", f.start(t, b))
		r, _ := f.img.Broker(virtualID)
		home, _ := f.img.Broker(homeID)
		if len(r.Endpoints) != len(home.Endpoints) || r.Endpoints[0].Host != "127.0.0.1" || r.Endpoints[0].Port != 1 {
			t.Errorf("registered listeners %+v", r.Endpoints)
		}
	}) {
		return
	}

	t.Run("no topic lands on it", func(t *testing.T) {
		for i := range 6 {
			if _, err := admin.CreateTopic(ctx, 8, 2, nil, fmt.Sprintf("placed-%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		f.await(t, "48 partitions", func() bool { return len(f.img.AllPartitions()) >= 48 })
		for _, p := range f.img.AllPartitions() {
			if slices.Contains(p.Replicas, virtualID) {
				t.Errorf("%s-%d: replicas %v", p.Topic, p.Partition, p.Replicas)
			}
		}
	})

	t.Run("restarts at once", func(t *testing.T) {
		// As after kill -9: the old one neither stops nor is stopped by its session.
		old := b
		b = f.broker(whole, c)
		took := f.start(t, b)
		t.Logf("unfenced after %v", took)
		if took > 5*time.Second {
			t.Errorf("took %v, as if it had waited for the session of the former one", took)
		}
		select {
		case err := <-old.Failed():
			if !errors.Is(err, ErrUnregistered) {
				t.Errorf("the former one failed with %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the former one goes on")
		}
	})

	t.Run("stops fenced, and restarts", func(t *testing.T) {
		begun := time.Now()
		if err := b.Stop(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		t.Logf("stopped after %v", time.Since(begun).Round(time.Millisecond))
		if b.Live() {
			t.Error("live after the stop")
		}
		f.await(t, "the fence", func() bool { r, _ := f.img.Broker(virtualID); return r.Fenced })
		b = f.broker(whole, c)
		t.Logf("unfenced after %v", f.start(t, b))
	})

	t.Run("assignments need an un-cordon window", func(t *testing.T) {
		if _, err := admin.CreateTopic(ctx, 1, 2, nil, "mirror"); err != nil {
			t.Fatal(err)
		}
		f.await(t, "the topic", func() bool { return f.partition("mirror", 0) != nil })
		want := append([]int32{virtualID}, 1, 2)
		if err := f.reassign(t, "mirror", want); !errors.Is(err, kerr.InvalidReplicaAssignment) {
			t.Fatalf("assigned while cordoned: %v", err)
		}
		begun := time.Now()
		release, err := b.Uncordon(within(t, 10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("un-cordoned after %v", time.Since(begun).Round(time.Millisecond))
		if err := f.reassign(t, "mirror", want); err != nil {
			t.Fatalf("in the window: %v", err)
		}
		begun = time.Now()
		release()
		t.Logf("cordoned after %v", time.Since(begun).Round(time.Millisecond))
		if r, _ := f.img.Broker(virtualID); len(r.CordonedDirs) != 1 {
			t.Errorf("cordoned directories %v after the window", r.CordonedDirs)
		}
		f.await(t, "the assignment", func() bool { return slices.Contains(f.partition("mirror", 0).Replicas, virtualID) })
		if p := f.partition("mirror", 0); p.Replicas[0] != virtualID || !slices.Contains(p.Adding, virtualID) || p.PartitionEpoch == 0 {
			t.Errorf("partition %+v", *p)
		}
		if err := f.reassign(t, "mirror", nil); err != nil {
			t.Fatal(err)
		}
		f.await(t, "the canceled assignment", func() bool { return !slices.Contains(f.partition("mirror", 0).Replicas, virtualID) })
	})

	t.Run("gives up leadership", func(t *testing.T) {
		begun := time.Now()
		if err := b.GiveUpLeadership(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		t.Logf("fenced and unfenced in %v", time.Since(begun).Round(time.Millisecond))
	})

	t.Run("configs and features", func(t *testing.T) {
		if l, ok := f.img.FeatureLevel("metadata.version"); !ok || l < 30 {
			t.Errorf("metadata.version %d, %v", l, ok)
		}
		if _, err := admin.CreateTopic(ctx, 1, 3, map[string]*string{"min.insync.replicas": kadm.StringPtr("3"), "retention.ms": kadm.StringPtr("7")}, "elr"); err != nil {
			t.Fatal(err)
		}
		f.await(t, "the configs", func() bool { return f.img.TopicConfig("elr")["retention.ms"] == "7" })
		if _, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "retention.ms"}}, "elr"); err != nil {
			t.Fatal(err)
		}
		f.await(t, "the deletion", func() bool { _, ok := f.img.TopicConfig("elr")["retention.ms"]; return !ok })
	})

	t.Run("the active controller is killed", func(t *testing.T) {
		active := f.activeController(t)
		if err := c.Node(active).Kill(); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		// The other two elect one of them; the ISR of the dead broker's partitions
		// shrinks when its session ends, so the image shows what came after.
		f.await(t, "the dead broker fenced", func() bool { r, _ := f.img.Broker(active); return r.Fenced })
		t.Logf("controller %d killed; the image shows it fenced after %v", active, time.Since(begun).Round(time.Millisecond))
		f.await(t, "an ELR", func() bool { return slices.Contains(f.partition("elr", 0).ELR, active) })
		if now := f.activeController(t); now == active {
			t.Errorf("controller %d is still active", now)
		}
		select {
		case err := <-b.Failed():
			t.Fatalf("lost its registration: %v", err)
		default:
		}
		if !b.Live() || f.obs.Lag() > 2*time.Second {
			t.Errorf("live %v, lag %v", b.Live(), f.obs.Lag())
		}
		if r, _ := f.img.Broker(virtualID); r.Fenced || r.Epoch != b.Epoch() {
			t.Errorf("registration %+v", r)
		}
		// min.insync.replicas changes: the controllers clear the ELR.
		if _, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.insync.replicas", Value: kadm.StringPtr("1")}}, "elr"); err != nil {
			t.Fatal(err)
		}
		f.await(t, "no ELR", func() bool { return len(f.partition("elr", 0).ELR) == 0 })
		if err := c.Node(active).Start(ctx); err != nil {
			t.Fatal(err)
		}
		f.await(t, "the broker back in the ISR", func() bool { return len(f.partition("elr", 0).ISR) == 3 })
	})

	t.Run("the active controller is paused", func(t *testing.T) {
		active := f.activeController(t)
		if err := c.Node(active).Pause(); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		defer func() {
			if err := errors.Join(c.Node(active).Resume(), c.Node(active).WaitReady(ctx)); err != nil {
				t.Error(err)
			}
			f.await(t, "the broker back in the ISR", func() bool { return len(f.partition("elr", 0).ISR) == 3 })
		}()
		b.mu.Lock()
		after := b.ack.n
		b.mu.Unlock()
		if err := b.await(within(t, 20*time.Second), func() bool { return b.ack.n > after+2 }); err != nil {
			t.Fatal(err)
		}
		t.Logf("heartbeats are answered again after %v", time.Since(begun).Round(time.Millisecond))
		if r, _ := f.img.Broker(virtualID); r.Fenced || !b.Live() {
			t.Errorf("lost its session: %+v", r)
		}
		f.await(t, "the paused broker fenced", func() bool { r, _ := f.img.Broker(active); return r.Fenced })
	})

	t.Run("an image from a snapshot is the same", func(t *testing.T) {
		// Another observer, which has to begin with a snapshot once the log's start
		// has moved. Cleaning runs once a minute.
		if _, err := admin.CreateTopic(ctx, 8, 3, nil, "more"); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(100 * time.Second)
		for n := 0; !f.logCut(t); n++ {
			if time.Now().After(deadline) {
				t.Fatal("the start of the metadata log does not move")
			}
			if _, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr(fmt.Sprint(1_000_000 + n))}}, "more", "elr", "mirror", "placed-0"); err != nil {
				t.Fatal(err)
			}
			select {
			case <-time.After(100 * time.Millisecond): // the pace of load, nothing waits for it
			case <-ctx.Done():
				t.Fatal(ctx.Err())
			}
		}
		g := followCluster(t, c, -1)
		f.await(t, "the same offset", func() bool { return f.img.Offset() >= g.img.Offset() })
		all := f.img.AllPartitions()
		if len(all) != len(g.img.AllPartitions()) {
			t.Errorf("%d partitions, from a snapshot %d", len(all), len(g.img.AllPartitions()))
		}
		for _, p := range all {
			q := g.img.Partition(ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition})
			if q == nil {
				t.Errorf("%s-%d is not in the snapshot", p.Topic, p.Partition)
				continue
			}
			x, y := fmt.Sprintf("%+v", *p), fmt.Sprintf("%+v", *q)
			if x != y {
				t.Errorf("partition by the log\n  %s\nby a snapshot\n  %s", x, y)
			}
		}
		for _, r := range f.img.Brokers() {
			q, _ := g.img.Broker(r.ID)
			if x, y := fmt.Sprintf("%+v", r), fmt.Sprintf("%+v", q); x != y {
				t.Errorf("broker by the log\n  %s\nby a snapshot\n  %s", x, y)
			}
		}
		for _, topic := range []string{"more", "elr", "mirror"} {
			if x, y := fmt.Sprint(f.img.TopicConfig(topic)), fmt.Sprint(g.img.TopicConfig(topic)); x != y {
				t.Errorf("configs of %s by the log %s, by a snapshot %s", topic, x, y)
			}
		}
	})

	t.Run("leaves", func(t *testing.T) {
		begun := time.Now()
		if err := b.Leave(within(t, 20*time.Second)); err != nil {
			t.Fatal(err)
		}
		t.Logf("left after %v", time.Since(begun).Round(time.Millisecond))
		f.await(t, "the fence", func() bool { r, _ := f.img.Broker(virtualID); return r.Fenced })
		if err := b.Unregister(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		f.await(t, "no registration", func() bool { _, ok := f.img.Broker(virtualID); return !ok })
	})
}

// logCut tells whether the metadata log does not begin at 0 any more, at the active
// controller.
func (f follow) logCut(t *testing.T) bool {
	t.Helper()
	for epoch := int32(0); ; {
		req := kmsg.NewPtrFetchRequest()
		req.ReplicaID, req.ReplicaState.ID, req.ReplicaState.Epoch = -1, -1, -1
		req.MaxBytes, req.SessionEpoch = 1, -1
		rt := kmsg.NewFetchRequestTopic()
		rt.TopicID = [16]byte{15: 1}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.CurrentLeaderEpoch, rp.PartitionMaxBytes, rp.LastFetchedEpoch = epoch, 1, 0
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := f.ctl.Request(within(t, 30*time.Second), req)
		if err != nil {
			t.Fatal(err)
		}
		p := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if p.ErrorCode != 0 && p.CurrentLeader.LeaderEpoch > epoch {
			epoch = p.CurrentLeader.LeaderEpoch
			continue
		}
		return p.ErrorCode == 0 && p.SnapshotID.EndOffset > 0
	}
}

// Separate controllers, and the oldest line that is supported.
func TestRealBrokerSeparateControllers(t *testing.T) {
	t.Parallel()
	c := harness.StartT(t, harness.Config{
		Brokers: 1, Controllers: 1, Version: harness.Version43, Log: testLog(t), Format: []string{"--release-version", "4.3"},
	})
	f := followCluster(t, c, virtualID)
	b := f.broker(t, c)
	t.Logf("unfenced after %v", f.start(t, b))
	// The one controller restarts; the registration outlives it.
	if err := c.Controllers()[0].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Controllers()[0].Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.TimeoutMillis = 5000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "after", 1, 1
	create.Topics = append(create.Topics, topic)
	resp, err := f.ctl.Request(within(t, 30*time.Second), create)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode); err != nil {
		t.Fatal(err)
	}
	f.await(t, "the new topic", func() bool { return f.partition("after", 0) != nil })
	if !b.Live() {
		t.Error("not live after the controller's restart")
	}
	if err := b.Leave(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
}

// A cluster below 4.3 is refused, and nothing of it is changed.
func TestRealBrokerRefusesOldMetadataVersion(t *testing.T) {
	t.Parallel()
	c := harness.StartT(t, harness.Config{Brokers: 1, Log: testLog(t), Format: []string{"--release-version", "4.2"}})
	f := followCluster(t, c, virtualID)
	offset := f.img.Offset()
	err := f.broker(t, c).Start(within(t, 30*time.Second))
	if !errors.Is(err, ErrClusterTooOld) {
		t.Fatalf("error %v", err)
	}
	t.Log(err)
	if _, ok := f.img.Broker(virtualID); ok || f.img.Offset() < offset {
		t.Error("registered all the same")
	}
}

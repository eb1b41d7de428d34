package evict

import (
	"net"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

const (
	cluster = "cluster"
	virtual = ids.Virtual(10000)
)

func newEviction(parts []*metadata.Partition, brokers ...metadata.Broker) *eviction {
	e := &eviction{cfg: Config{Virtual: virtual}, img: metadata.NewImage(virtual), report: &Report{}}
	e.img.Set(parts, brokers, nil)
	return e
}

// TestRealBrokersAmongVirtualIDs: a wrong mirror.virtual.broker.id.offset would take real brokers for
// virtual ones, and must do nothing.
func TestRealBrokersAmongVirtualIDs(t *testing.T) {
	ours := metadata.Broker{ID: 10001, LogDirs: []ids.UUID{replica.DirectoryID(cluster, 10001)}}
	e := newEviction(nil, metadata.Broker{ID: 1, LogDirs: []ids.UUID{{1}}}, ours)
	if err := e.checkIDs(cluster); err != nil {
		t.Error(err)
	}
	e = newEviction(nil, ours, metadata.Broker{ID: 10007, LogDirs: []ids.UUID{{7}}})
	if err := e.checkIDs(cluster); err == nil || !strings.Contains(err.Error(), "10007") {
		t.Errorf("a real broker among the virtual ids: %v", err)
	}
	// The directory of the same id in another cluster.
	e = newEviction(nil, metadata.Broker{ID: 10001, LogDirs: []ids.UUID{replica.DirectoryID("another", 10001)}})
	if err := e.checkIDs(cluster); err == nil {
		t.Error("a broker with another cluster's directory is taken for a virtual one")
	}
}

// TestOneNeedsOthers: a virtual broker with partitions is not evicted alone where nobody takes them.
func TestOneNeedsOthers(t *testing.T) {
	p := &metadata.Partition{Topic: "t", TopicID: ids.UUID{1}, Replicas: []int32{10001, 1}, ISR: []int32{1}, Leader: 1}
	for _, broker := range []int32{1, 10001} {
		e := newEviction([]*metadata.Partition{p}, metadata.Broker{ID: 1}, metadata.Broker{ID: 10001, Fenced: true}, metadata.Broker{ID: 10002, Fenced: true})
		e.cfg.Broker = &broker
		if err := e.one(t.Context()); err == nil || !strings.Contains(err.Error(), "no other sidecar runs") {
			t.Errorf("broker %d: %v", broker, err)
		}
	}
	e := newEviction([]*metadata.Partition{p}, metadata.Broker{ID: 1}, metadata.Broker{ID: 10001, Fenced: true}, metadata.Broker{ID: 10002})
	one, two, five := int32(1), int32(2), int32(5)
	e.cfg.Broker, e.cfg.DryRun = &one, true
	if err := e.one(t.Context()); err != nil || len(e.report.Brokers) != 1 || e.report.Brokers[0].State != ToUnregister {
		t.Errorf("dry run: %+v, %v", e.report, err)
	}
	e = newEviction(nil, metadata.Broker{ID: 2})
	e.cfg.Broker = &two
	if err := e.one(t.Context()); err != nil || len(e.report.Brokers) != 0 {
		t.Errorf("one that was evicted before: %+v, %v", e.report, err)
	}
	e.cfg.Broker = &five
	if err := e.one(t.Context()); err == nil || !strings.Contains(err.Error(), "neither a virtual broker 10005 nor a broker 5") {
		t.Errorf("one that was never there: %v", err)
	}
}

// TestBrokerZero: node ids may begin with 0.
func TestBrokerZero(t *testing.T) {
	e := newEviction(nil, metadata.Broker{ID: 0}, metadata.Broker{ID: 1}, metadata.Broker{ID: 10000, Fenced: true}, metadata.Broker{ID: 10001, Fenced: true})
	zero := int32(0)
	e.cfg.Broker, e.cfg.DryRun = &zero, true
	if err := e.one(t.Context()); err != nil || len(e.report.Brokers) != 1 || e.report.Brokers[0].ID != 10000 || *e.report.One != 10000 {
		t.Errorf("%+v, %v", e.report, err)
	}
}

// TestFencedAndRunning: a sidecar that runs is not dead, whatever the controllers hold it for.
func TestFencedAndRunning(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := metadata.Endpoint{Host: "127.0.0.1", Port: uint16(ln.Addr().(*net.TCPAddr).Port)}
	fenced := metadata.Broker{ID: 10001, Fenced: true, Endpoints: []metadata.Endpoint{at}}
	e := newEviction(nil, metadata.Broker{ID: 1}, fenced)
	if dead, err := e.awaitDeath(t.Context(), 10001); dead || err != nil {
		t.Errorf("one that runs is dead: %t, %v", dead, err)
	}
	if err := e.awaitFenced(t.Context()); err == nil || !strings.Contains(err.Error(), "10001") {
		t.Errorf("beside a sidecar that runs: %v", err)
	}
	fenced.Fenced = false
	e.img.Set(nil, []metadata.Broker{{ID: 1}, fenced}, nil)
	if err := e.awaitFenced(t.Context()); err != nil {
		t.Errorf("one that is alive does what is asked for: %v", err)
	}
	_ = ln.Close()
	fenced.Fenced = true
	e.img.Set(nil, []metadata.Broker{{ID: 1}, fenced}, nil)
	if dead, err := e.awaitDeath(t.Context(), 10001); !dead || err != nil {
		t.Errorf("one that ended is dead: %t, %v", dead, err)
	}
	if err := e.awaitFenced(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPrint(t *testing.T) {
	evicted := int32(10001)
	for _, tc := range []struct {
		name string
		r    Report
		want string
	}{
		{"nothing", Report{Cluster: "c"}, "cluster c\nthere are no virtual brokers here, and nothing is mirrored: nothing to do\n"},
		{
			"dry run",
			Report{
				Cluster: "c", DryRun: true, Topics: []Topic{{Mirror: "m", Topic: "t", State: ToStop}},
				Partitions: []Partition{{Topic: "o", Partition: 3, Locked: true, State: ToRemove}}, Brokers: []Broker{{ID: 10001, State: ToUnregister}},
			},
			"cluster c\nmirror m, topic t: would be stopped and handed back to real brokers\n" +
				"partition o-3 (of a mirror that is not on record; its min.insync.replicas and max.message.bytes become the cluster's): virtual replicas would be removed\n" +
				"virtual broker 10001: would be unregistered\nnothing was changed\n",
		},
		{
			"left",
			Report{
				Cluster: "c", Topics: []Topic{{Mirror: "m", Topic: "t", State: Stopping}}, Brokers: []Broker{{ID: 10001, State: Registered}},
				Left: []string{"mirror m, topic t: partition 0: bring back broker 2"},
			},
			"cluster c\nmirror m, topic t: being stopped\nvirtual broker 10001: still registered\nleft to do:\n  mirror m, topic t: partition 0: bring back broker 2\n",
		},
		{
			"done",
			Report{Cluster: "c", Brokers: []Broker{{ID: 10001, State: Unregistered}}},
			"cluster c\nvirtual broker 10001: unregistered\nnothing is left: the cluster is as without mirrors\n",
		},
		{
			"one",
			Report{Cluster: "c", One: &evicted, Brokers: []Broker{{ID: 10001, State: Unregistered}}},
			"cluster c\nvirtual broker 10001: unregistered\nnothing is left of virtual broker 10001\n",
		},
	} {
		var out strings.Builder
		tc.r.Print(&out)
		if out.String() != tc.want {
			t.Errorf("%s:\n%s\nwant\n%s", tc.name, out.String(), tc.want)
		}
	}
}

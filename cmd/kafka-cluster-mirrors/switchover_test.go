package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/syncs/offsets"
)

// cluster is as much of a Kafka cluster as a switchover asks about: one topic, one partition.
type cluster struct {
	*fake
	id string

	mu          sync.Mutex
	start       int64
	end, stable int64
	groups      map[string]string // name to state
	committed   map[string]int64
	fenced      time.Duration // the newest lease
	fences      int
	refuse      *string // of a fence
	mirror      func(c *cluster) protocol.DescribedMirror
	stopped     bool
	settled     bool            // no patterns are left
	newcomer    string          // a topic that the mirror finds before the stop
	loading     map[string]bool // groups whose coordinator is not ready when it is asked first
	forbidden   string          // a group whose offsets may not be committed
	looks       int
}

func newCluster(t *testing.T, id string) *cluster {
	c := &cluster{id: id, groups: map[string]string{}, committed: map[string]int64{}}
	c.fake = newFake(t, c.reply)
	return c
}

func (c *cluster) set(f func(c *cluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

func (c *cluster) reply(req kmsg.Request) kmsg.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	host, portText, _ := net.SplitHostPort(c.addr)
	port, _ := strconv.Atoi(portText)
	switch r := req.(type) {
	case *kmsg.MetadataRequest:
		resp := kmsg.NewPtrMetadataResponse()
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = 1, host, int32(port)
		resp.Brokers, resp.ClusterID, resp.ControllerID = append(resp.Brokers, b), &c.id, 1
		top := kmsg.NewMetadataResponseTopic()
		name := "orders"
		top.Topic, top.TopicID = &name, [16]byte{1}
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Leader, p.Replicas, p.ISR = 1, []int32{1}, []int32{1}
		top.Partitions = append(top.Partitions, p)
		resp.Topics = append(resp.Topics, top)
		return resp
	case *kmsg.ListOffsetsRequest:
		resp := kmsg.NewPtrListOffsetsResponse()
		for _, t := range r.Topics {
			rt := kmsg.NewListOffsetsResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewListOffsetsResponseTopicPartition()
				rp.Partition, rp.Offset = p.Partition, c.end
				switch {
				case p.Timestamp == -2:
					rp.Offset = c.start
				case r.IsolationLevel == 1:
					rp.Offset = c.stable
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	case *protocol.FenceTopicWritesRequest:
		resp := protocol.NewFenceTopicWritesResponse()
		c.fenced = time.Duration(r.LeaseMs) * time.Millisecond
		c.fences++
		if c.refuse != nil {
			resp.ErrorCode, resp.ErrorMessage = 7, c.refuse
		}
		return &resp
	case *kmsg.ListGroupsRequest:
		resp := kmsg.NewPtrListGroupsResponse()
		for name, state := range c.groups {
			g := kmsg.NewListGroupsResponseGroup()
			g.Group, g.GroupState, g.GroupType, g.ProtocolType = name, state, "classic", "consumer"
			if name == "shared" {
				g.GroupType = "share"
			}
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	case *kmsg.FindCoordinatorRequest:
		resp := kmsg.NewPtrFindCoordinatorResponse()
		for _, k := range r.CoordinatorKeys {
			rc := kmsg.NewFindCoordinatorResponseCoordinator()
			rc.Key, rc.NodeID, rc.Host, rc.Port = k, 1, host, int32(port)
			resp.Coordinators = append(resp.Coordinators, rc)
		}
		return resp
	case *kmsg.DescribeShareGroupOffsetsRequest:
		resp := kmsg.NewPtrDescribeShareGroupOffsetsResponse()
		for _, g := range r.Groups {
			rg := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
			rg.GroupID = g.GroupID
			if at, ok := c.committed[g.GroupID]; ok {
				rt := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopic()
				rp := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
				rt.Topic, rp.StartOffset = "orders", at
				rt.Partitions = append(rt.Partitions, rp)
				rg.Topics = append(rg.Topics, rt)
			}
			resp.Groups = append(resp.Groups, rg)
		}
		return resp
	case *kmsg.AlterShareGroupOffsetsRequest:
		resp := kmsg.NewPtrAlterShareGroupOffsetsResponse()
		for _, t := range r.Topics {
			rt := kmsg.NewAlterShareGroupOffsetsResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewAlterShareGroupOffsetsResponseTopicPartition()
				rp.Partition = p.Partition
				rt.Partitions = append(rt.Partitions, rp)
				c.committed[r.GroupID] = p.StartOffset
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	case *kmsg.OffsetFetchRequest:
		resp := kmsg.NewPtrOffsetFetchResponse()
		for _, g := range r.Groups {
			rg := kmsg.NewOffsetFetchResponseGroup()
			rg.Group = g.Group
			if c.loading[g.Group] {
				delete(c.loading, g.Group)
				rg.ErrorCode = kerr.CoordinatorLoadInProgress.Code
				resp.Groups = append(resp.Groups, rg)
				continue
			}
			if at, ok := c.committed[g.Group]; ok {
				rt := kmsg.NewOffsetFetchResponseGroupTopic()
				rt.Topic, rt.TopicID = "orders", [16]byte{1}
				rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
				rp.Offset = at
				rt.Partitions = append(rt.Partitions, rp)
				rg.Topics = append(rg.Topics, rt)
			}
			resp.Groups = append(resp.Groups, rg)
		}
		return resp
	case *kmsg.OffsetCommitRequest:
		resp := kmsg.NewPtrOffsetCommitResponse()
		for _, t := range r.Topics {
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetCommitResponseTopicPartition()
				rp.Partition = p.Partition
				if r.Group == c.forbidden {
					rp.ErrorCode = kerr.GroupAuthorizationFailed.Code
				} else {
					c.committed[r.Group] = p.Offset
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	case *protocol.DescribeClusterMirrorsRequest:
		resp := protocol.NewDescribeClusterMirrorsResponse()
		c.looks++
		resp.Mirrors = append(resp.Mirrors, c.mirror(c))
		return &resp
	case *protocol.StopMirrorTopicsRequest:
		resp := protocol.NewStopMirrorTopicsResponse()
		c.stopped = true
		for _, n := range r.Topics {
			resp.Topics = append(resp.Topics, result(n, 0, ""))
		}
		return &resp
	case *kmsg.IncrementalAlterConfigsRequest:
		c.settled = true
		return world(nil)(req)
	case *kmsg.DescribeConfigsRequest:
		resp := world(nil)(req).(*kmsg.DescribeConfigsResponse) //nolint:forcetypeassert // it answers this request
		if c.settled {
			configs := &resp.Resources[0].Configs
			*configs = slices.DeleteFunc(*configs, func(r kmsg.DescribeConfigsResponseResourceConfig) bool { return r.Name == "mirror.topics.include" })
		}
		return resp
	}
	return nil
}

// pair is a source and a destination that has all of it.
func pair(t *testing.T) (src, dst *cluster) {
	src, dst = newCluster(t, "src-id"), newCluster(t, "dst-id")
	src.start, src.end, src.stable = 0, 100, 100
	dst.start, dst.end, dst.stable = 10, 100, 100
	src.groups = map[string]string{"idle": "Empty", "busy": "Stable", "ahead": "Empty", "elsewhere": "Empty", "shared": "Empty"}
	src.committed = map[string]int64{"idle": 42, "busy": 50, "ahead": 7, "shared": 30}
	dst.groups = map[string]string{"busy": "Stable", "idle": "Empty"}
	dst.mirror = func(c *cluster) protocol.DescribedMirror {
		state := coordinator.Mirroring
		if c.stopped {
			state = coordinator.Stopped
		}
		m := mirrorOf("east", topicOf("orders", partition(0, state, 100, c.end)))
		if c.newcomer != "" && c.looks > 2 {
			m.Topics = append(m.Topics, topicOf(c.newcomer, partition(0, coordinator.Mirroring, 7, 3)))
		}
		m.SourceBootstrap = src.addr
		looked := protocol.NewDescribedPolicy()
		looked.Kind, looked.LastRunMs = "groups", 1
		m.Policies = []protocol.DescribedPolicy{looked}
		return m
	}
	return src, dst
}

func switchoverArgs(more ...string) []string {
	return append([]string{"--switchover", "--mirror", "east", "--quiet-period", "10ms"}, more...)
}

func TestSwitchover(t *testing.T) {
	src, dst := pair(t)
	out := runFake(t, dst.fake, switchoverArgs())
	golden(t, "switchover", out+"-- asked at the source\n"+strings.Join(src.requests(), "\n")+"\n")
	if src.fenced != 10*time.Minute {
		t.Errorf("the fence is left for %s", src.fenced)
	}
	// Offsets are kept inside of the log that is here; who is active here is left alone.
	if dst.committed["idle"] != 42 || dst.committed["ahead"] != 10 || dst.committed["shared"] != 30 || len(dst.committed) != 3 {
		t.Errorf("committed %v", dst.committed)
	}

	// Again: nothing is left to do, and nothing is done twice.
	fences, committed := src.fences, len(dst.committed)
	dst.committed["idle"] = 99 // it reads here now
	out = runFake(t, dst.fake, switchoverArgs("--json"))
	golden(t, "switchover-again", out)
	if src.fences != fences || len(dst.committed) != committed || dst.committed["idle"] != 99 {
		t.Error("a second run has changed something")
	}
}

// A group that was deleted here stays deleted, and one whose consumers were here since it was looked
// at goes on from where they have read to.
func TestSwitchoverLeavesWhatWasDeletedOrReadHere(t *testing.T) {
	_, dst := pair(t)
	dst.groups = map[string]string{}
	dst.committed["ahead"] = 60 // which is not listed yet when the plan is made
	plain := dst.mirror
	dst.mirror = func(c *cluster) protocol.DescribedMirror {
		m := plain(c)
		skip := protocol.NewPolicySkip()
		skip.Name, skip.Reason = "idle", "orders-0: "+offsets.DeletedHere+", and stay so"
		m.Policies[0].Skipped = append(m.Policies[0].Skipped, skip)
		return m
	}
	out := runFake(t, dst.fake, switchoverArgs("--topics", "orders"))
	if _, there := dst.committed["idle"]; there || dst.committed["ahead"] != 60 || dst.committed["shared"] != 30 {
		t.Errorf("committed %v", dst.committed)
	}
	for _, want := range []string{offsets.DeletedHere, "60 was committed here meanwhile by another"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not said:\n%s", want, out)
		}
	}
}

// A coordinator of groups that comes up only when it is asked is no reason to call a switchover off.
func TestSwitchoverWaitsForCoordinatorsOfGroups(t *testing.T) {
	_, dst := pair(t)
	dst.groups = map[string]string{} // nobody was asked about any yet
	dst.loading = map[string]bool{"idle": true}
	out := runFake(t, dst.fake, switchoverArgs("--topics", "orders"))
	if _, there := dst.committed["idle"]; !there || !strings.Contains(out, "-- exit 0") || len(dst.loading) > 0 {
		t.Errorf("committed %v:\n%s", dst.committed, out)
	}
}

// Where the mirror does not tell of all that it knows, groups that have nothing here are left to it: they
// may have been deleted.
func TestSwitchoverLeavesToTheStopWhatMayHaveBeenDeleted(t *testing.T) {
	for name, tc := range map[string]struct {
		tells func(m *protocol.DescribedMirror)
		left  []string
	}{
		"it has not looked since its coordinator changed": {func(m *protocol.DescribedMirror) { m.Policies = nil }, []string{"idle", "shared"}},
		"it has only begun to":                            {func(m *protocol.DescribedMirror) { m.Policies[0].LastRunMs = -1 }, []string{"idle", "shared"}},
		"it has failed":                                   {func(m *protocol.DescribedMirror) { m.Policies[0].LastError = text("no source") }, []string{"idle", "shared"}},
		"it tells of so many only": {func(m *protocol.DescribedMirror) {
			for range coordinator.MaxSkips {
				m.Policies[0].Skipped = append(m.Policies[0].Skipped, protocol.NewPolicySkip())
			}
		}, []string{"idle", "shared"}},
		"it tells of something else": {func(m *protocol.DescribedMirror) {
			skip := protocol.NewPolicySkip()
			skip.Name, skip.Reason = "idle", "its offsets here: not authorized"
			m.Policies[0].Skipped = append(m.Policies[0].Skipped, skip)
		}, []string{"idle"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, dst := pair(t)
			dst.groups["ahead"], dst.committed["ahead"] = "Empty", 3
			plain := dst.mirror
			dst.mirror = func(c *cluster) protocol.DescribedMirror {
				m := plain(c)
				tc.tells(&m)
				return m
			}
			out := runFake(t, dst.fake, switchoverArgs("--topics", "orders"))
			for _, group := range []string{"idle", "shared"} {
				if _, moved := dst.committed[group]; moved == slices.Contains(tc.left, group) {
					t.Errorf("group %s is moved: %t", group, moved)
				}
			}
			if dst.committed["ahead"] != 10 || !dst.stopped || !strings.Contains(out, "left to the mirror") {
				t.Errorf("committed %v, stopped: %t:\n%s", dst.committed, dst.stopped, out)
			}
		})
	}
}

// What the mirror finds while the source drains was not waited for: it is neither stopped nor
// passed over in silence.
func TestSwitchoverNewcomer(t *testing.T) {
	_, dst := pair(t)
	dst.newcomer = "payments"
	golden(t, "switchover-newcomer", runFake(t, dst.fake, switchoverArgs("--skip-groups")))
	if !dst.settled {
		t.Error("the mirror goes on to look for topics")
	}

	_, dst = pair(t)
	dst.newcomer = "payments"
	var out, errs bytes.Buffer
	code := run(t.Context(), append([]string{"--bootstrap-server", dst.addr}, switchoverArgs("--json")...), &out, &errs)
	var r switchoverReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || code != 1 || r.Done || !slices.Equal(r.Found, []string{"payments"}) {
		t.Errorf("exit %d, %v: %s", code, err, out.String())
	}
}

// Topics that were picked leave the mirror's patterns, and its other topics, alone.
func TestSwitchoverOfSomeTopics(t *testing.T) {
	_, dst := pair(t)
	dst.newcomer = "payments"
	out := runFake(t, dst.fake, switchoverArgs("--skip-groups", "--topics", "orders"))
	if dst.settled || !strings.Contains(out, "-- exit 0") || strings.Contains(out, "payments") {
		t.Error(out)
	}
}

// Offsets that were committed stay so when the switchover is called off, which is said.
func TestSwitchoverUndoneAfterGroups(t *testing.T) {
	for _, plain := range []bool{false, true} {
		src, dst := pair(t)
		src.plain, dst.forbidden = plain, "idle"
		out := runFake(t, dst.fake, switchoverArgs())
		want := "offsets were committed here for 3 groups: ahead, idle, shared; nothing else was changed"
		if !plain {
			want += ", and writes at the source are allowed again"
		}
		if !strings.Contains(out, want) || strings.Contains(out, "nothing was changed") || !strings.Contains(out, "-- exit 1") {
			t.Errorf("without %q:\n%s", want, out)
		}
		if dst.stopped || dst.committed["ahead"] != 10 {
			t.Errorf("stopped: %t, committed: %v", dst.stopped, dst.committed)
		}
	}
}

func TestSwitchoverDryRun(t *testing.T) {
	src, dst := pair(t)
	src.stable = 90
	out := runFake(t, dst.fake, switchoverArgs("--dry-run"))
	golden(t, "switchover-dry", strings.ReplaceAll(out, src.addr, "SOURCE"))
	if src.fences != 0 || len(dst.committed) != 0 || dst.stopped {
		t.Error("a dry run has changed something")
	}
}

func TestSwitchoverWithoutSidecarsAtTheSource(t *testing.T) {
	src, dst := pair(t)
	src.plain = true
	golden(t, "switchover-plain", runFake(t, dst.fake, switchoverArgs("--skip-groups")))
	if src.fences != 0 || len(dst.committed) != 0 {
		t.Errorf("%d fences, %v", src.fences, dst.committed)
	}
}

// What is not here yet is waited for: records, and transactions that are open.
func TestSwitchoverDrains(t *testing.T) {
	src, dst := pair(t)
	src.stable, dst.end = 90, 80
	inner := dst.mirror
	dst.mirror = func(c *cluster) protocol.DescribedMirror {
		switch {
		case c.looks == 3:
			c.end = 100
		case c.looks == 5:
			src.set(func(s *cluster) { s.end, s.stable = 101, 101 }) // the marker
		case c.looks >= 6:
			c.end = 101
		}
		return inner(c)
	}
	out := runFake(t, dst.fake, switchoverArgs())
	for _, want := range []string{"lag 20 in orders-0; transactions are open at the source in orders-0 (from offset 90)", "lag 1 in orders-0", "-- exit 0"} {
		if !strings.Contains(out, want) {
			t.Errorf("without %q:\n%s", want, out)
		}
	}
}

// What goes wrong before the stop leaves everything as it was.
func TestSwitchoverGivesUp(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(src, dst *cluster)
		args    []string
		want    []string
		fences  int // the last of them lifts
	}{
		"lag until the timeout": {
			func(_, dst *cluster) { dst.end = 60 },
			[]string{"--timeout", "1s"},
			[]string{"lag 40 in orders-0", "nothing was changed, and writes at the source are allowed again", "exit 3"},
			2,
		},
		"a partition fails": {
			func(_, dst *cluster) {
				inner := dst.mirror
				dst.mirror = func(c *cluster) protocol.DescribedMirror {
					m := inner(c)
					if c.looks > 1 {
						m.Topics[0].Partitions[0].State, m.Topics[0].Partitions[0].ErrorMessage = int8(coordinator.Failed), text("gone")
					}
					return m
				}
			}, nil, []string{"orders-0 is FAILED: gone", "allowed again", "exit 1"}, 2,
		},
		"not mirroring": {
			func(_, dst *cluster) {
				dst.mirror = func(*cluster) protocol.DescribedMirror {
					return mirrorOf("east", topicOf("orders", partition(0, coordinator.Paused, 1, 1)))
				}
			}, nil, []string{"orders-0 is PAUSED", "nothing was changed", "exit 1"}, 0,
		},
		"another cluster at the address": {
			func(src, _ *cluster) { src.id = "other" }, nil, []string{"cluster other", "src-id", "nothing was changed", "exit 1"}, 0,
		},
		"no such topic": {func(_, _ *cluster) {}, []string{"--topics", "payments"}, []string{"topic payments is not in the mirror", "exit 1"}, 0},
		"the fence is refused": {
			func(src, _ *cluster) { src.refuse = text("sidecar 2 still lets writes through") }, nil,
			[]string{"sidecar 2 still lets", "nothing was changed", "exit 1"},
			2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, dst := pair(t)
			tc.prepare(src, dst)
			out := runFake(t, dst.fake, switchoverArgs(tc.args...))
			for _, want := range tc.want {
				if !strings.Contains(out, want) {
					t.Errorf("without %q:\n%s", want, out)
				}
			}
			if dst.stopped || len(dst.committed) != 0 {
				t.Error("something was changed")
			}
			if src.fences != tc.fences || src.fences > 0 && src.fenced != 0 {
				t.Errorf("%d fences, the last for %s", src.fences, src.fenced)
			}
		})
	}
}

// Ctrl-C while the source drains lets writers go on.
func TestSwitchoverInterrupted(t *testing.T) {
	src, dst := pair(t)
	dst.end = 60
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	mirror, looks := dst.mirror, 0
	dst.mirror = func(c *cluster) protocol.DescribedMirror {
		src.set(func(src *cluster) {
			if src.fences > 0 {
				looks++
			}
		})
		if looks == 2 { // it waits for the rest
			cancel()
		}
		return mirror(c)
	}
	var out, errs bytes.Buffer
	code := run(ctx, append([]string{"--bootstrap-server", dst.addr}, switchoverArgs("--json")...), &out, &errs)
	if code != exitInterrupted || src.fenced != 0 || src.fences < 2 || !strings.Contains(errs.String(), "allowed again") {
		t.Errorf("exit %d, %d fences, the last for %s: %s", code, src.fences, src.fenced, errs.String())
	}
	var r switchoverReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Done || !slices.Equal(r.Topics, []string{"orders"}) {
		t.Errorf("%v: %s", err, out.String())
	}
}

// A fence is prolonged while it is needed, and one that ran out meanwhile is noticed.
func TestFence(t *testing.T) {
	src := newCluster(t, "src-id")
	cl, err := dial([]string{src.addr}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	f := newFence(cl, []string{"orders"}, time.Second)
	if err := f.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for prolonged := false; !prolonged; time.Sleep(10 * time.Millisecond) {
		src.set(func(c *cluster) { prolonged = c.fences >= 3 })
		if time.Now().After(deadline) {
			t.Fatal("it is not prolonged")
		}
	}
	f.end()
	f.gap = false // a slow machine may have made one
	if err := f.held(t.Context()); err != nil {
		t.Error(err)
	}
	f.until = time.Now().Add(-time.Second)
	if err := f.held(t.Context()); err == nil || !strings.Contains(err.Error(), "ran out") {
		t.Errorf("a gap gives %v", err)
	}
}

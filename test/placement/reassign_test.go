package placement

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// TestPlacement: what lands on virtual brokers while they are open, also before there is a
// mirror; then the real replicas of mirror topics are moved as an operator of ordinary topics
// would, while the source is written to.
func TestPlacement(t *testing.T) {
	e := start(t, func(c *stack.Config) {
		c.Kafka.Properties["auto.create.topics.enable"] = "true"
		c.Kafka.Properties["offsets.topic.num.partitions"] = "4"
		c.Kafka.Properties["transaction.state.log.num.partitions"] = "4"
	})
	t.Run("window", func(t *testing.T) { window(t, e) })
	for _, c := range []struct {
		name string
		run  func(t *testing.T, e *env, topic string)
	}{
		{"through", through},
		{"around", around},
		{"cancelled", cancelled},
		{"tool", tool},
		{"elections", elections},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.mirrorTopic(t, c.name, 2)
			end := sync.OnceFunc(e.writing(t, c.name, 2))
			defer end()
			c.run(t, e, c.name)
			end()
			e.same(t, c.name)
		})
	}
}

// through moves replicas through the proxies, changes their number, and mixes in an ordinary
// topic.
func through(t *testing.T, e *env, topic string) {
	const ordinary = "ordinary"
	createTopic(t, e.direct, 1, 1, ordinary)
	mustReassign(t, e.proxied, topic, map[int32][]int32{0: {1, 2}, 1: {2, 3}})
	e.assigned(t, topic, 0, 1, 2)
	e.assigned(t, topic, 1, 2, 3)
	mustReassign(t, e.proxied, topic, map[int32][]int32{0: {3, 1}, 1: {1, 3, 2}})
	e.assigned(t, topic, 0, 3, 1)
	e.assigned(t, topic, 1, 1, 3, 2)
	mustReassign(t, e.proxied, topic, map[int32][]int32{1: {2}})
	e.assigned(t, topic, 1, 2)

	// kadm, and both kinds in one request.
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, 1, []int32{1, 2})
	req.Assign(ordinary, 0, []int32{2, 3})
	req.Assign(ordinary, 7, []int32{1})
	got, err := kadm.NewClient(e.proxied).AlterPartitionAssignments(t.Context(), req)
	if err != nil || len(got) != 2 || got[topic][1].Err != nil || got[ordinary][0].Err != nil || !errors.Is(got[ordinary][7].Err, kerr.UnknownTopicOrPartition) {
		t.Fatalf("%+v, %v", got, err)
	}
	e.assigned(t, topic, 1, 1, 2)
	e.moved(t, ordinary, 2, 3)
	for p, replicas := range map[int32][]int32{0: {}, 1: {7}} {
		if errs, err := reassign(t.Context(), e.proxied, topic, map[int32][]int32{p: replicas}); err != nil || !errors.Is(errs[p], kerr.InvalidReplicaAssignment) {
			t.Errorf("replicas %v: %v, %v", replicas, errs, err)
		}
	}
	e.assigned(t, topic, 0, 3, 1)
}

// moved returns when an ordinary topic's partition 0 has these replicas, and the proxies show it.
func (e *env) moved(t *testing.T, topic string, want ...int32) {
	t.Helper()
	eventually(t, topic+" moves", func(ctx context.Context) error {
		for _, cl := range []*kgo.Client{e.direct, e.proxied} {
			all, err := partitions(ctx, cl, topic)
			if err == nil && !slices.Equal(all[0].Replicas, want) {
				err = fmt.Errorf("replicas %v", all[0].Replicas)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// around asks a broker itself, of whose list no virtual replica is part: they are taken away,
// and put back in front of the new ones.
func around(t *testing.T, e *env, topic string) {
	at := e.direct.Broker(1)
	mustReassign(t, at, topic, map[int32][]int32{0: {2, 3}, 1: {3}})
	e.assigned(t, topic, 0, 2, 3)
	e.assigned(t, topic, 1, 3)
	mustReassign(t, at, topic, map[int32][]int32{0: {1, 3, 2}, 1: {1, 2}})
	e.assigned(t, topic, 0, 1, 3, 2)
	e.assigned(t, topic, 1, 1, 2)
}

// cancelled gives up reassignments that a throttle keeps from getting on.
func cancelled(t *testing.T, e *env, topic string) {
	at := e.direct.Broker(1)
	mustReassign(t, e.proxied, topic, map[int32][]int32{0: {1, 2}, 1: {2, 1}})
	e.assigned(t, topic, 0, 1, 2)
	e.assigned(t, topic, 1, 2, 1)
	for _, c := range []struct {
		name        string
		ask, cancel interface {
			Request(context.Context, kmsg.Request) (kmsg.Response, error)
		}
	}{
		{"through", e.proxied, e.proxied},
		{"around", at, at},
	} {
		release := e.throttle(t, topic)
		t.Cleanup(release)
		mustReassign(t, c.ask, topic, map[int32][]int32{0: {2, 3}})
		eventually(t, c.name+": it is pending, and told so", func(ctx context.Context) error {
			got, err := pending(ctx, e.proxied, topic)
			if err != nil {
				return err
			}
			if r := got[0]; len(got) != 1 || !slices.Equal(r.AddingReplicas, []int32{3}) || slices.ContainsFunc(r.Replicas, isVirtual) || slices.ContainsFunc(r.RemovingReplicas, isVirtual) {
				return fmt.Errorf("%+v", got)
			}
			// What was asked for around the proxies is repaired before it is cancelled.
			if got, err = pending(ctx, e.direct, topic); err == nil && (len(got) != 1 || slices.ContainsFunc(got[0].RemovingReplicas, isVirtual)) {
				err = fmt.Errorf("%+v", got)
			}
			return err
		})
		lost := false
		eventually(t, c.name+": cancelled", func(ctx context.Context) error {
			errs, err := reassign(ctx, c.cancel, topic, map[int32][]int32{0: nil})
			if err == nil {
				err = errs[0]
			}
			if lost && errors.Is(err, kerr.NoReassignmentInProgress) {
				return nil
			}
			lost = err != nil // it may have been carried out all the same
			return err
		})
		e.assigned(t, topic, 0, 2, 1) // what goes on was behind what was to come
		mustReassign(t, e.proxied, topic, map[int32][]int32{0: {1, 2}})
		e.assigned(t, topic, 0, 1, 2)
		if errs, err := reassign(t.Context(), e.proxied, topic, map[int32][]int32{0: nil}); err != nil || !errors.Is(errs[0], kerr.NoReassignmentInProgress) {
			t.Errorf("%s: cancelled again: %v, %v", c.name, errs, err)
		}
		release()
	}
}

// tool does it with kafka-reassign-partitions, which finds out by itself what there is.
func tool(t *testing.T, e *env, topic string) {
	const beside = "beside"
	createTopic(t, e.direct, 1, 1, beside)
	mustReassign(t, e.proxied, topic, map[int32][]int32{0: {1, 2}, 1: {2, 1}})
	e.assigned(t, topic, 0, 1, 2)
	e.assigned(t, topic, 1, 2, 1)
	plan := e.plan(t, fmt.Sprintf(`{"version":1,"partitions":[
		{"topic":%[1]q,"partition":0,"replicas":[3,1]},{"topic":%[1]q,"partition":1,"replicas":[1,2,3]},{"topic":%[2]q,"partition":0,"replicas":[3,2]}]}`, topic, beside))
	out := e.reassignTool(t, e.dst.Proxies(), plan, "--execute")
	if !strings.Contains(out, "Successfully started partition reassignments") || strings.Contains(out, "1000") {
		t.Errorf("--execute: %s", out)
	}
	e.assigned(t, topic, 0, 3, 1)
	e.assigned(t, topic, 1, 1, 2, 3)
	e.moved(t, beside, 3, 2)
	out = e.reassignTool(t, e.dst.Proxies(), plan, "--verify")
	for _, p := range []string{topic + "-0", topic + "-1", beside + "-0"} {
		if !strings.Contains(out, "Reassignment of partition "+p+" is completed.") {
			t.Errorf("--verify: %s", out)
		}
	}
	if !harness.Full() {
		return
	}
	// Around the proxies it takes the virtual replicas away; they come back.
	plan = e.plan(t, fmt.Sprintf(`{"version":1,"partitions":[{"topic":%[1]q,"partition":0,"replicas":[1,2]},{"topic":%[1]q,"partition":1,"replicas":[3,2]}]}`, topic))
	e.reassignTool(t, e.dst.Direct(), plan, "--execute")
	e.assigned(t, topic, 0, 1, 2)
	e.assigned(t, topic, 1, 3, 2)
	if out = e.reassignTool(t, e.dst.Proxies(), plan, "--verify"); strings.Count(out, "is completed.") != 2 {
		t.Errorf("--verify: %s", out)
	}
	release := e.throttle(t, topic)
	defer release()
	plan = e.plan(t, fmt.Sprintf(`{"version":1,"partitions":[{"topic":%q,"partition":0,"replicas":[2,3]}]}`, topic))
	e.reassignTool(t, e.dst.Proxies(), plan, "--execute")
	if out = e.reassignTool(t, e.dst.Proxies(), plan, "--verify"); !strings.Contains(out, "Reassignment of partition "+topic+"-0 is still in progress.") {
		t.Errorf("--verify while it is pending: %s", out)
	}
	if out = e.reassignTool(t, e.dst.Proxies(), plan, "--list"); !strings.Contains(out, topic+"-0: replicas: 2,3,1. adding: 3. removing: 1.") {
		t.Errorf("--list: %s", out)
	}
	e.reassignTool(t, e.dst.Proxies(), plan, "--cancel")
	e.assigned(t, topic, 0, 2, 1)
}

// elections asks for the preferred leaders, which are virtual ones, at both sides.
func elections(t *testing.T, e *env, topic string) {
	before := e.partitions(t, e.direct, topic)
	for i, p := range before {
		e.assigned(t, topic, int32(i), real(p.Replicas)...) // who is to be elected must be in sync
	}
	for _, cl := range []*kgo.Client{e.proxied, e.direct} {
		var s kadm.TopicsSet
		s.Add(topic, 0, 1)
		got, err := kadm.NewClient(cl).ElectLeaders(t.Context(), kadm.ElectPreferredReplica, s)
		if err != nil {
			t.Fatal(err)
		}
		for p, r := range got[topic] {
			if r.Err != nil && !errors.Is(r.Err, kerr.ElectionNotNeeded) {
				t.Errorf("partition %d: %v", p, r.Err)
			}
		}
	}
	for i, p := range before {
		e.assigned(t, topic, int32(i), real(p.Replicas)...)
	}
}

func (e *env) plan(t *testing.T, json string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, []byte(json), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (e *env) reassignTool(t *testing.T, bootstrap []string, plan, what string) string {
	t.Helper()
	in := e.dst.Cluster.Installation()
	class, err := in.FindClass("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "kafka.admin.ReassignPartitionsCommand")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--bootstrap-server", strings.Join(bootstrap, ","), what}
	switch what {
	case "--list":
	case "--verify", "--cancel": // without it they take throttles away that are not theirs
		args = append(args, "--preserve-throttles", "--reassignment-json-file", plan)
	default:
		args = append(args, "--reassignment-json-file", plan)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := in.Tool(ctx, harness.ToolRun{Class: class, Args: args})
	if err != nil {
		t.Fatalf("%s: %v\n%s", what, err, res.Stdout)
	}
	return res.Stdout
}

// throttle keeps broker 3 from copying all of partition 0 of a topic, which it has to copy anew,
// until the returned function is called. A quota holds back what comes after it is exceeded:
// there must be more than one Fetch gets.
func (e *env) throttle(t *testing.T, topic string) (release func()) {
	t.Helper()
	const throttled = "follower.replication.throttled.replicas"
	var large []*kgo.Record
	for range 40 {
		value := make([]byte, 100<<10)
		_, _ = rand.Read(value) // or it would be compressed
		large = append(large, &kgo.Record{Topic: topic, Value: value})
	}
	if err := e.writer.ProduceSync(t.Context(), large...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	e.arrived(t, topic, large[len(large)-1].Offset) // or broker 3 is in sync before they come
	adm := kadm.NewClient(e.direct)
	alter := func(op kadm.IncrementalOp) error {
		brokers, err := adm.AlterBrokerConfigs(context.WithoutCancel(t.Context()), []kadm.AlterConfig{{Op: op, Name: "follower.replication.throttled.rate", Value: kadm.StringPtr("1")}}, 3)
		if err == nil {
			err = brokers[0].Err
		}
		if err != nil {
			return err
		}
		topics, err := adm.AlterTopicConfigs(context.WithoutCancel(t.Context()), []kadm.AlterConfig{{Op: op, Name: throttled, Value: kadm.StringPtr("*")}}, topic)
		if err == nil {
			err = topics[0].Err
		}
		return err
	}
	if err := alter(kadm.SetConfig); err != nil {
		t.Fatal(err)
	}
	// Of what it hears of at once a broker carries out assignments first: it would have begun to copy,
	// and be done with it, before it is throttled.
	eventually(t, "broker 3 has heard of the throttle", func(ctx context.Context) error {
		req := kmsg.NewPtrDescribeConfigsRequest()
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{throttled}
		req.Resources = append(req.Resources, r)
		resp, err := e.direct.Broker(3).Request(ctx, req)
		if err != nil {
			return err
		}
		for _, r := range resp.(*kmsg.DescribeConfigsResponse).Resources {
			if i := slices.IndexFunc(r.Configs, func(c kmsg.DescribeConfigsResponseResourceConfig) bool {
				return c.Name == throttled && text(c.Value) == "*"
			}); i >= 0 {
				return nil
			}
		}
		return errors.New("not yet")
	})
	return sync.OnceFunc(func() {
		if err := alter(kadm.DeleteConfig); err != nil {
			t.Error(err)
		}
	})
}

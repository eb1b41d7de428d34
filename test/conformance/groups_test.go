package conformance

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// policiesGroups has groups of every type at the source: those that match are copied to where this
// cluster has records, those with members here and those of Kafka Streams are left alone and named.
func policiesGroups(t *testing.T, e *env) {
	m := e.mirrored(t, "c9-4", 1, 20)
	src := kadm.NewClient(e.srcClient)
	commit := func(group string, at int64) {
		t.Helper()
		o := kadm.Offsets{}
		o.Add(kadm.Offset{Topic: m, Partition: 0, At: at, LeaderEpoch: -1})
		if err := src.CommitAllOffsets(t.Context(), group, o); err != nil {
			t.Fatalf("commit for group %s: %v", group, err)
		}
	}
	busy, err := kgo.NewClient(kgo.SeedBrokers(e.dst.Proxies()...), kgo.ConsumerGroup(m+".busy"), kgo.ConsumeTopics(m), kgo.DisableAutoCommit(), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	eventually(t, "a group has members here", func(ctx context.Context) error {
		g, err := e.dstAdmin.DescribeGroups(ctx, m+".busy")
		if err == nil && g[m+".busy"].State != "Stable" {
			err = fmt.Errorf("it is %s", g[m+".busy"].State)
		}
		return err
	})
	commit(m+".plain", 7)
	commit(m+".ahead", 999)
	commit(m+".busy", 5)
	groups := map[string]int64{m + ".plain": 7, m + ".ahead": 20, m + ".busy": -1}
	modern := e.pair.source != "3.9"
	if modern {
		join848(t, e.srcClient, m+".next", m)
		commit(m+".next", 9)
		groups[m+".next"] = 9
		shareFrom(t, e.srcClient, m+".share", m, 11)
		joinStreams(t, e.src, m+".streams", m)
	}
	eventually(t, "groups are copied", func(ctx context.Context) error {
		for g, want := range groups {
			got, err := e.dstAdmin.FetchOffsets(ctx, g)
			if err != nil {
				return err
			}
			at := int64(-1)
			if o, ok := got.Lookup(m, 0); ok {
				at = o.At
			}
			if at != want {
				return fmt.Errorf("group %s stands at %d, want %d", g, at, want)
			}
		}
		if modern {
			return shareStands(ctx, e.dstClient, m+".share", m, 11)
		}
		return nil
	})
	why := map[string]string{m + ".busy": "active here: Stable", m + ".plain": `included by the pattern ".*"`}
	if modern {
		why[m+".streams"] = "streams groups are not copied"
	}
	for g, words := range why {
		eventually(t, "why group "+g+" is copied or not", func(context.Context) error {
			if out := e.cli(t, "--explain", "--mirror", m, "--group", g); !strings.Contains(out, words) {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
	}
	eventually(t, "describe names who was skipped", func(context.Context) error {
		for _, p := range e.describe(t, m).Policies {
			for _, s := range p.Skipped {
				if p.Kind == "groups" && s.Name == m+".busy" && strings.Contains(s.Reason, "active here") {
					return nil
				}
			}
		}
		return fmt.Errorf("%+v", e.describe(t, m).Policies)
	})
	e.deletedGroup(t, m, m+".plain", commit)
}

// deletedGroup deletes a group here, which goes on at the source: it stays deleted, in later rounds
// too, and it is said why.
func (e *env) deletedGroup(t *testing.T, m, group string, commit func(group string, at int64)) {
	t.Helper()
	if r, err := e.dstAdmin.DeleteGroup(t.Context(), group); err != nil || r.Err != nil {
		t.Fatalf("delete group %s: %v %v", group, err, r.Err)
	}
	commit(group, 8)
	eventually(t, "why a group that was deleted here is not copied", func(context.Context) error {
		if out := e.cli(t, "--explain", "--mirror", m, "--group", group); !strings.Contains(out, "its offsets were deleted here") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	stands := func(group string) (int64, error) {
		got, err := e.dstAdmin.FetchOffsets(t.Context(), group)
		if o, ok := got.Lookup(m, 0); ok {
			return o.At, err
		}
		return -1, err
	}
	commit(m+".later", 4)
	eventually(t, "another group is copied", func(context.Context) error {
		at, err := stands(m + ".later")
		if err == nil && at != 4 {
			err = fmt.Errorf("it stands at %d", at)
		}
		return err
	})
	if at, err := stands(group); err != nil || at >= 0 {
		t.Errorf("the group that was deleted here stands at %d again (%v)", at, err)
	}
}

// join848 makes a group of the consumer protocol, and leaves it empty.
func join848(t *testing.T, cl *kgo.Client, group, topic string) {
	t.Helper()
	id := memberID(t)
	beat := func(epoch int32) {
		t.Helper()
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch = group, id, epoch
		if epoch == 0 {
			req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 30000, []string{topic}
			req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		}
		resp, err := req.RequestWith(t.Context(), cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			t.Fatalf("group %s: %v", group, err)
		}
	}
	beat(0)
	beat(-1)
}

// joinStreams makes a group of Kafka Streams with one member.
func joinStreams(t *testing.T, c *harness.Cluster, group, topic string) {
	t.Helper()
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(88, 0) // a client for consumers does not know it, nor who coordinates
	cl := newClient(t, c.Bootstrap(harness.ListenerInternal), kgo.MaxVersions(versions))
	process := group
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Group, req.MemberID, req.RebalanceTimeoutMillis, req.ProcessID = group, memberID(t), 30000, &process
	sub := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
	sub.SubtopologyID, sub.SourceTopics = "0", []string{topic}
	topology := kmsg.NewStreamsGroupHeartbeatRequestTopology()
	topology.Subtopologies = append(topology.Subtopologies, sub)
	req.Topology = &topology
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	req.ClientTags = []kmsg.StreamsGroupHeartbeatRequestClientTag{}
	resp, err := req.RequestWith(t.Context(), cl.Broker(int(c.Brokers()[0].ID())))
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		t.Fatalf("group %s: %v", group, err)
	}
}

// shareFrom makes a share group that begins to read at an offset.
func shareFrom(t *testing.T, cl *kgo.Client, group, topic string, at int64) {
	t.Helper()
	p := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
	p.StartOffset = at
	rt := kmsg.NewAlterShareGroupOffsetsRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, p)
	req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	req.GroupID, req.Topics = group, append(req.Topics, rt)
	resp, err := req.RequestWith(t.Context(), cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		t.Fatalf("share group %s: %v", group, err)
	}
}

func shareStands(ctx context.Context, cl *kgo.Client, group, topic string, want int64) error {
	g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	g.GroupID = group
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, g := range resp.Groups {
		for _, rt := range g.Topics {
			for _, p := range rt.Partitions {
				if rt.Topic == topic && p.Partition == 0 && p.StartOffset == want {
					return nil
				}
			}
		}
	}
	return fmt.Errorf("share group %s: %+v", group, resp.Groups)
}

// memberID makes an id as clients do.
func memberID(t *testing.T) string {
	t.Helper()
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

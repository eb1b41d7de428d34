package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// misbehave tells the plugin strict how to go wrong until the end of the test; "" ends it.
func (e *env) misbehave(t *testing.T, how string) {
	t.Helper()
	if err := os.WriteFile(e.mode, []byte(how), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(e.mode); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
}

// fails runs kafka-cluster-mirrors, which must fail, and returns what it says.
func (e *env) fails(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := e.dst.CLI(ctx, args...)
	if err == nil {
		t.Fatalf("%v succeeds:\n%s", args, out)
	}
	return out + err.Error()
}

// tells returns when kafka-cluster-mirrors says all of that.
func (e *env) tells(t *testing.T, want []string, args ...string) {
	t.Helper()
	harness.AwaitT(t, patience, fmt.Sprintf("%v says %q", args, want), func(ctx context.Context) error {
		out, err := e.dst.CLI(ctx, args...)
		if err != nil {
			return err
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				return fmt.Errorf("no %q in:\n%s", w, out)
			}
		}
		return nil
	})
}

// configured creates a topic at the source with configs and a record in each partition.
func (e *env) configured(t *testing.T, topic string, partitions int32, configs map[string]string) {
	t.Helper()
	set := map[string]*string{}
	for k, v := range configs {
		set[k] = &v
	}
	r, err := e.srcAdmin.CreateTopic(t.Context(), partitions, 1, set, topic)
	if err == nil {
		err = r.Err
	}
	if err == nil {
		err = harness.AwaitTopic(t.Context(), e.srcCl, topic)
	}
	if err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
	for p := range partitions {
		e.write(t, topic, p, 1)
	}
}

// own are the configs that are set on a topic, not those of its brokers.
func own(ctx context.Context, adm *kadm.Client, topic string) (map[string]string, error) {
	all, err := adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	one, err := all.On(topic, nil)
	if err == nil {
		err = one.Err
	}
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, c := range one.Configs {
		if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
			out[c.Key] = c.MaybeValue()
		}
	}
	return out, nil
}

// has returns when a topic has configs here.
func (e *env) has(t *testing.T, topic string, want map[string]string) {
	t.Helper()
	harness.AwaitT(t, patience, fmt.Sprintf("topic %s has %v", topic, want), func(ctx context.Context) error {
		have, err := own(ctx, e.dstAdmin, topic)
		if err != nil {
			return err
		}
		for k, v := range want {
			if have[k] != v {
				return fmt.Errorf("%s is %q, want %q", k, have[k], v)
			}
		}
		return nil
	})
}

// alter sets a config of a topic, or takes it away.
func alter(t *testing.T, adm *kadm.Client, topic, key string, value *string) {
	t.Helper()
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: value}
	if value == nil {
		change.Op = kadm.DeleteConfig
	}
	r, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{change}, topic)
	if err == nil {
		_, err = r.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	if err != nil {
		t.Fatalf("change %s of topic %s: %v", key, topic, err)
	}
}

func ptr(s string) *string { return &s }

type partitionRow struct {
	Topic, State, ErrorMessage, Detail string
	Partition                          int32
	SourceOffset, DestinationOffset    int64
	Lag, LagMs                         int64
}

// rows are the partitions that describe shows.
func (e *env) rows(ctx context.Context, args ...string) ([]partitionRow, error) {
	out, err := e.dst.CLI(ctx, append([]string{"--describe", "--json"}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	var rows []partitionRow
	return rows, json.Unmarshal([]byte(out), &rows)
}

// TestPoliciesDecideOnTopics: the built-in policy and another one, asked in order.
func TestPoliciesDecideOnTopics(t *testing.T) {
	e := start(t)
	e.configured(t, "eng.a", 2, map[string]string{"retention.ms": "604800000", "segment.ms": "7200000"})
	e.configured(t, "eng.b-private", 1, nil)
	e.configured(t, "other", 1, map[string]string{"segment.ms": "3600000"})
	e.configured(t, "other-private", 1, nil)
	e.mirror(t, "engine", map[string]string{"mirror.topics.include": `eng\..*`, "mirror.policy.topics": "built-in,strict", "mirror.policy.configs": "built-in,strict"})

	t.Run("discovery", func(t *testing.T) {
		e.mirrored(t, "eng.a")
		e.tells(t, []string{"is not mirrored", "no dashes (strict)", "dashes are for private topics", "since 20"}, "--explain", "--mirror", "engine", "--topic", "eng.b-private")
		e.tells(t, []string{"is mirrored", "no dashes (strict)", "its name has none"}, "--explain", "--mirror", "engine", "--topic", "eng.a")
	})
	t.Run("configs", func(t *testing.T) {
		e.has(t, "eng.a", map[string]string{"segment.ms": "7200000", "retention.ms": "86400000"})
		e.tells(t, []string{"is mirrored", "a day (strict)", "nothing is kept longer here", "last applied 20"}, "--explain", "--mirror", "engine", "--config", "eng.a/retention.ms")
		e.tells(t, []string{"is not mirrored", "brokers' default"}, "--explain", "--mirror", "engine", "--config", "eng.a/flush.ms")
	})
	t.Run("describe", func(t *testing.T) {
		harness.AwaitT(t, patience, "describe shows the policies", func(ctx context.Context) error {
			out, err := e.dst.CLI(ctx, "--describe", "--mirror", "engine", "--policies", "--json")
			if err != nil {
				return err
			}
			var rows []struct {
				Kind, Plugin, LastError string
				LastRunMs               int64
				Skipped                 []struct{ Name, Reason string }
			}
			if err := json.Unmarshal([]byte(out), &rows); err != nil {
				return err
			}
			for _, want := range []string{"topics built-in", "topics strict", "configs built-in", "configs strict"} {
				i := slices.IndexFunc(rows, func(r struct {
					Kind, Plugin, LastError string
					LastRunMs               int64
					Skipped                 []struct{ Name, Reason string }
				},
				) bool {
					return r.Kind+" "+r.Plugin == want
				})
				if i < 0 || rows[i].LastRunMs <= 0 || rows[i].LastError != "" {
					return fmt.Errorf("no good run of %s in %s", want, out)
				}
				if want == "topics strict" && (len(rows[i].Skipped) != 1 || rows[i].Skipped[0].Name != "eng.b-private" || !strings.Contains(rows[i].Skipped[0].Reason, "private topics")) {
					return fmt.Errorf("strict left out %+v", rows[i].Skipped)
				}
			}
			return nil
		})
	})
	t.Run("start", func(t *testing.T) {
		// Patterns of the built-in policy do not stand against what an operator names, others do.
		out := e.cli(t, "--start", "--dry-run", "--mirror", "engine", "--topics", "other")
		if !strings.Contains(out, "would be created with 1 partitions; configs: segment.ms=3600000") {
			t.Errorf("a dry run says %s", out)
		}
		out = e.fails(t, "--start", "--mirror", "engine", "--topics", "other-private")
		if !strings.Contains(out, "POLICY_VIOLATION") || !strings.Contains(out, "refused by policy strict: dashes are for private topics") {
			t.Errorf("a start that is refused says %s", out)
		}
		if out := e.fails(t, "--describe", "--mirror", "engine", "--topics", "other"); !strings.Contains(out, "in no mirror") {
			t.Errorf("a dry run has started it: %s", out)
		}
		e.begin(t, "engine", "other")
		e.has(t, "other", map[string]string{"segment.ms": "3600000"})
		e.tells(t, []string{"is mirrored"}, "--explain", "--mirror", "engine", "--topic", "other")
	})
	t.Run("check", func(t *testing.T) {
		// What is not there, or is not what the sidecar was told it is, decides on nothing.
		for plugin, want := range map[string]string{"nobody": `there is no plugin "nobody"`, "forged": "sha256"} {
			if out := e.fails(t, "--alter", "--mirror", "engine", "--add-config", "mirror.policy.topics="+plugin); !strings.Contains(strings.ToLower(out), want) || !strings.Contains(out, "nothing was changed") {
				t.Errorf("alter with %s says %s", plugin, out)
			}
		}
		if out := e.fails(t, "--alter", "--mirror", "engine", "--add-config", "mirror.policy.groups=strict"); !strings.Contains(out, "does not decide on groups") {
			t.Errorf("alter with a plugin of other kinds says %s", out)
		}
	})
}

// TestExplainOutlivesACoordinator: whichever sidecar goes, the mirror's policies are asked by another
// one, which can say why.
func TestExplainOutlivesACoordinator(t *testing.T) {
	e := start(t)
	if !harness.Full() {
		t.Skip("the full form stops each sidecar once")
	}
	e.configured(t, "outlives-it", 1, nil)
	e.mirror(t, "outlives", map[string]string{"mirror.topics.include": "outlives.*", "mirror.policy.topics": "built-in,strict"})
	for _, c := range e.dst.Sidecars {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
		e.tells(t, []string{"is not mirrored", "no dashes (strict)", "since 20"}, "--explain", "--mirror", "outlives", "--topic", "outlives-it")
		e.tells(t, []string{"strict", "outlives-it is left out"}, "--describe", "--policies", "--mirror", "outlives")
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
}

// TestPluginsGoWrongUnderLoad: whatever a plugin does, records go on, and describe says what it is.
// Its last good decisions stand.
func TestPluginsGoWrongUnderLoad(t *testing.T) {
	e := start(t)
	e.configured(t, "wrong.a", 2, map[string]string{"retention.ms": "604800000"})
	e.mirror(t, "wrong", map[string]string{"mirror.topics.include": `wrong\..*`, "mirror.policy.topics": "built-in,strict", "mirror.policy.configs": "built-in,strict"})
	e.mirrored(t, "wrong.a")
	e.has(t, "wrong.a", map[string]string{"retention.ms": "86400000"})
	modes := []string{"crash"}
	if harness.Full() {
		modes = append(modes, "nonsense", "hang")
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			harness.AwaitT(t, patience, "the plugin is well again", func(ctx context.Context) error {
				out, err := e.dst.CLI(ctx, "--describe", "--mirror", "wrong", "--policies", "--json")
				if err == nil && strings.Contains(out, "plugin strict ") {
					err = fmt.Errorf("describe says %s", out)
				}
				return err
			})
			e.misbehave(t, mode)
			ctx, stop := context.WithCancel(t.Context())
			loaded := make(chan int, 1)
			go func() {
				n := 0
				for (ctx.Err() == nil || n < 200) && n < 20_000 {
					r := &kgo.Record{Topic: "wrong.a", Partition: int32(n % 2), Value: fmt.Appendf(nil, "%d", n)}
					if err := e.srcCl.ProduceSync(context.WithoutCancel(ctx), r).FirstErr(); err != nil {
						t.Error(err)
						break
					}
					n++
				}
				loaded <- n
			}()
			harness.AwaitT(t, patience, "describe says what is wrong with the plugin", func(ctx context.Context) error {
				out, err := e.dst.CLI(ctx, "--describe", "--mirror", "wrong", "--policies", "--json")
				if err == nil && !strings.Contains(out, "plugin strict ") {
					err = fmt.Errorf("it says %s", out)
				}
				return err
			})
			e.tells(t, []string{"is mirrored", "it cannot be asked now"}, "--explain", "--mirror", "wrong", "--config", "wrong.a/retention.ms")
			stop()
			if n := <-loaded; n < 200 {
				t.Errorf("only %d records were written meanwhile", n)
			} else {
				t.Logf("%d records were written meanwhile", n)
			}
			e.mirrored(t, "wrong.a")
			e.has(t, "wrong.a", map[string]string{"retention.ms": "86400000"})
			harness.AwaitT(t, patience, "all of it mirrors", func(ctx context.Context) error {
				rows, err := e.rows(ctx, "--mirror", "wrong", "--topics", "wrong.a")
				for _, r := range rows {
					if r.State != "MIRRORING" {
						err = fmt.Errorf("%s-%d is %s: %s", r.Topic, r.Partition, r.State, r.ErrorMessage)
					}
				}
				return err
			})
		})
	}
	if harness.Full() {
		// It is started again by itself.
		e.tells(t, []string{"is mirrored", "a day (strict)", "nothing is kept longer here"}, "--explain", "--mirror", "wrong", "--config", "wrong.a/retention.ms")
		e.configured(t, "wrong.later", 1, nil)
		e.mirrored(t, "wrong.later")
	}
}

// TestComplaint07RecordsLostAndATopicCreatedAnew: MirrorMaker 2 skips silently what retention took
// before it was mirrored, and goes on at the old offset in a topic that was created anew (PR 22248).
func TestComplaint07RecordsLostAndATopicCreatedAnew(t *testing.T) {
	t.Parallel()
	e := start(t)
	e.sourceTopic(t, "c07", 1, 10)
	e.mirror(t, "c07", nil)
	e.begin(t, "c07", "c07")
	e.cli(t, "--pause", "--wait", "--mirror", "c07", "--topics", "c07")
	e.write(t, "c07", 0, 10)
	gone := kadm.Offsets{}
	gone.Add(kadm.Offset{Topic: "c07", Partition: 0, At: 15, LeaderEpoch: -1})
	r, err := e.srcAdmin.DeleteRecords(t.Context(), gone)
	if err == nil {
		err = r.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	e.cli(t, "--resume", "--mirror", "c07", "--topics", "c07")
	e.tells(t, []string{"RECORDS_LOST"}, "--describe", "--mirror", "c07")
	e.mirrored(t, "c07")
	recreate(t, e, "c07")
	harness.AwaitT(t, patience, "the mirror fails", func(ctx context.Context) error {
		rows, err := e.rows(ctx, "--mirror", "c07")
		if err == nil && (len(rows) != 1 || rows[0].State != "FAILED" || !strings.Contains(rows[0].ErrorMessage, "created anew at the source")) {
			err = fmt.Errorf("%+v", rows)
		}
		return err
	})
}

func recreate(t *testing.T, e *env, topic string) {
	t.Helper()
	d, err := e.srcAdmin.DeleteTopic(t.Context(), topic)
	if err == nil {
		err = d.Err
	}
	if err != nil {
		t.Fatal(err)
	}
	harness.AwaitT(t, patience, "the topic is created anew", func(ctx context.Context) error {
		r, err := e.srcAdmin.CreateTopic(ctx, 1, 1, nil, topic)
		if err == nil {
			err = r.Err
		}
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("the former one is still there: %w", err)
		}
		return err
	})
}

// TestComplaint08FailsFast: people want a mirror that stops and says so, rather than one that goes on
// with a topic that is not what it was (PRs 22848, 22852, 23091, 23117).
func TestComplaint08FailsFast(t *testing.T) {
	t.Parallel()
	e := start(t)
	e.sourceTopic(t, "c08", 1, 5)
	e.mirror(t, "c08", nil)
	e.begin(t, "c08", "c08")
	d, err := e.srcAdmin.DeleteTopic(t.Context(), "c08")
	if err == nil {
		err = d.Err
	}
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	e.tells(t, []string{"c08", "NonRetryable", "was deleted at the source"}, "--describe", "--failed", "--mirror", "c08")
	t.Logf("it has failed after %v", time.Since(began))
	e.tells(t, []string{"is not mirrored", "was deleted at the source"}, "--explain", "--mirror", "c08", "--topic", "c08")
	if _, err := e.dstAdmin.ListEndOffsets(t.Context(), "c08"); err != nil {
		t.Errorf("what was mirrored is gone too: %v", err)
	}
}

// TestComplaint11ConfigSyncResetsNothing: MirrorMaker 2 wrote all configs of a topic at once and so
// reset those that it did not list (KIP-894).
func TestComplaint11ConfigSyncResetsNothing(t *testing.T) {
	t.Parallel()
	e := start(t)
	e.configured(t, "c11", 1, map[string]string{"retention.ms": "1000000", "segment.ms": "2000000"})
	e.mirror(t, "c11", nil)
	e.begin(t, "c11", "c11")
	alter(t, e.dstAdmin, "c11", "delete.retention.ms", ptr("77"))
	alter(t, e.srcAdmin, "c11", "segment.ms", nil)
	alter(t, e.srcAdmin, "c11", "retention.ms", ptr("3000000"))
	e.has(t, "c11", map[string]string{
		"retention.ms": "3000000", "delete.retention.ms": "77",
		"segment.ms": "2000000", // what the source takes away stays: nobody here has said so
	})
}

// TestComplaint12NewPartitionsAreFound: a dedicated MirrorMaker 2 cluster stops picking up new
// partitions (KAFKA-9981). Here not even a policy that hangs keeps them from it.
func TestComplaint12NewPartitionsAreFound(t *testing.T) {
	e := start(t)
	e.sourceTopic(t, "c12", 1, 3)
	e.mirror(t, "c12", map[string]string{"mirror.topics.include": "c12", "mirror.policy.topics": "built-in,strict", "mirror.policy.configs": "built-in,strict"})
	e.mirrored(t, "c12")
	e.misbehave(t, "hang")
	r, err := e.srcAdmin.UpdatePartitions(t.Context(), 3, "c12")
	if err == nil {
		err = r.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	harness.AwaitT(t, patience, "the source knows its new partitions", func(ctx context.Context) error {
		got, err := e.srcAdmin.ListEndOffsets(ctx, "c12")
		if err == nil {
			err = got.Error()
		}
		if err == nil && len(got["c12"]) != 3 {
			err = fmt.Errorf("%d partitions", len(got["c12"]))
		}
		return err
	})
	// A client of its own: others remember how few there were.
	cl := e.src.ClientT(t, quick()...)
	for range 4 {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "c12", Partition: 2, Value: []byte("new")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	e.mirrored(t, "c12")
}

// TestComplaint13LagIsShownAndNobodyElseWrites: MirrorMaker 2 has no measure of its lag in offsets, and
// stops no other writer to its topics (review of KIP-382).
func TestComplaint13LagIsShownAndNobodyElseWrites(t *testing.T) {
	t.Parallel()
	e := start(t)
	e.sourceTopic(t, "c13", 1, 8)
	e.mirror(t, "c13", nil)
	e.begin(t, "c13", "c13")
	harness.AwaitT(t, patience, "the lag is shown", func(ctx context.Context) error {
		rows, err := e.rows(ctx, "--mirror", "c13")
		if err == nil && (len(rows) != 1 || rows[0].SourceOffset != 8 || rows[0].DestinationOffset != 8 || rows[0].Lag != 0 || rows[0].LagMs < 0) {
			err = fmt.Errorf("%+v", rows)
		}
		return err
	})
	r := &kgo.Record{Topic: "c13", Partition: 0, Value: []byte("not the source's")}
	if err := e.proxyCl.ProduceSync(t.Context(), r).FirstErr(); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("somebody else's write: %v", err)
	}
	got, err := e.dstProxy.ListEndOffsets(t.Context(), "c13")
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := got.Lookup("c13", 0); o.Offset != 8 {
		t.Errorf("it ends at %d", o.Offset)
	}
}

// TestComplaint23ReplicationIsThisClustersOwn: MirrorMaker 2 overwrites min.insync.replicas of its
// topics with the source's, and their replication factor matches nothing.
func TestComplaint23ReplicationIsThisClustersOwn(t *testing.T) {
	t.Parallel()
	e := start(t)
	e.configured(t, "c23", 1, map[string]string{"min.insync.replicas": "1", "unclean.leader.election.enable": "true", "retention.bytes": "1000000"})
	e.mirror(t, "c23", nil)
	e.begin(t, "c23", "c23")
	e.tells(t, []string{"is not mirrored", "mirror.topic.properties.exclude"}, "--explain", "--mirror", "c23", "--config", "c23/min.insync.replicas")
	e.cli(t, "--stop", "--wait", "--mirror", "c23", "--topics", "c23")
	// Brokers hear of what a stop has taken away a moment after.
	harness.AwaitT(t, patience, "what is left of the mirror is this cluster's own", func(ctx context.Context) error {
		have, err := own(ctx, e.dstAdmin, "c23")
		if err != nil {
			return err
		}
		if want := map[string]string{"retention.bytes": "1000000"}; !maps.Equal(have, want) {
			return fmt.Errorf("its own configs are %v, want %v", have, want)
		}
		topics, err := e.dstAdmin.ListTopics(ctx, "c23")
		if err == nil {
			err = topics["c23"].Err
		}
		if err != nil {
			return err
		}
		if n := len(topics["c23"].Partitions[0].Replicas); n != brokers {
			return fmt.Errorf("%d replicas, default.replication.factor is %d", n, brokers)
		}
		return nil
	})
}

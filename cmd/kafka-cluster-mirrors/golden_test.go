package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

func partition(i int32, s coordinator.State, source, here int64) protocol.DescribedPartition {
	p := protocol.NewDescribedPartition()
	p.PartitionIndex, p.State, p.StateSince, p.LeaderID = i, int8(s), 1771239071191, 10001
	p.SourceOffset, p.DestinationOffset, p.LagMs = source, here, 5
	return p
}

func topicOf(name string, parts ...protocol.DescribedPartition) protocol.DescribedTopic {
	t := protocol.NewDescribedTopic()
	t.TopicName, t.Partitions = name, parts
	return t
}

func mirrorOf(name string, topics ...protocol.DescribedTopic) protocol.DescribedMirror {
	m := protocol.NewDescribedMirror()
	m.MirrorName, m.SourceBootstrap, m.SourceClusterID, m.Topics = name, "source:9092", "src-id", topics
	m.Policies = []protocol.DescribedPolicy{policyOf("topics", "built-in", ""), policyOf("acls", "principals", "it crashed: exit status 3")}
	return m
}

func policyOf(kind, plugin, err string) protocol.DescribedPolicy {
	p := protocol.NewDescribedPolicy()
	p.Kind, p.Plugin = kind, plugin
	if err != "" {
		p.LastError = &err
		return p
	}
	p.LastRunMs, p.Warnings = 1771239071191, []string{"orders.tmp: has no retention"}
	s := protocol.NewPolicySkip()
	s.Name, s.Reason = "orders.old", "stopped here; start it by its name to mirror it again"
	p.Skipped = append(p.Skipped, s)
	return p
}

func text(s string) *string { return &s }

func result(name string, code int16, message string) protocol.TopicResult {
	r := protocol.NewTopicResult()
	if r.Name, r.ErrorCode = name, code; message != "" {
		r.ErrorMessage = &message
	}
	return r
}

// world is a sidecar that knows one mirror with the topics a to d, and answers verbs by a
// table of topics.
func world(described func() protocol.DescribedMirror, results ...protocol.TopicResult) func(kmsg.Request) kmsg.Response {
	return func(req kmsg.Request) kmsg.Response {
		switch r := req.(type) {
		case *protocol.DescribeClusterMirrorsRequest:
			resp := protocol.NewDescribeClusterMirrorsResponse()
			m := described()
			if len(r.MirrorNames) > 0 && r.MirrorNames[0] != m.MirrorName {
				m = protocol.NewDescribedMirror()
				m.MirrorName, m.ErrorCode, m.ErrorMessage = r.MirrorNames[0], protocol.UnknownClusterMirror, text("there is no mirror "+r.MirrorNames[0])
			}
			resp.Mirrors = append(resp.Mirrors, m)
			return &resp
		case *protocol.ListClusterMirrorsRequest:
			resp := protocol.NewListClusterMirrorsResponse()
			for _, n := range []string{"east", "west-with-a-long-name"} {
				m := protocol.NewListedMirror()
				m.MirrorName, m.TopicCount, m.SourceBootstrap = n, 2, "source:9092,other:9092"
				if n == "east" {
					m.SourceClusterID = "6PMpHYL9QkeyXRj9Nrp4KA"
				}
				if r.IncludeTopicNames {
					m.TopicNames = []string{"a", "b"}
				}
				resp.Mirrors = append(resp.Mirrors, m)
			}
			return &resp
		case *protocol.CreateClusterMirrorRequest:
			resp := protocol.NewCreateClusterMirrorResponse()
			if r.MirrorName == "there" {
				resp.ErrorCode, resp.ErrorMessage = protocol.ClusterMirrorAlreadyExists, text("mirror there exists already")
			}
			return &resp
		case *protocol.DeleteClusterMirrorRequest:
			resp := protocol.NewDeleteClusterMirrorResponse()
			if r.MirrorName == "full" {
				resp.ErrorCode, resp.ErrorMessage = protocol.ClusterMirrorNotEmpty, text("mirror full: topic a is MIRRORING; stop it first")
			}
			return &resp
		case *protocol.StartMirrorTopicsRequest:
			resp := protocol.NewStartMirrorTopicsResponse()
			resp.Topics = results
			return &resp
		case *protocol.StopMirrorTopicsRequest:
			resp := protocol.NewStopMirrorTopicsResponse()
			resp.Topics = results
			return &resp
		case *protocol.PauseMirrorTopicsRequest:
			resp := protocol.NewPauseMirrorTopicsResponse()
			resp.Topics = results
			return &resp
		case *protocol.ResumeMirrorTopicsRequest:
			resp := protocol.NewResumeMirrorTopicsResponse()
			resp.Topics = results
			return &resp
		case *protocol.RecoverMirrorTopicsRequest:
			resp := protocol.NewRecoverMirrorTopicsResponse()
			resp.Topics = results
			return &resp
		case *protocol.ExplainClusterMirrorRequest:
			resp := protocol.NewExplainClusterMirrorResponse()
			e := protocol.NewMirrorExplanation()
			e.MirrorName = "east"
			for i, rule := range []string{"mirror.topics.include", "filter"} {
				s := protocol.NewExplanationStep()
				s.Rule, s.Passed, s.Reason = rule, i == 0, r.Name+" matches"
				if i == 1 {
					s.Plugin = "names"
					s.SinceMs, s.LastAppliedMs, s.LastError = 1771239071191, 1771239072000, text("it says no")
				}
				e.Steps = append(e.Steps, s)
			}
			resp.Explanations = append(resp.Explanations, e)
			return &resp
		case *kmsg.IncrementalAlterConfigsRequest:
			resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
			one := kmsg.NewIncrementalAlterConfigsResponseResource()
			one.ResourceName = r.Resources[0].ResourceName
			if one.ResourceName == "nobody" {
				one.ErrorCode, one.ErrorMessage = protocol.UnknownClusterMirror, text(`there is no mirror "nobody"`)
			}
			resp.Resources = append(resp.Resources, one)
			return resp
		case *kmsg.DescribeConfigsRequest:
			resp := kmsg.NewPtrDescribeConfigsResponse()
			one := kmsg.NewDescribeConfigsResponseResource()
			one.ResourceName = r.Resources[0].ResourceName
			add := func(name, value string, source kmsg.ConfigSource, secret bool) {
				c := kmsg.NewDescribeConfigsResponseResourceConfig()
				c.Name, c.Source, c.IsSensitive, c.IsDefault = name, source, secret, source == kmsg.ConfigSourceDefaultConfig
				c.Documentation = text("what " + name + " is for")
				if !secret && value != "" {
					c.Value = &value
				}
				one.Configs = append(one.Configs, c)
			}
			add("bootstrap.servers", "source:9092", kmsg.ConfigSource(1), false)
			add("sasl.jaas.config", "", kmsg.ConfigSource(1), true)
			add("mirror.topics.include", "order.*,pay", kmsg.ConfigSource(1), false)
			add("mirror.topics.exclude", "__.*", kmsg.ConfigSourceDefaultConfig, false)
			add("mirror.groups.include", ".*", kmsg.ConfigSourceDefaultConfig, false)
			add("mirror.groups.exclude", "", kmsg.ConfigSourceDefaultConfig, false)
			resp.Resources = append(resp.Resources, one)
			return resp
		}
		return nil
	}
}

func fixed(m protocol.DescribedMirror) func() protocol.DescribedMirror {
	return func() protocol.DescribedMirror { return m }
}

// Each case is a command line; its golden file holds what was asked, what was printed and
// the exit status.
func TestGolden(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good := write("good.properties", "bootstrap.servers=source:9092\nmirror.fetch.min.bytes=7\n")
	bad := write("bad.properties", "bootstrap.servers=source:9092\nmirror.fetch.min.byte=7\n")
	secret := write("secret.properties", "sasl.jaas.config=x required password\\=\"y\";\n")

	failed := partition(1, coordinator.Failed, 70, 30)
	failed.RetryAttempt, failed.ErrorMessage = 3, text("the source does not\n answer")
	dead := partition(0, coordinator.Failed, -1, 12)
	dead.RetryAttempt, dead.ErrorMessage = -1, text("topic b was deleted at the source")
	waiting := partition(0, coordinator.LogTruncation, 9, -1)
	waiting.Detail = text("WAITING_FOR_REPLICAS")
	east := fixed(mirrorOf("east",
		topicOf("a", partition(0, coordinator.Mirroring, 120, 100), failed),
		topicOf("b", dead), topicOf("c", waiting), topicOf("d")))
	steady := fixed(mirrorOf("east", topicOf("a", partition(0, coordinator.Mirroring, 5, 5)), topicOf("b", partition(0, coordinator.Paused, 5, 5))))

	ok := func(names ...string) []protocol.TopicResult {
		var out []protocol.TopicResult
		for _, n := range names {
			out = append(out, result(n, 0, ""))
		}
		return out
	}
	for _, tc := range []struct {
		name    string
		line    string
		m       func() protocol.DescribedMirror
		results []protocol.TopicResult
	}{
		{"create", "--create --mirror east --mirror-config " + good, east, nil},
		{"create-dry", "--create --mirror east --dry-run --json --mirror-config " + good, east, nil},
		{"create-again", "--create --mirror there --mirror-config " + good, east, nil},
		{"create-unknown-key", "--create --mirror east --mirror-config " + bad, east, nil},
		{"alter", "--alter --mirror east --add-config mirror.topics.exclude=a,b.* --delete-config mirror.fetch.min.bytes,mirror.groups.exclude", east, nil},
		{"alter-file", "--alter --mirror east --dry-run --json --add-config-file " + secret, east, nil},
		{"alter-foresees", "--alter --mirror east --dry-run --add-config mirror.acls.include=TOPIC --delete-config mirror.quotas.include", east, nil},
		{"alter-unknown", "--alter --mirror nobody --delete-config x", east, nil},
		{"delete", "--delete --mirror east", east, nil},
		{"delete-full", "--delete --mirror full --json", east, nil},
		{"list", "--list", east, nil},
		{"list-json", "--list --json --mirror east", east, nil},
		{"list-unknown", "--list --mirror nobody", east, nil},
		{"describe", "--describe --mirror east", east, nil},
		{"describe-json", "--describe --mirror east --topics a,x.* --json", east, nil},
		{"describe-failed", "--describe --failed", east, nil},
		{"describe-unknown", "--describe --mirror nobody", east, nil},
		{"describe-no-topic", "--describe --mirror east --topics orders", east, nil},
		{"describe-policies", "--describe --policies", east, nil},
		{"describe-policies-json", "--describe --mirror east --policies --json", east, nil},
		{"describe-configs", "--describe-configs --mirror east", east, nil},
		{"describe-configs-json", "--describe-configs --mirror east --json", east, nil},
		{"explain", "--explain --topic orders", east, nil},
		{"explain-config", "--explain --config orders/retention.ms", east, nil},
		{"explain-quota", "--explain --quota user=alice;producer_byte_rate", east, nil},
		{"explain-json", "--explain --mirror east --acl topic;orders --json", east, nil},
		{"start", "--start --mirror east --topics a,b.* --exclude b.x --allow-truncate", east, ok("a", "b1", "b2")},
		{"start-dry", "--start --mirror east --topics a --dry-run", east, ok("a")},
		{"start-dry-pattern", "--start --mirror east --topics a.* --dry-run", east, []protocol.TopicResult{
			result("a", 0, "would be created with 6 partitions; configs: retention.ms=1000"),
			{Name: "a.tmp", Skipped: true, ErrorMessage: text(`would be left out: excluded by the pattern "a.tmp"`)},
		}},
		{"start-later", "--start --mirror east --topics later.*", east, nil},
		{"start-refused", "--start --mirror east --topics a,b --json", east, append(ok("a"), result("b", protocol.TopicAlreadyInClusterMirror, "topic b belongs to mirror west; stop it there first"))},
		{"start-wait", "--start --mirror east --topics a --wait", steady, ok("a")},
		{"start-wait-failed", "--start --mirror east --topics a --wait --json", failsAt(2), ok("a")},
		{"stop", "--stop --mirror east --topics .*", east, ok("a", "b")},
		{"stop-missing", "--stop --mirror east --topics a,x", east, ok("a")},
		{"stop-timeout", "--stop --mirror east --topics a --wait --timeout 1s", steady, ok("a")},
		{"pause-already", "--pause --mirror east --topics a,b", steady, append(ok("a"), result("b", protocol.MirrorTopicAlreadyPaused, "topic b is paused"))},
		{"pause-none", "--pause --mirror east --topics x.*", steady, nil},
		{"resume-running", "--resume --mirror east --topics a,b --json", steady, append(ok("b"), result("a", protocol.MirrorTopicNotPaused, "topic a is not paused"))},
		{"resume-not-paused", "--resume --mirror east --topics a", east, []protocol.TopicResult{result("a", protocol.MirrorTopicNotPaused, "topic a is not paused")}},
		{"recover", "--recover --mirror east --topics a,b.* --allow-truncate --quiet", east, append(ok("a"), result("b", protocol.InvalidClusterMirrorStates, "topic b has no failed partition"))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, world(tc.m, tc.results...))
			out := runFake(t, f, strings.Fields(tc.line))
			golden(t, tc.name, strings.ReplaceAll(out, dir, "DIR"))
		})
	}
}

// failsAt is a mirror whose topic a fails from the n-th look on.
func failsAt(n int) func() protocol.DescribedMirror {
	looks := 0
	return func() protocol.DescribedMirror {
		looks++
		p := partition(0, coordinator.Failed, 5, 5)
		p.ErrorMessage = text("old trouble")
		if looks > n {
			p.StateSince++
			p.ErrorMessage = text("12 records stand in the way; --allow-truncate drops them")
		}
		return mirrorOf("east", topicOf("a", p))
	}
}

// runFake runs a command line and shows all that came of it.
func runFake(t *testing.T, f *fake, args []string) string {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code := run(ctx, append([]string{"--bootstrap-server", f.addr}, args...), &out, &errs)
	var b strings.Builder
	fmt.Fprintf(&b, "$ kafka-cluster-mirrors %s\n", strings.Join(args, " "))
	for _, r := range f.requests() {
		fmt.Fprintf(&b, "> %s\n", r)
	}
	fmt.Fprintf(&b, "%s-- standard error\n%s-- exit %d\n", out.String(), errs.String(), code)
	return strings.ReplaceAll(b.String(), f.addr, "HERE")
}

// A broker that no sidecar stands before says so, and so does a coordinator that moves: it
// is asked again.
func TestAsk(t *testing.T) {
	plain := newFake(t, world(fixed(mirrorOf("east"))))
	plain.plain = true
	if out := runFake(t, plain, []string{"--list"}); !strings.Contains(out, "not a mirror sidecar's") || !strings.Contains(out, "exit 4") {
		t.Error(out)
	}

	times := 0
	moving := newFake(t, func(req kmsg.Request) kmsg.Response {
		resp := protocol.NewDeleteClusterMirrorResponse()
		if times++; times < 3 {
			resp.ErrorCode = kerr.NotCoordinator.Code
		}
		return &resp
	})
	if out := runFake(t, moving, []string{"--delete", "--mirror", "m"}); !strings.Contains(out, "exit 0") || times != 3 {
		t.Errorf("asked %d times: %s", times, out)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	answer := world(fixed(mirrorOf("east", topicOf("a", partition(0, coordinator.Mirroring, 5, 5)))), result("a", 0, ""))
	var stopped atomic.Bool
	var looks atomic.Int32
	f := newFake(t, func(req kmsg.Request) kmsg.Response {
		switch req.(type) {
		case *protocol.StopMirrorTopicsRequest:
			stopped.Store(true)
		case *protocol.DescribeClusterMirrorsRequest:
			if stopped.Load() && looks.Add(1) == 2 { // it waits
				cancel()
			}
		}
		return answer(req)
	})
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"--bootstrap-server", f.addr, "--stop", "--mirror", "east", "--topics", "a", "--wait"}, &out, &errs); code != exitInterrupted {
		t.Errorf("exit %d: %s", code, errs.String())
	}
	if !strings.Contains(errs.String(), "goes on by itself") {
		t.Error(errs.String())
	}
}

// On a terminal one line is drawn again and cut to fit.
func TestProgressOnTerminal(t *testing.T) {
	var b bytes.Buffer
	p := &progress{out: &b, width: 10}
	p.show("one")
	p.show("one")
	p.show("a line that is too long")
	p.end()
	p.end()
	if want := "\r\x1b[Kone\r\x1b[Ka line t…\n"; b.String() != want {
		t.Errorf("%q", b.String())
	}
}

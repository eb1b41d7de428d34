package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// namingPlugin is the program of the policy "naming", built beside the others.
const namingPlugin = "github.com/cluster-mirroring/mirror-sidecar/plugins/examples/naming"

// pluginKeys are the keys of sidecars that have it, and another plugin that is not the program that
// they were told it is.
func pluginKeys(t *testing.T, bin string) map[string]string {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(bin, "naming"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	return map[string]string{
		"plugin.path": bin, "plugin.naming.sha256": hex.EncodeToString(sum[:]), "plugin.naming.timeout.ms": "20000", "plugin.naming.config.teams": "c9,other",
		"plugin.forged.command": "naming", "plugin.forged.sha256": strings.Repeat("0", 64),
	}
}

// policiesDecide: topics are selected by the built-in policy's patterns and by a policy that names the
// teams. An operator's start needs no pattern, and the other policy all the same.
func policiesDecide(t *testing.T, e *env) {
	m := e.mirror(t, "c9-1", "mirror.topics.include", `c9.*`, "mirror.policy.topics", "built-in,naming")
	e.topic(t, "c9.one.a", 1, 3)
	e.topic(t, "c9.one", 1, 3)
	e.topic(t, "other.one.a", 1, 3)
	e.topic(t, "stranger.one.a", 1, 3)
	e.waitState(t, m, mirroring, "c9.one.a")
	e.copied(t, "c9.one.a")
	if out := e.cli(t, "--explain", "--mirror", m, "--topic", "c9.one"); !strings.Contains(out, "is not mirrored") || !strings.Contains(out, "form (naming)") || !strings.Contains(out, "has 2 parts") {
		t.Errorf("explained: %s", out)
	}
	eventually(t, "describe shows the policies", func(context.Context) error {
		d := e.describe(t, m)
		for _, plugin := range []string{"built-in", "naming"} {
			i := slices.IndexFunc(d.Policies, func(p protocol.DescribedPolicy) bool { return p.Kind == "topics" && p.Plugin == plugin })
			if i < 0 || d.Policies[i].LastRunMs <= 0 || d.Policies[i].LastError != nil {
				return fmt.Errorf("no run of %s: %+v", plugin, d.Policies)
			}
			skips := slices.ContainsFunc(d.Policies[i].Skipped, func(s protocol.PolicySkip) bool {
				return s.Name == "c9.one" && strings.Contains(s.Reason, "has 2 parts")
			})
			if skips != (plugin == "naming") {
				return fmt.Errorf("%s left out %+v", plugin, d.Policies[i].Skipped)
			}
		}
		return nil
	})
	refused(t, e.send(t, vStart, m, "stranger.one.a"), kerr.PolicyViolation.Code, "stranger.one.a", "policy naming", `there is no team "stranger"`)
	e.started(t, m, "other.one.a")
	e.copied(t, "other.one.a")
}

// policiesRefused: what is not there, or is not the program that the sidecar was told it is, is not
// taken.
func policiesRefused(t *testing.T, e *env) {
	m := e.mirror(t, "a4-2")
	for plugin, want := range map[string]string{"nobody": `there is no plugin "nobody"`, "forged": "sha256"} {
		r := askAt[*protocol.CreateClusterMirrorResponse](t, e.dst.Sidecars[0].Proxy, createRequest("a4-2-"+plugin, e.sourceConfig("mirror.policy.acls", plugin)))
		if r.ErrorCode != kerr.InvalidConfig.Code || !strings.Contains(strings.ToLower(text(r.ErrorMessage)), strings.ToLower(want)) {
			t.Errorf("create with plugin %s: %d %s, want %q", plugin, r.ErrorCode, text(r.ErrorMessage), want)
		}
		o := e.tryCLI(t, "--alter", "--mirror", m, "--add-config", "mirror.policy.topics="+plugin)
		if said := strings.ToLower(o.stdout + o.stderr); o.code == 0 || !strings.Contains(said, strings.ToLower(want)) {
			t.Errorf("alter with plugin %s: exit %d, %s, want %q", plugin, o.code, said, want)
		}
	}
	if o := e.tryCLI(t, "--alter", "--mirror", m, "--add-config", "mirror.policy.groups=naming"); o.code == 0 || !strings.Contains(o.stderr, "does not decide on groups") {
		t.Errorf("alter with a plugin of another kind: exit %d, %s", o.code, o.stderr)
	}
	if got := describeConfigs(t, e.dst.Sidecars[0].Proxy, mirrorResource, m)["mirror.policy.topics"]; text(got.Value) != "built-in" {
		t.Errorf("mirror.policy.topics is %q", text(got.Value))
	}
}

// policiesConfigs: what differs is set, what the source takes away or never had stays, what is excluded
// is not copied, and what is always copied is so where the source has only its default.
func policiesConfigs(t *testing.T, e *env) {
	m := e.mirror(t, "c9-2", "mirror.topic.properties.always", "max.compaction.lag.ms,file.delete.delay.ms", "mirror.topic.properties.include", "retention.*,segment.*",
		"mirror.topic.properties.exclude", "segment.bytes,file.delete.delay.ms")
	topic := e.topic(t, "c9-2.a", 1, 3, "segment.ms", "7200000", "segment.bytes", "2097152", "flush.ms", "99000", "file.delete.delay.ms", "61000")
	e.started(t, m, topic)
	set := func(addr, key, value string) {
		t.Helper()
		if err := alterConfigs(t, addr, kmsg.ConfigResourceTypeTopic, topic, key, value); err != nil {
			t.Fatal(err)
		}
	}
	set(e.dst.Sidecars[0].Proxy, "delete.retention.ms", "77")
	set(e.src.Bootstrap(harness.ListenerInternal)[0], "retention.bytes", "123456789")
	eventually(t, "configs are copied", func(context.Context) error {
		have := e.configs(t, topic)
		for key, want := range map[string]string{"segment.ms": "7200000", "retention.bytes": "123456789", "delete.retention.ms": "77", "retention.ms": "-1"} {
			if have[key] != want {
				return fmt.Errorf("%s is %q, want %q", key, have[key], want)
			}
		}
		if _, ok := have["max.compaction.lag.ms"]; !ok {
			return fmt.Errorf("max.compaction.lag.ms is not set: %v", have)
		}
		return nil
	})
	// What the source takes away stays, as a later refresh finds it.
	source := e.src.Bootstrap(harness.ListenerInternal)[0]
	unset(t, source, topic, "segment.ms")
	set(source, "retention.bytes", "223456789")
	eventually(t, "configs are copied again", func(context.Context) error {
		have := e.configs(t, topic)
		if have["retention.bytes"] != "223456789" || have["segment.ms"] != "7200000" {
			return fmt.Errorf("%v", have)
		}
		return nil
	})
	e.ended(t, m, topic)
	have := e.configs(t, topic)
	for _, key := range []string{"segment.bytes", "file.delete.delay.ms", "flush.ms"} {
		if v, ok := have[key]; ok {
			t.Errorf("%s=%s was copied", key, v)
		}
	}
}

// unset takes a config of a topic away.
func unset(t *testing.T, addr, topic, key string) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op = key, kmsg.IncrementalAlterConfigOpDelete
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	if resp := askAt[*kmsg.IncrementalAlterConfigsResponse](t, addr, req); resp.Resources[0].ErrorCode != 0 {
		t.Fatal(resp.Resources[0].ErrorCode, text(resp.Resources[0].ErrorMessage))
	}
}

// policiesCrash: a plugin that crashes at every question holds up no records, what it has decided stands,
// what it has not is left out, and everybody is told so.
func policiesCrash(t *testing.T, e *env) {
	m := e.mirror(t, "c9-11", "mirror.topics.include", `c9-11[.].*`, "mirror.policy.topics", "built-in,"+pluginWilful)
	const known, unknown = "c9-11.a", "c9-11.b"
	e.topic(t, known, 1, 3)
	e.waitState(t, m, mirroring, known)
	e.will(t, m, willCrash)
	e.topic(t, unknown, 1, 3)
	policy := func() (protocol.DescribedPolicy, error) {
		d := e.describe(t, m)
		i := slices.IndexFunc(d.Policies, func(p protocol.DescribedPolicy) bool { return p.Kind == "topics" && p.Plugin == pluginWilful })
		if i < 0 {
			return protocol.DescribedPolicy{}, fmt.Errorf("%s is not described: %+v", pluginWilful, d.Policies)
		}
		return d.Policies[i], nil
	}
	eventually(t, "describe shows that the plugin cannot be asked", func(context.Context) error {
		p, err := policy()
		if err == nil && (p.LastError == nil || !slices.ContainsFunc(p.Skipped, func(s protocol.PolicySkip) bool { return s.Name == unknown })) {
			err = fmt.Errorf("%+v", p)
		}
		return err
	})
	e.write(t, known, 1, 5)
	e.copied(t, known)
	eventually(t, "an old decision is explained as one, which stands", func(context.Context) error {
		req := protocol.NewExplainClusterMirrorRequest()
		req.MirrorName, req.Kind, req.Name = &m, "topic", known
		r := ask[*protocol.ExplainClusterMirrorResponse](t, e, 0, &req)
		if len(r.Explanations) != 1 || !r.Explanations[0].Mirrored || !slices.ContainsFunc(r.Explanations[0].Steps, func(s protocol.ExplanationStep) bool {
			return s.Plugin == pluginWilful && s.Passed && strings.Contains(s.Reason, "said before; it cannot be asked now")
		}) {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	refused(t, e.send(t, vStart, m, unknown), kerr.PolicyViolation.Code, unknown, pluginWilful)
	if len(e.describe(t, m).topic(unknown).Partitions) > 0 {
		t.Errorf("%s is mirrored, and nobody has decided that", unknown)
	}
	e.will(t, m, "")
	e.waitState(t, m, mirroring, unknown, known)
	e.copied(t, unknown)
	eventually(t, "describe shows that the plugin can be asked again", func(context.Context) error {
		p, err := policy()
		if err == nil && p.LastError != nil {
			err = fmt.Errorf("%s", *p.LastError)
		}
		return err
	})
}

// policiesEvents: a plugin is told of each state that a partition comes to, in order, also of those from
// when it took nothing; nothing waits for it.
func policiesEvents(t *testing.T, e *env) {
	m := e.mirror(t, "c9-12", "mirror.policy.events", pluginMute)
	topic := e.topic(t, "c9-12", 1, 3)
	told := func(want ...string) {
		t.Helper()
		eventually(t, fmt.Sprintf("events tell of %v", want), func(context.Context) error {
			lines, err := os.ReadFile(filepath.Join(e.wills, m+".events"))
			if err != nil {
				return err
			}
			left := want
			for line := range strings.Lines(string(lines)) {
				if len(left) > 0 && strings.TrimSpace(line) == topic+"-0 "+left[0] {
					left = left[1:]
				}
			}
			if len(left) > 0 {
				return fmt.Errorf("%v is not told yet: %s", left, lines)
			}
			return nil
		})
	}
	e.started(t, m, topic)
	told("MIRRORING")
	e.will(t, m, willErr)
	e.do(t, vPause, m, topic)
	e.waitState(t, m, paused, topic)
	e.do(t, vResume, m, topic)
	e.waitState(t, m, mirroring, topic)
	eventually(t, "describe shows that nothing is taken", func(context.Context) error {
		d := e.describe(t, m)
		if !slices.ContainsFunc(d.Policies, func(p protocol.DescribedPolicy) bool {
			return p.Kind == "events" && p.Plugin == pluginMute && strings.Contains(text(p.LastError), "does not want to")
		}) {
			return fmt.Errorf("%+v", d.Policies)
		}
		return nil
	})
	e.will(t, m, "")
	told("MIRRORING", "PAUSING", "PAUSED", "MIRRORING")
	e.ended(t, m, topic)
	told("MIRRORING", "PAUSING", "PAUSED", "MIRRORING", "STOPPING", "STOPPED")
}

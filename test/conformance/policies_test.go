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
	m := e.mirror(t, "c9-2", "mirror.topic.properties.always", "max.compaction.lag.ms", "mirror.topic.properties.include", "retention.*,segment.*")
	topic := e.topic(t, "c9-2.a", 1, 3, "segment.ms", "7200000", "min.insync.replicas", "1", "flush.ms", "99000")
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
	e.ended(t, m, topic)
	have := e.configs(t, topic)
	for _, key := range []string{"min.insync.replicas", "flush.ms"} {
		if v, ok := have[key]; ok {
			t.Errorf("%s=%s was copied", key, v)
		}
	}
}

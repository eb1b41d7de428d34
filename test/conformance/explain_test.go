package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// lineExplainRest explains what is not a topic, at the secured cluster, which has ACLs.
func lineExplainRest(t *testing.T, e *env) {
	r := e.acls(t, "c7-12")
	const topic = "c7-12.t"
	m := r.mirror(t, "c7-12", "mirror.policy.quotas", "built-in", "mirror.quotas.include", "user=c7-12", "mirror.groups.exclude", "c7-12.no")
	e.topic(t, topic, 1, 4, "segment.ms", "7200000", "min.insync.replicas", "1")
	for _, group := range []string{"c7-12.yes", "c7-12.no"} {
		o := kadm.Offsets{}
		o.Add(kadm.Offset{Topic: topic, At: 3, LeaderEpoch: -1})
		if err := r.src.CommitAllOffsets(t.Context(), group, o); err != nil {
			t.Fatal(err)
		}
	}
	r.allow(t, r.src, topic, "other.c7-12")
	setQuota(t, r.src, "c7-12", 1e6)
	setQuota(t, r.src, "c7-12-other", 1e6)
	if err := r.sec.send(t, userAdmin, vStart, m, topic); err != nil {
		t.Fatal(err)
	}
	login := []string{"--command-config", commandConfig(t, userAdmin)}
	line := func(args ...string) outcome { return cliAt(t, r.sec.addr(), append(args, login...)...) }
	for _, c := range []struct {
		flag, name string
		mirrored   bool
		rule, word string
	}{
		{"config", topic + "/segment.ms", true, "mirror.topic.properties.include", `included by the pattern \".*\"`},
		{"config", topic + "/min.insync.replicas", false, "mirror.topic.properties.exclude", "never copied"},
		{"config", topic + "/flush.ms", false, "source", "default"},
		{"group", "c7-12.yes", true, "mirror.groups.include", `included by the pattern \".*\"`},
		{"group", "c7-12.no", false, "mirror.groups.exclude", `excluded by the pattern \"c7-12.no\"`},
		{"group", "c7-12.nobody", false, "source", "no group of that name"},
		{"acl", "TOPIC;" + topic + ";READ;ALLOW;User:c7-12", true, "mirror.acls.include", "included by the rule"},
		{"acl", "TOPIC;other.c7-12;READ;ALLOW;User:c7-12", false, "mirror.acls.include", "no rule of the mirror fits"},
		{"quota", "user=c7-12;producer_byte_rate", true, "mirror.quotas.include", `included by the pattern \"user=c7-12\"`},
		{"quota", "user=c7-12-other;producer_byte_rate", false, "mirror.quotas.include", "no pattern of the mirror matches"},
	} {
		eventually(t, fmt.Sprintf("%s %s is explained", c.flag, c.name), func(context.Context) error {
			o := line("--explain", "--mirror", m, "--"+c.flag, c.name, "--json")
			var said []struct {
				Kind, Name string
				Mirrored   bool
				Steps      []struct {
					Rule, Reason           string
					SinceMs, LastAppliedMs int64
					LastError              string
				}
			}
			if err := json.Unmarshal([]byte(o.stdout), &said); o.code != 0 || err != nil || len(said) != 1 || len(said[0].Steps) == 0 {
				return fmt.Errorf("exit %d, %w: %s%s", o.code, err, o.stdout, o.stderr)
			}
			step := said[0].Steps[0]
			if said[0].Kind != c.flag || said[0].Name != c.name || said[0].Mirrored != c.mirrored || step.Rule != c.rule || !strings.Contains(o.stdout, c.word) {
				return fmt.Errorf("%s", o.stdout)
			}
			if c.mirrored && (step.SinceMs <= 0 || step.LastAppliedMs < step.SinceMs || step.LastError != "") {
				return fmt.Errorf("since when, and when last: %s", o.stdout)
			}
			return nil
		})
	}
	if o := line("--explain", "--mirror", m, "--group", "c7-12.no"); !strings.Contains(o.stdout, "group c7-12.no is not mirrored by mirror "+m) || !strings.Contains(o.stdout, "since 20") {
		t.Errorf("explained: %s%s", o.stdout, o.stderr)
	}
	// What a change would do, and what is to be done now.
	o := line("--alter", "--mirror", m, "--add-config", "mirror.acls.exclude=TOPIC", "--dry-run")
	if !strings.Contains(o.stdout, "What would be done about the acls") || !strings.Contains(o.stdout, "delete") || !strings.Contains(o.stdout, topic+";READ") {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if o := line("--explain", "--mirror", m, "--acl", "*"); !strings.Contains(o.stdout, "Nothing would be changed of the acls") {
		t.Errorf("a dry run has changed something: exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	// What is given up is not mirrored, whatever was said of it before.
	if o := line("--alter", "--mirror", m, "--delete-config", "mirror.acls.include"); o.code != 0 {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	o = line("--explain", "--mirror", m, "--acl", "TOPIC;"+topic+";READ;ALLOW;User:c7-12")
	if !strings.Contains(o.stdout, "is not mirrored") || !strings.Contains(o.stdout, "mirror.acls.include") || !strings.Contains(o.stdout, "it is empty") {
		t.Errorf("explained where ACLs are not mirrored any more: exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
}

// lineForesees: a start that is only tried says of each topic what would be created, changed and left
// out, and why.
func lineForesees(t *testing.T, e *env) {
	m := e.mirror(t, "c7-16", "mirror.policy.topics", "built-in,naming")
	const fresh, there, odd = "other.dry.a", "other.dry.b", "other.dry"
	e.topic(t, fresh, 2, 2, "segment.ms", "7200000")
	e.topic(t, there, 1, 2, "segment.ms", "3600000")
	e.topic(t, odd, 1, 2)
	createTopic(t, e.dstClient, 1, 1, there, "segment.ms", "1800000")
	o := e.tryCLI(t, "--start", "--mirror", m, "--topics", `other\.dry.*`, "--dry-run")
	for _, want := range []string{
		fresh + ": would be created with 2 partitions; configs: ", "segment.ms=7200000",
		there + ": exists here and would become read only; configs: ", "segment.ms=3600000 (now 1800000)",
		odd + ": ", "has 2 parts",
	} {
		if !strings.Contains(o.stdout+o.stderr, want) {
			t.Errorf("a dry run of a start does not say %q: exit %d: %s%s", want, o.code, o.stdout, o.stderr)
		}
	}
	if d := e.describe(t, m); len(d.Topics) > 0 {
		t.Errorf("a dry run has started topics: %+v", d.Topics)
	}
	if got := e.configs(t, there)["segment.ms"]; got != "1800000" {
		t.Errorf("a dry run has set segment.ms to %q", got)
	}
}

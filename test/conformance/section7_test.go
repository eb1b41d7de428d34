package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// section7 tests the command line.
func section7() []row {
	return []row{
		{proves: "C7.1 C7.6 C7.7 create, list, delete", run: lineMirror},
		{proves: "C7.2 C7.3 C7.8 C7.13 C7.17 start, describe, verify, stop", run: lineTopics},
		{proves: "C7.4 A2.9 pause and resume", run: linePause},
		{proves: "C7.5 C7.9 recover, describe --failed", run: lineRecover},
		{proves: "C7.10 alter", run: lineAlter},
		{proves: "C7.11 A5.6 explain", run: lineExplain},
		{proves: "C7.12 A5.6 explain what is not a topic", run: lineExplainRest},
		{proves: "C7.14 switchover", run: lineSwitchover},
		{proves: "A5.7 fence", run: fencedWrites, reverse: true},
		{proves: "C7.15 C7.16 JSON and dry run", run: lineJSON},
		{proves: "C7.16 what a start would do", run: lineForesees},
		{proves: "C7.18 exit status", run: lineExit},
		{proves: "C7.20 decode-state", run: lineDecodeState},
		{proves: "C7.21 A6.6 help and version", run: lineHelp},
	}
}

// head is a table's first line as words.
func columns(out string) []string {
	first, _, _ := strings.Cut(out, "\n")
	return strings.Fields(first)
}

// rowOf is the line of a table that begins with the words.
func rowOf(out string, words ...string) []string {
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) >= len(words) && slices.Equal(f[:len(words)], words) {
			return f
		}
	}
	return nil
}

func onlyRecords(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "| offset:") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func lineMirror(t *testing.T, e *env) {
	const m = "c7-1"
	e.cli(t, "--create", "--mirror", m, "--mirror-config", propertiesFile(t, e.sourceConfig()))
	out := e.cli(t, "--list")
	if got := columns(out); !slices.Equal(got, []string{"MIRROR", "TOPICS", "SOURCE-CLUSTER-ID", "SOURCE-BOOTSTRAP-SERVER"}) {
		t.Errorf("columns %v", got)
	}
	if got, want := rowOf(out, m), []string{m, "0", e.src.ID(), e.sourceConfig()["bootstrap.servers"]}; !slices.Equal(got, want) {
		t.Errorf("listed as %v, want %v", got, want)
	}
	e.cli(t, "--delete", "--mirror", m)
	if rowOf(e.cli(t, "--list"), m) != nil {
		t.Error("it is listed after it was deleted")
	}
}

func lineTopics(t *testing.T, e *env) {
	m := e.mirror(t, "c7-2")
	for _, n := range []string{"c7-2.a1", "c7-2.a2", "c7-2.b"} {
		e.topic(t, n, 2, 6)
	}
	o := e.tryCLI(t, "--start", "--mirror", m, "--topics", `c7-2\.a.*,c7-2.b`, "--exclude", `.*a2`, "--wait")
	if o.code != 0 {
		t.Fatalf("start: exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if strings.TrimSpace(o.stderr) == "" {
		t.Errorf("--wait shows no progress beside %q", o.stdout)
	}
	out := e.cli(t, "--describe", "--mirror", m)
	if got := columns(out); !slices.Equal(got, []string{"MIRROR", "TOPIC", "PARTITION", "SOURCE-OFFSET", "DESTINATION-OFFSET", "LAG", "STATE"}) {
		t.Errorf("columns %v", got)
	}
	for _, topic := range []string{"c7-2.a1", "c7-2.b"} {
		for p := range 2 {
			if got, want := rowOf(out, m, topic, fmt.Sprint(p)), []string{m, topic, fmt.Sprint(p), "3", "3", "0", "MIRRORING"}; !slices.Equal(got, want) {
				t.Errorf("described as %v, want %v", got, want)
			}
		}
	}
	if strings.Contains(out, "c7-2.a2") {
		t.Error("an excluded topic is mirrored")
	}
	if out := e.cli(t, "--verify", "--mirror", m); !strings.Contains(out, "equal") || strings.Contains(out, "DIFFER") {
		t.Errorf("verify: %s", out)
	}
	if o := e.tryCLI(t, "--stop", "--mirror", m, "--topics", `c7-2\..*`, "--wait"); o.code != 0 {
		t.Fatalf("stop: exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	out = e.cli(t, "--describe", "--mirror", m)
	if got := rowOf(out, m, "c7-2.b", "0"); len(got) < 7 || got[6] != "STOPPED" {
		t.Errorf("after --stop --wait: %v", got)
	}
	// What is written here afterwards is not held against the mirror; what differs is found.
	if err := produce(t.Context(), writer(t, e.dst.Proxies()), "c7-2.b", 2, 2, "mine"); err != nil {
		t.Fatal(err)
	}
	if o := e.tryCLI(t, "--verify", "--mirror", m); o.code != 0 {
		t.Errorf("verify after the stop: exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
}

func linePause(t *testing.T, e *env) {
	m := e.mirrored(t, "c7-4", 1, 3)
	for range 2 { // the second one finds it done
		e.cli(t, "--pause", "--mirror", m, "--topics", m)
	}
	e.waitState(t, m, paused, m)
	e.cli(t, "--pause", "--mirror", m, "--topics", `c7-4.*`)
	e.cli(t, "--resume", "--mirror", m, "--topics", `c7-4.*`)
	e.waitState(t, m, mirroring, m)
	e.cli(t, "--resume", "--mirror", m, "--topics", m)
}

func lineRecover(t *testing.T, e *env) {
	m := e.mirrored(t, "c7-5.good", 1, 1)
	const topic = "c7-5"
	e.inTheWay(t, m, topic, 23, 2)
	e.tryCLI(t, "--start", "--mirror", m, "--topics", topic)
	e.waitFailed(t, m, topic, "23")
	out := e.cli(t, "--describe", "--failed", "--mirror", m)
	if got := columns(out); !slices.Equal(got, []string{"MIRROR", "TOPIC", "PARTITION", "RETRY", "ERROR"}) {
		t.Errorf("columns %v", got)
	}
	if got := rowOf(out, m, topic, "0"); len(got) < 5 || !slices.Contains(got, "23") {
		t.Errorf("described as %v", got)
	}
	if rowOf(out, m, m) != nil {
		t.Error("a topic that has not failed is shown")
	}
	if o := e.tryCLI(t, "--recover", "--mirror", m, "--topics", m); o.code == 0 {
		t.Error("recover of a topic that has not failed has exit status 0")
	}
	e.cli(t, "--recover", "--mirror", m, "--topics", topic, "--allow-truncate")
	e.waitState(t, m, mirroring, topic)
	e.copied(t, topic)
	e.equal(t, topic)
}

func lineAlter(t *testing.T, e *env) {
	m := e.mirror(t, "c7-10", "mirror.fetch.max.bytes", "65536")
	e.cli(t, "--alter", "--mirror", m, "--add-config", "mirror.fetch.backoff.ms=250", "--add-config", "mirror.topics.exclude=__.*,tmp.*", "--delete-config", "mirror.fetch.max.bytes")
	c := describeConfigs(t, e.dst.Sidecars[0].Proxy, mirrorResource, m)
	for key, want := range map[string]string{"mirror.fetch.backoff.ms": "250", "mirror.topics.exclude": "__.*,tmp.*", "mirror.fetch.max.bytes": "1048576"} {
		if got := c[key]; text(got.Value) != want {
			t.Errorf("%s is %q, want %q", key, text(got.Value), want)
		}
	}
	if o := e.tryCLI(t, "--alter", "--mirror", m, "--add-config", "mirror.fetch.backoff.m=1"); o.code == 0 || !strings.Contains(o.stderr, "mirror.fetch.backoff.ms") {
		t.Errorf("an unknown key: exit %d: %s", o.code, o.stderr)
	}
}

func lineExplain(t *testing.T, e *env) {
	m := e.mirror(t, "c7-11")
	e.topic(t, "c7-11.yes", 1, 1)
	e.topic(t, "c7-11.no", 1, 1)
	e.startPatterns(t, m, []string{`c7-11\..*`}, []string{`.*\.no`})
	e.waitState(t, m, mirroring, "c7-11.yes")
	if out := e.cli(t, "--explain", "--mirror", m, "--topic", "c7-11.yes"); !strings.Contains(out, m) || !strings.Contains(out, "mirror") {
		t.Errorf("explained: %s", out)
	}
	if out := e.cli(t, "--explain", "--mirror", m, "--topic", "c7-11.no"); !strings.Contains(out, "mirror.topics.exclude") || !strings.Contains(out, `.no"`) {
		t.Errorf("explained: %s", out)
	}
	for name, want := range map[string]bool{"c7-11.yes": true, "c7-11.no": false, "c7-11-other": false, "__consumer_offsets": false} {
		req := protocol.NewExplainClusterMirrorRequest()
		req.MirrorName, req.Kind, req.Name = &m, "topic", name
		for i := range e.dst.Sidecars {
			r := ask[*protocol.ExplainClusterMirrorResponse](t, e, i, &req)
			if r.ErrorCode != 0 || len(r.Explanations) != 1 || r.Explanations[0].Mirrored != want || len(r.Explanations[0].Steps) == 0 {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}

// lineSwitchover moves a topic, with a consumer group, from a source with sidecars or
// without.
func lineSwitchover(t *testing.T, e *env) {
	m := e.mirrored(t, "c7-14", 1, 8)
	group := "c7-14"
	if got, err := e.src.Installation().Consume(t.Context(), harness.JavaConsume{
		Bootstrap: e.src.Bootstrap(harness.ListenerInternal), Group: group, Topic: m, Count: 8,
	}); err != nil || len(got) != 8 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	args := []string{"--switchover", "--mirror", m, "--quiet-period", "1s", "--timeout", "60s"}
	if e.back != nil {
		args = append(args, "--source-bootstrap-server", e.back.Sidecars[0].Proxy)
	}
	before := e.cli(t, append(args, "--dry-run")...)
	if p := e.partition(t, m, m, 0); p.State != mirroring {
		t.Errorf("a dry run has stopped the topic: %s", before)
	}
	e.cli(t, args...)
	e.waitState(t, m, stopped, m)
	offsets, err := e.dstAdmin.FetchOffsets(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := offsets.Lookup(m, 0); !ok || o.At != 8 {
		t.Errorf("the group's offset here is %+v (%t), want 8", o, ok)
	}
	if e.back != nil {
		// Writers at the source's sidecar are kept out, others not.
		if err := produce(t.Context(), once(t, e.back.Proxies()), m, 1, 1, "late"); err == nil {
			t.Error("a write at the source after the switchover was taken")
		}
	}
	if err := produce(t.Context(), writer(t, e.dst.Proxies()), m, 1, 1, "mine"); err != nil {
		t.Errorf("a write here after the switchover: %v", err)
	}
}

// fencedWrites holds writes to a topic of the source back for a while.
func fencedWrites(t *testing.T, e *env) {
	topic := e.topic(t, "a5-7", 1, 0)
	fence := protocol.NewFenceTopicWritesRequest()
	fence.Topics, fence.LeaseMs = []string{topic}, 3000
	r := askAt[*protocol.FenceTopicWritesResponse](t, e.back.Sidecars[0].Proxy, &fence)
	if r.ErrorCode != 0 || len(r.Topics) != 1 || r.Topics[0].ErrorCode != 0 {
		t.Fatalf("fence: %+v", r)
	}
	if err := produce(t.Context(), once(t, e.back.Proxies()), topic, 1, 1, "fenced"); err == nil {
		t.Error("a write to a fenced topic was taken")
	}
	// It ends by itself.
	if err := produce(t.Context(), writer(t, e.back.Proxies()), topic, 1, 1, "later"); err != nil {
		if harness.Await(t.Context(), patience, func(ctx contextT) error { return produce(ctx, once(t, e.back.Proxies()), topic, 1, 1, "later") }) != nil {
			t.Errorf("the fence does not end: %v", err)
		}
	}
}

func lineJSON(t *testing.T, e *env) {
	const m = "c7-15"
	config := propertiesFile(t, e.sourceConfig())
	parse := func(args ...string) any {
		t.Helper()
		out := e.cli(t, append(args, "--json")...)
		var v any
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Errorf("%v: no JSON: %v: %s", args, err, out)
		}
		return v
	}
	parse("--create", "--mirror", m, "--mirror-config", config, "--dry-run")
	if rowOf(e.cli(t, "--list"), m) != nil {
		t.Error("a dry run has created the mirror")
	}
	parse("--create", "--mirror", m, "--mirror-config", config)
	t.Cleanup(func() { stopAll(e.dst, m) })
	e.topic(t, m, 1, 3)
	parse("--start", "--mirror", m, "--topics", m, "--dry-run")
	if len(e.describe(t, m).Topics) > 0 {
		t.Error("a dry run has started the topic")
	}
	parse("--start", "--mirror", m, "--topics", m)
	e.waitState(t, m, mirroring, m)
	e.copied(t, m)
	list, ok := parse("--list").([]any)
	if !ok || len(list) == 0 {
		t.Errorf("list: %v", list)
	}
	rows, ok := parse("--describe", "--mirror", m).([]any)
	if !ok || len(rows) != 1 {
		t.Errorf("describe: %v", rows)
	} else if row, ok := rows[0].(map[string]any); !ok || row["state"] != "MIRRORING" || row["topic"] != m {
		t.Errorf("describe: %v", rows[0])
	}
	parse("--describe", "--failed", "--mirror", m)
	parse("--verify", "--mirror", m)
	parse("--explain", "--topic", m)
	parse("--alter", "--mirror", m, "--add-config", "mirror.fetch.backoff.ms=300", "--dry-run")
	if c := describeConfigs(t, e.dst.Sidecars[0].Proxy, mirrorResource, m)["mirror.fetch.backoff.ms"]; text(c.Value) != "1000" {
		t.Error("a dry run has changed the configuration")
	}
	parse("--pause", "--mirror", m, "--topics", m, "--dry-run")
	if p := e.partition(t, m, m, 0); p.State != mirroring {
		t.Error("a dry run has paused")
	}
	parse("--pause", "--mirror", m, "--topics", m)
	e.waitState(t, m, paused, m)
	parse("--resume", "--mirror", m, "--topics", m, "--dry-run")
	parse("--resume", "--mirror", m, "--topics", m)
	e.waitState(t, m, mirroring, m)
	parse("--stop", "--mirror", m, "--topics", m, "--dry-run")
	if p := e.partition(t, m, m, 0); p.State != mirroring {
		t.Error("a dry run has stopped")
	}
	parse("--stop", "--mirror", m, "--topics", m)
	e.waitState(t, m, stopped, m)
	parse("--delete", "--mirror", m, "--dry-run")
	if _, there := listed(t, e, m, false); !there {
		t.Error("a dry run has deleted the mirror")
	}
	parse("--delete", "--mirror", m)
	var v any
	if err := json.Unmarshal([]byte(line(t, "--version", "--json")), &v); err != nil {
		t.Errorf("--version: %v", err)
	}
}

func lineExit(t *testing.T, e *env) {
	m := e.mirrored(t, "c7-18", 1, 1)
	for _, bad := range [][]string{
		{"--start", "--mirror", m, "--topics", m + ",c7-18.none"}, // one of two
		{"--start", "--mirror", "c7-18.none", "--topics", m},
		{"--stop", "--mirror", m, "--topics", "c7-18.none"},
		{"--delete", "--mirror", m},
		{"--describe", "--mirror", "c7-18.none"},
		{"--create", "--mirror", m, "--mirror-config", propertiesFile(t, e.sourceConfig())},
		{"--recover", "--mirror", m, "--topics", m},
		{"--alter", "--mirror", m, "--add-config", "no.such.key=1"},
		{"--no-such-flag"},
		{"--list", "--describe"},
	} {
		if o := e.tryCLI(t, bad...); o.code == 0 || strings.TrimSpace(o.stdout+o.stderr) == "" {
			t.Errorf("%v: exit %d, %q", bad, o.code, o.stdout+o.stderr)
		}
	}
	if o := cliAt(t, "127.0.0.1:1", "--list"); o.code == 0 {
		t.Error("an address where nobody answers has exit status 0")
	}
}

func lineDecodeState(t *testing.T, e *env) {
	m := e.mirrored(t, "c7-20", 1, 1)
	e.ended(t, m, m)
	seen := map[float64]bool{}
	for line := range strings.Lines(e.cli(t, "--decode-state")) {
		var r struct {
			Key struct {
				Type any            `json:"type"`
				Data map[string]any `json:"data"`
			} `json:"key"`
			Value *struct {
				Version any            `json:"version"`
				Data    map[string]any `json:"data"`
			} `json:"value"`
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if r.Key.Data["mirrorName"] != m {
			continue
		}
		kind, ok := r.Key.Type.(float64)
		if !ok {
			t.Errorf("the type is no number: %s", line)
			continue
		}
		seen[kind] = true
		if r.Value != nil {
			if _, ok := r.Value.Version.(float64); !ok {
				t.Errorf("the version is no number: %s", line)
			}
		}
	}
	for _, kind := range []float64{1, 2, 3, 4} {
		if !seen[kind] {
			t.Errorf("no record of type %v", kind)
		}
	}
}

func lineHelp(t *testing.T, e *env) {
	help := line(t, "--help")
	for action, flags := range map[string][]string{
		"create": {"mirror", "mirror-config"}, "start": {"mirror", "topics", "exclude", "allow-truncate", "dry-run", "wait"},
		"stop": {"topics", "wait"}, "pause": {"topics"}, "resume": {"topics"}, "recover": {"topics", "allow-truncate"}, "delete": {"mirror"},
		"list": {"json"}, "describe": {"failed"}, "alter": {"add-config", "delete-config"}, "explain": {"topic", "config", "group", "acl", "quota"},
		"verify": {"mirror"}, "switchover": {"mirror"}, "decode-log": nil, "decode-state": nil,
	} {
		if !strings.Contains(help, "--"+action) {
			t.Errorf("--help does not name --%s", action)
		}
		one := line(t, "--help", action)
		for _, flag := range flags {
			if !strings.Contains(one, "--"+flag) {
				t.Errorf("--help %s does not name --%s", action, flag)
			}
		}
	}
	if out := line(t, "--version"); !strings.Contains(out, "kafka-cluster-mirrors") {
		t.Errorf("--version prints %q", out)
	}
}

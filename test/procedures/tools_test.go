package procedures

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// testInterrupted ends a switchover by Ctrl-C while writers are held back: they go on as if
// nothing had been, and a second one succeeds.
func (w *world) testInterrupted(t *testing.T) {
	const topic, mirror = "interrupt-orders", "interrupted"
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.topics(ctx, []string{topic}); err != nil {
		t.Fatal(err)
	}
	w.createMirror(ctx, t, mirror)
	w.cli(ctx, t, "--start", "--mirror", mirror, "--topics", topic, "--wait")
	if err := w.startWriter(ctx, []string{topic}); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(ctx, filepath.Join(stack.Binaries(), "kafka-cluster-mirrors"),
		"--bootstrap-server", w.dst.Proxies()[0], "--switchover", "--mirror", mirror, "--quiet-period", "10m")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "fence:") {
	}
	held, err := w.writers[topic].count()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 || !strings.Contains(stderr.String(), "allowed again") {
		t.Errorf("%v: %s", err, stderr.String())
	}
	begun := time.Now()
	if err := w.writers[topic].more(ctx, 50); err != nil {
		t.Errorf("the writer does not go on: %v", err)
	}
	t.Logf("held back after %d records; 50 more were acknowledged %s after the interruption", held, time.Since(begun).Round(time.Millisecond))

	w.cli(ctx, t, "--switchover", "--mirror", mirror)
	// Again is harmless.
	if out := w.cli(ctx, t, "--switchover", "--mirror", mirror, "--json"); !strings.Contains(out, `"done": true`) {
		t.Errorf("a second switchover: %s", out)
	}
	if err := w.moveWriter(ctx, []string{topic}); err != nil {
		t.Fatal(err)
	}
	if err := w.writtenOnce(ctx, []string{topic}); err != nil {
		t.Error(err)
	}
}

// testOpenTransaction moves a topic while a transaction is open at the source: it is waited
// for, and its records are there, committed.
func (w *world) testOpenTransaction(t *testing.T) {
	const topic, mirror = "transaction-orders", "transactions"
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.topics(ctx, []string{topic}); err != nil {
		t.Fatal(err)
	}
	w.createMirror(ctx, t, mirror)
	w.cli(ctx, t, "--start", "--mirror", mirror, "--topics", topic, "--wait")
	cl, err := kgo.NewClient(append(quick(), kgo.SeedBrokers(w.src.Proxies()...), kgo.TransactionalID("mover"), kgo.DefaultProduceTopic(topic))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("in a transaction")).FirstErr(); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(ctx, filepath.Join(stack.Binaries(), "kafka-cluster-mirrors"), "--bootstrap-server", w.dst.Proxies()[0], "--switchover", "--mirror", mirror)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stdout strings.Builder
	cmd.Stdout = &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	waited := false
	for lines.Scan() {
		if strings.Contains(lines.Text(), "transactions are open at the source in "+topic) && !waited {
			waited = true
			if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
				t.Errorf("the transaction cannot end behind the fence: %v", err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || !waited {
		t.Fatalf("%v, waited for the transaction: %t\n%s", err, waited, stdout.String())
	}
	values, err := readAll(ctx, w.dst, topic, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(values, "in a transaction") || len(values) != perTopic+1 {
		t.Errorf("%d records, the one of the transaction: %t", len(values), slices.Contains(values, "in a transaction"))
	}
}

// testVerbs goes through a mirror's life by the command line, with what is already so, what
// is only asked for, and what cannot be.
func (w *world) testVerbs(t *testing.T) {
	const topic, mirror = "verbs-orders", "verbs"
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.topics(ctx, []string{topic}); err != nil {
		t.Fatal(err)
	}
	w.createMirror(ctx, t, mirror)
	for _, tc := range []struct {
		line string
		code int
		want string // in what is printed
	}{
		{"--start --mirror verbs --topics verbs-.* --dry-run", 0, "1 of 1 topic would be started"},
		{"--describe --mirror verbs", 0, "MIRROR"},
		{"--start --mirror verbs --topics verbs-.* --wait", 0, "1 topic of mirror verbs is mirrored, without lag."},
		{"--start --mirror verbs --topics verbs-orders", 0, "1 of 1 topic started"},
		{"--resume --mirror verbs --topics verbs-orders", 0, "already so (MIRROR_TOPIC_NOT_PAUSED)"},
		{"--pause --mirror verbs --topics verbs-orders --dry-run", 0, "would be paused"},
		{"--pause --mirror verbs --topics verbs-.* --wait", 0, "1 topic of mirror verbs is PAUSED."},
		{"--pause --mirror verbs --topics verbs-orders --wait", 0, "already so (MIRROR_TOPIC_ALREADY_PAUSED)"},
		{"--start --mirror verbs --topics verbs-orders", 1, "MIRROR_TOPIC_NOT_STOPPED"},
		{"--switchover --mirror verbs", 1, "verbs-orders-0 is PAUSED"},
		{"--resume --mirror verbs --topics verbs-orders --wait", 0, "1 topic of mirror verbs is MIRRORING."},
		{"--recover --mirror verbs --topics verbs-orders", 1, "INVALID_CLUSTER_MIRROR_STATES"},
		{"--pause --mirror verbs --topics nothing", 1, "nothing"},
		{"--describe --mirror verbs --topics verbs-orders --json", 0, `"state": "MIRRORING"`},
		{"--describe --failed --mirror verbs", 0, "RETRY"},
		{"--list --mirror verbs", 0, "verbs   1       " + w.src.Cluster.ID()},
		{"--alter --mirror verbs --add-config mirror.fetch.max.byte=2097152", 1, "mirror.fetch.max.bytes"},
		{"--alter --mirror verbs --add-config mirror.fetch.max.bytes=2097152 --dry-run", 0, "would be altered"},
		{"--describe-configs --mirror verbs", 0, "mirror.fetch.max.bytes"},
		{"--alter --mirror verbs --add-config mirror.fetch.max.bytes=2097152,", 1, "mirror.fetch.max.bytes"},
		{"--alter --mirror verbs --add-config mirror.fetch.max.bytes=2097152", 0, "Mirror verbs altered."},
		{"--describe-configs --mirror verbs --json", 0, `"value": "2097152"`},
		{"--alter --mirror verbs --delete-config mirror.fetch.max.bytes", 0, "Mirror verbs altered."},
		{"--explain --mirror verbs --topic verbs-orders", 0, "topic verbs-orders is mirrored by mirror verbs."},
		{"--explain --mirror verbs --topic other", 0, "topic other is not mirrored by mirror verbs."},
		{"--delete --mirror verbs", 1, topic},
		{"--stop --mirror verbs --topics verbs-.* --wait", 0, "1 topic of mirror verbs is STOPPED and writable."},
		{"--stop --mirror verbs --topics verbs-orders --wait", 0, "1 topic of mirror verbs is STOPPED and writable."},
		{"--start --mirror verbs --topics verbs-l.*", 0, "is not excluded (mirror.topics.exclude=__.*,verbs-.*)"},
		{"--start --mirror verbs --topics verbs-.* --wait", 0, "1 topic of mirror verbs is mirrored, without lag."},
		{"--stop --mirror verbs --topics verbs-orders --wait", 0, "STOPPED"},
		{"--delete --mirror verbs --dry-run", 0, "would be deleted"},
		{"--delete --mirror verbs", 0, "Mirror verbs deleted."},
		{"--describe --mirror verbs", 1, "verbs"},
	} {
		out, err := w.dst.CLI(ctx, strings.Fields(tc.line)...)
		code := 0
		var failed *stack.CLIError
		if errors.As(err, &failed) {
			code, out = failed.ExitCode(), out+failed.Stderr
		} else if err != nil {
			t.Fatal(err)
		}
		if code != tc.code || !strings.Contains(out, tc.want) {
			t.Errorf("%s: exit %d, want %d, and %q in\n%s", tc.line, code, tc.code, tc.want, out)
		}
	}
}

func (w *world) createMirror(ctx context.Context, t *testing.T, mirror string) {
	t.Helper()
	file, err := w.mirrorConfig(mirror)
	if err != nil {
		t.Fatal(err)
	}
	w.cli(ctx, t, "--create", "--mirror", mirror, "--mirror-config", file)
}

func (w *world) cli(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.dst.CLI(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// testDecoders decodes what sidecars really write, read from the brokers and from their files, where
// Kafka's own tool has to agree on all but keys and payloads.
func (w *world) testDecoders(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w.createMirror(ctx, t, "decoded") // whatever else this state topic holds
	seen := map[float64]bool{}
	for line := range strings.SplitSeq(strings.TrimSpace(w.cli(ctx, t, "--decode-state")), "\n") {
		var r struct {
			Key struct {
				Type float64         `json:"type"`
				Data json.RawMessage `json:"data"`
			} `json:"key"`
			Value json.RawMessage `json:"value"`
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil || len(r.Key.Data) == 0 || len(r.Value) == 0 {
			t.Fatalf("%q: %v", line, err)
		}
		seen[r.Key.Type] = true
	}
	for _, kind := range []float64{1, 2, 3, 4} {
		if !seen[kind] {
			t.Errorf("no record of type %v is decoded", kind)
		}
	}

	in, err := harness.Install(ctx, harness.DefaultVersion)
	if err != nil {
		t.Fatal(err)
	}
	class, err := in.FindClass("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for p := range int32(4) {
		dir, err := w.dst.Cluster.Brokers()[0].PartitionDir("__cluster_mirror_state", p)
		if err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	theirs, err := in.Tool(ctx, harness.ToolRun{Class: class, Args: []string{"--deep-iteration", "--files", strings.Join(files, ",")}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(stack.Binaries(), "kafka-cluster-mirrors"), append([]string{"--decode-log"}, files...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	ours := regexp.MustCompile(` key: .*`).ReplaceAllString(string(out), "")
	// The topic is written to meanwhile: ours was read later and may be longer.
	missing, lines := 0, map[string]bool{}
	for line := range strings.SplitSeq(ours, "\n") {
		lines[line] = true
	}
	for line := range strings.SplitSeq(theirs.Stdout, "\n") {
		if !lines[line] {
			if missing++; missing == 1 {
				t.Errorf("Kafka prints, and --decode-log does not: %s", line)
			}
		}
	}
	if strings.Contains(string(out), " key: ?") {
		t.Error("a record is not understood")
	}
	t.Logf("%d lines of %d files compared, %d missing", len(lines), len(files), missing)
}

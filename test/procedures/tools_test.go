package procedures

import (
	"bufio"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
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

	cmd := exec.CommandContext(ctx, filepath.Join(binaries(), "kafka-cluster-mirrors"),
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
	out, err := exec.CommandContext(ctx, filepath.Join(binaries(), "kafka-cluster-mirrors"), append([]string{"--decode-log"}, files...)...).Output()
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

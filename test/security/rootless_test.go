package security

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// nobody is a user who owns nothing.
const nobody = 65534

// jail is a program in the place of mirror-sidecar: it starts that as nobody, without a capability, where all file
// systems are read only but for two folders beside its properties file, data.dir and tmp.
const jail = `#!/bin/sh
set -e
here=$(dirname "$0")
config=$3 # run --config FILE
export JAILED="$here/mirror-sidecar.real" TMPDIR="$(dirname "$config")/tmp" DATA="${config%%.properties}"
exec unshare -m sh -ec '
mount --make-rprivate /
mount --bind "$TMPDIR" "$TMPDIR"
mount --bind "$DATA" "$DATA"
while read -r _ at _; do
  case $at in "$TMPDIR"|"$DATA"|/proc*|/sys*|/dev|/dev/pts|/dev/mqueue) ;; *) mount -o remount,bind,ro "$at" 2>/dev/null || true;; esac
done < /proc/self/mounts
exec setpriv --reuid %d --regid %d --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all sh -ec "
  for there in / /tmp /var/tmp /dev/shm; do if touch \$there/jail-probe 2>/dev/null; then echo \$there is writable >&2; exit 9; fi; done
  exec \"\$JAILED\" \"\$@\"" jailed "$@"
' jail "$@"
`

// jailed makes a folder of programs whose mirror-sidecar is in jail.
func jailed(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	for _, tool := range []string{"unshare", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("no mount namespaces here: %v: %s", err, out)
	}
	dir := openFolder(t)
	raw, err := os.ReadFile(filepath.Join(stack.Binaries(), "mirror-sidecar"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"mirror-sidecar.real": raw, "mirror-sidecar": fmt.Appendf(nil, jail, nobody, nobody)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(stack.Binaries(), "kafka-cluster-mirrors"), filepath.Join(dir, "kafka-cluster-mirrors")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// openFolder is a folder that others may look into.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "jail-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// give makes what a jailed sidecar reads and writes its own: its properties, the keys, data.dir and tmp.
func give(t *testing.T, config string, others ...string) {
	t.Helper()
	dir := filepath.Dir(config)
	folders := []string{strings.TrimSuffix(config, ".properties"), filepath.Join(dir, "tmp")}
	for _, f := range folders {
		if err := os.MkdirAll(f, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range append(append(folders, config), others...) {
		if err := os.Chown(f, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

// written lists the files in a folder, in short.
func written(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, strings.TrimPrefix(path, dir))
		}
		return nil // what goes away meanwhile
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestStartsAsNobody: the process comes up and answers as a user without rights on a read-only file system, also while there is
// no cluster.
func TestStartsAsNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the programs")
	}
	bin, dir := jailed(t), openFolder(t)
	ports, err := harness.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "sidecar.properties")
	text := fmt.Sprintf("home.broker.bootstrap=127.0.0.1:1\ncontroller.quorum.bootstrap.servers=127.0.0.1:1\nlisteners=CLIENT://127.0.0.1:%d\n"+
		"virtual.listeners=127.0.0.1:%d\nhttp.listen=127.0.0.1:%d\ndata.dir=%s\n", ports[0], ports[1], ports[2], strings.TrimSuffix(config, ".properties"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	give(t, config)
	cmd := exec.Command(filepath.Join(bin, "mirror-sidecar"), "run", "--config", config)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	defer func() { _ = cmd.Process.Kill(); <-ended }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for answered := false; !answered; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/livez", ports[2]), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			answered = resp.StatusCode == http.StatusOK
		}
		select {
		case <-ended:
			t.Fatalf("it has ended: %s", &out)
		case <-ctx.Done():
			t.Fatal("/livez never answered")
		case <-tick.C:
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t65534\t65534\t65534\t65534", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("not %q: %s", want, status)
		}
	}
	t.Logf("data.dir has %v", written(t, strings.TrimSuffix(config, ".properties")))
	if got := written(t, dir); len(got) < 2 {
		t.Errorf("it has written %v", got)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-ctx.Done():
		t.Fatal("it does not end")
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit status %d: %s", code, &out)
	}
}

// TestMirrorsAsNobody: all of a sidecar's work, its policies' processes included, needs no more.
func TestMirrorsAsNobody(t *testing.T) {
	if testing.Short() || !harness.Full() {
		t.Skip("the long form: MIRROR_FULL=1")
	}
	bin := jailed(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	source, err := harness.Start(ctx, harness.Config{Brokers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Stop() }()
	s, err := stack.Start(ctx, stack.Config{Kafka: harness.Config{Brokers: 1}, Bin: bin, NoSidecars: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop() }()
	c := s.Sidecars[0]
	give(t, c.ConfigFile(), s.KeyFile())
	if err := s.StartSidecars(ctx); err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(source.Bootstrap(harness.ListenerClient)...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	if err := harness.AwaitTopic(ctx, cl, "orders"); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	mirror := filepath.Join(t.TempDir(), "mirror.properties")
	if err := os.WriteFile(mirror, []byte("bootstrap.servers="+strings.Join(source.Bootstrap(harness.ListenerClient), ",")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--create", "--mirror", "east", "--mirror-config", mirror},
		{"--start", "--mirror", "east", "--topics", "ord.*", "--wait", "--timeout", "120s"},
		{"--verify", "--mirror", "east"},
	} {
		out, err := s.CLI(ctx, args...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	t.Logf("data.dir has %v", written(t, c.DataDir()))
	t.Logf("tmp has %v", written(t, filepath.Join(s.Dir(), "tmp")))
}

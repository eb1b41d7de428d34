package conformance

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// section6 tests configuration. What needs secrets is with §8; mirror keys are with C1.19.
func section6() []row {
	return []row{
		{proves: "C6.2 C6.6 A6.1 A6.4 keys of the process are flags", run: configFlags},
		{proves: "C6.5 unknown keys", run: configUnknown},
		{proves: "C6.10 patterns", run: configPatterns},
	}
}

func runSidecar(args ...string) (string, int) {
	cmd := exec.Command(program("mirror-sidecar"), append([]string{"run"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), cmd.ProcessState.ExitCode()
	}
	return string(out), 0
}

func configFlags(t *testing.T, e *env) {
	help, code := runSidecar("--help")
	if code != 0 {
		t.Fatalf("--help: exit %d", code)
	}
	for key, value := range map[string]string{
		"home.broker.bootstrap": "", "controller.quorum.bootstrap.servers": "", "listeners": "", "advertised.listeners": "",
		"virtual.listeners": "", "node.host.mapping": "", "http.listen": "127.0.0.1:9644", "state.encryption.key.file": "", "log.level": "info",
		"mirror.topic.num.partitions": "50", "mirror.state.topic.replication.factor": "3", "mirror.metadata.refresh.interval.ms": "30000",
		"mirror.num.replica.fetchers": "1", "mirror.failed.retry.initial.backoff.ms": "1000", "mirror.failed.retry.max.backoff.ms": "300000",
		"mirror.failed.retry.max.attempts": "20", "mirror.virtual.broker.id.offset": "10000", "mirror.virtual.replicas": "2",
		"mirror.buffer.memory.bytes": "268435456", "mirror.stop.replica.wait.ms": "30000", "mirror.replica.principals": "",
		"config.providers.allowed.paths": "", "config.providers.allowed.env": "",
	} {
		flag := "--" + strings.ReplaceAll(key, ".", "-") + " "
		line := ""
		for l := range strings.Lines(help) {
			if strings.Contains(l, flag) {
				line = l
			}
		}
		if line == "" {
			t.Errorf("there is no flag %s", flag)
		} else if value != "" && !strings.Contains(line, fmt.Sprintf("(default %q)", value)) {
			t.Errorf("the default of %s is not %s: %s", key, value, line)
		} else if value == "" && strings.Contains(line, "(default") {
			t.Errorf("%s has a default: %s", key, line)
		}
	}
	// A flag wins over the file: a level that does not exist ends it at once.
	file := e.dst.Sidecars[0].ConfigFile()
	if out, code := runSidecar("--config", file, "--log-level", "loudest"); code != 2 || !strings.Contains(out, "log.level") {
		t.Errorf("exit %d: %s", code, out)
	}
}

func configUnknown(t *testing.T, e *env) {
	file := propertiesFile(t, map[string]string{"home.broker.bootstrp": "x:1"})
	if out, code := runSidecar("--config", file); code == 0 || !strings.Contains(out, "home.broker.bootstrp") || !strings.Contains(out, `"home.broker.bootstrap"`) {
		t.Errorf("sidecar: exit %d: %s", code, out)
	}
	r := ask[*protocol.CreateClusterMirrorResponse](t, e, 0, createRequest("c6-5", e.sourceConfig("mirror.topic.include", "x")))
	refused(t, protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage), kerr.InvalidConfig.Code, "mirror.topic.include", "mirror.topics.include")
	o := e.tryCLI(t, "--create", "--mirror", "c6-5", "--mirror-config", propertiesFile(t, map[string]string{"bootstrap.server": "x:1"}))
	if o.code == 0 || !strings.Contains(o.stderr, "bootstrap.servers") {
		t.Errorf("command line: exit %d: %s", o.code, o.stderr)
	}
}

func configPatterns(t *testing.T, e *env) {
	m := e.mirror(t, "c6-10")
	for _, n := range []string{"c6-10.a", "c6-10.b", "c6-10.ab", "x-c6-10.a", "c6-10.y7"} {
		e.topic(t, n, 1, 1)
	}
	e.cli(t, "--start", "--mirror", m, "--topics", `c6-10\.(a|b),c6-10\.y\d+`, "--exclude", `.*b`)
	e.waitState(t, m, mirroring, "c6-10.a", "c6-10.y7")
	if d := e.describe(t, m); len(d.Topics) != 2 {
		t.Errorf("%d topics are mirrored, want those that match as a whole: %+v", len(d.Topics), d.Topics)
	}
	o := e.tryCLI(t, "--start", "--mirror", m, "--topics", `c6-10(?=x)`) // no RE2
	if o.code == 0 || !strings.Contains(o.stderr, "regular expression") {
		t.Errorf("a pattern that is not RE2: exit %d: %s", o.code, o.stderr)
	}
	_ = harness.ListenerInternal
}

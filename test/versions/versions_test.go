package versions

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

// TestMatrix runs the rows of the matrix one after the other.
func TestMatrix(t *testing.T) {
	harness.SkipShort(t)
	pick := os.Getenv(rowsEnv)
	if !harness.Full() && pick == "" {
		t.Skip("MIRROR_FULL=1 runs it; TestUpgrade is the short form")
	}
	re, err := regexp.Compile(pick)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range matrix() {
		if !re.MatchString(r.name()) {
			continue
		}
		t.Run(r.name(), func(t *testing.T) { runRow(t, r) })
	}
}

func runRow(t *testing.T, r row) {
	begun := time.Now()
	res := &result{Name: r.name(), Destination: r.destination.String(), Source: r.source.String(), Note: r.note}
	if r.uncordoned {
		res.Note = "allow.uncordoned"
	}
	defer func() { res.put(t, begun) }()
	src, dst := r.config(2)
	e := start(t, src, dst)
	e.feed(t, workload.AllKinds(), 40)
	e.settle(t)
	e.begin(t)
	if r.source.version < "4" {
		e.oldConfigs(t)
	}
	e.more(t, 100)
	e.progress(t, "live")
	e.restartSource(t)
	e.more(t, 100)
	e.progress(t, "after the source's restart")
	e.finish(t, res)
}

// oldConfigs mirrors a topic with a config that 4.0 has dropped.
func (e *env) oldConfigs(t *testing.T) {
	t.Helper()
	const topic = "old-configs"
	dropped, kept := "false", "-1"
	r, err := e.srcAdmin.CreateTopic(t.Context(), 1, 1, map[string]*string{"message.downconversion.enable": &dropped, "retention.ms": &kept}, topic)
	if err == nil {
		err = r.Err
	}
	if err != nil {
		t.Fatal(err)
	}
	e.cli(t, "--start", "--mirror", mirror, "--topics", topic, "--wait")
	configs, err := e.dstAdmin.DescribeTopicConfigs(t.Context(), topic)
	if err != nil || len(configs) != 1 {
		t.Fatalf("configs of %s: %v, %v", topic, configs, err)
	}
	for _, c := range configs[0].Configs {
		if c.Key == "message.downconversion.enable" || c.Key == "retention.ms" && *c.Value != kept {
			t.Errorf("%s has %s=%s", topic, c.Key, *c.Value)
		}
	}
}

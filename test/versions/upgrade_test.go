package versions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

const (
	featureTool = "org.apache.kafka.tools.FeatureCommand"
	clusterTool = "org.apache.kafka.tools.ClusterTool"
)

// kinds that the upgrades are made under: all that a follower has to keep account of.
func kinds() []workload.Kind {
	return []workload.Kind{workload.Idempotent, workload.Transactional, workload.CompactedTransactional}
}

// TestUpgrade upgrades the features of a destination whose brokers are of 4.4 already, while
// producers run, and has its virtual brokers unregistered by somebody else.
func TestUpgrade(t *testing.T) {
	r := row{destination: side{version: dstNewest, level: "4.3-IV0"}, source: side{version: srcUsual}}
	begun := time.Now()
	res := &result{Name: "features", Destination: "4.4.0, 4.3-IV0 → 4.4-IV2", Source: srcUsual, Note: "kafka-features upgrade under load; refused while a sidecar does not know the level"}
	defer func() { res.put(t, begun) }()
	src, dst := r.config(2)
	e := startOld(t, src, dst)
	e.feed(t, kinds(), 40)
	e.settle(t)
	e.begin(t)
	e.upgradeFeatures(t)
	e.unregistered(t)
	e.finish(t, res)
}

// TestRollingUpgrade upgrades a destination from 4.3 to 4.4 while producers run: its brokers one by
// one, then its features. The sidecars run on, but for the one that is too old.
func TestRollingUpgrade(t *testing.T) {
	harness.SkipShort(t)
	if !harness.Full() {
		t.Skip("MIRROR_FULL=1 runs it")
	}
	r := row{destination: side{version: dstOldest}, source: side{version: srcUsual}}
	begun := time.Now()
	res := &result{Name: "rolling", Destination: "4.3.1 → 4.4.0, broker by broker", Source: srcUsual, Note: "sidecars run on; then kafka-features upgrade"}
	defer func() { res.put(t, begun) }()
	src, dst := r.config(3)
	e := startOld(t, src, dst)
	e.feed(t, kinds(), 40)
	e.settle(t)
	e.begin(t)
	in, err := harness.Install(t.Context(), dstNewest)
	if err != nil {
		t.Fatal(err)
	}
	pids := map[int32]int{}
	for _, c := range e.dst.Sidecars {
		pids[c.Broker] = c.Process().PID()
	}
	for _, n := range e.dst.Cluster.Brokers() {
		n.Use(in)
		func() {
			ctx, cancel := context.WithTimeout(t.Context(), startup)
			defer cancel()
			step := time.Now()
			if err := n.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			t.Logf("broker %d runs 4.4.0 after %v", n.ID(), time.Since(step).Round(time.Millisecond))
		}()
		e.progress(t, fmt.Sprintf("broker %d is upgraded", n.ID()))
		e.waitISR(t)
	}
	for _, c := range e.dst.Sidecars {
		if !c.Running() || c.Process().PID() != pids[c.Broker] {
			t.Errorf("sidecar %d did not run on", c.Broker)
		}
	}
	e.upgradeFeatures(t)
	e.finish(t, res)
}

// startOld starts a stack whose first sidecar knows no metadata.version above 4.3's.
func startOld(t *testing.T, src harness.Config, dst stack.Config) *env {
	t.Helper()
	dst.NoSidecars = true
	e := start(t, src, dst)
	ctx, cancel := context.WithTimeout(t.Context(), startup)
	defer cancel()
	if err := os.Setenv(levelEnv, "30"); err != nil {
		t.Fatal(err)
	}
	err := e.dst.Sidecars[0].Launch(ctx)
	if err := errors.Join(err, os.Unsetenv(levelEnv)); err != nil {
		t.Fatal(err)
	}
	if err := e.dst.StartSidecars(ctx); err != nil {
		t.Fatal(err)
	}
	if err := e.dst.Sidecars[0].WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return e
}

// tool runs one of Kafka's programs against the brokers, and gives all that it prints.
func (e *env) tool(t *testing.T, class string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := e.dst.Cluster.Brokers()[0].Installation().Tool(ctx, harness.ToolRun{Class: class, Args: args})
	return res.Stdout + res.Stderr, err
}

// upgradeFeatures is what an operator does last. The cluster refuses while one sidecar is too old,
// and names it.
func (e *env) upgradeFeatures(t *testing.T) {
	t.Helper()
	bootstrap := strings.Join(e.dst.Direct(), ",")
	out, err := e.tool(t, featureTool, "--bootstrap-server", bootstrap, "upgrade", "--release-version", "4.4")
	if err == nil || !strings.Contains(out, fmt.Sprint(e.dst.Sidecars[0].VirtualID())) {
		t.Fatalf("the upgrade beyond what virtual broker %d knows is to be refused with its name; it was answered with %v:\n%s", e.dst.Sidecars[0].VirtualID(), err, out)
	}
	t.Logf("refused: %s", strings.TrimSpace(out))
	ctx, cancel := context.WithTimeout(t.Context(), startup)
	defer cancel()
	old := e.dst.Sidecars[0]
	if err := old.Terminate(ctx); err != nil {
		t.Fatal(err)
	}
	if err := old.Start(ctx); err != nil { // the same, upgraded
		t.Fatal(err)
	}
	if out, err := e.tool(t, featureTool, "--bootstrap-server", bootstrap, "upgrade", "--release-version", "4.4"); err != nil {
		t.Fatalf("upgrade: %v\n%s", err, out)
	}
	out, err = e.tool(t, featureTool, "--bootstrap-server", bootstrap, "describe")
	if err != nil || !strings.Contains(out, "FinalizedVersionLevel: 4.4-IV2") {
		t.Errorf("describe after the upgrade: %v\n%s", err, out)
	}
	e.more(t, 50)
	e.progress(t, "the features are upgraded")
	for _, c := range e.dst.Sidecars {
		if !c.Running() {
			t.Errorf("sidecar %d has ended:\n%s", c.Broker, c.LogTail())
		}
	}
}

// unregistered has somebody else unregister a virtual broker, twice, as an operator does that
// removes what it does not know.
func (e *env) unregistered(t *testing.T) {
	t.Helper()
	c := e.dst.Sidecars[0]
	pid := c.Process().PID()
	for n := 1; n <= 2; n++ {
		begun := time.Now()
		if out, err := e.tool(t, clusterTool, "unregister", "--bootstrap-server", strings.Join(e.dst.Direct(), ","), "--id", fmt.Sprint(c.VirtualID())); err != nil {
			t.Fatalf("unregister: %v\n%s", err, out)
		}
		await(t, "the virtual broker is back", func(ctx context.Context) error {
			metrics, err := get(ctx, "http://"+c.HTTP+"/metrics")
			if err != nil {
				return err
			}
			if want := fmt.Sprintf("kafka_mirror_virtual_broker_unregistered_total %d", n); !strings.Contains(metrics, want) {
				return fmt.Errorf("no %q among the metrics", want)
			}
			_, err = get(ctx, "http://"+c.HTTP+"/readyz")
			return err
		})
		t.Logf("unregistered by somebody else, live again after %v", time.Since(begun).Round(time.Millisecond))
		e.more(t, 20)
		e.progress(t, "the virtual broker was unregistered")
	}
	if !c.Running() || c.Process().PID() != pid {
		t.Error("the sidecar did not live through it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	body, err := get(ctx, "http://"+c.HTTP+"/readyz")
	if err != nil || !strings.Contains(body, fmt.Sprint(c.VirtualID())) || !strings.Contains(body, "warning") {
		t.Errorf("unregistered twice, and readiness says %q, %v", body, err)
	}
	metrics, err := get(ctx, "http://"+c.HTTP+"/metrics")
	if err != nil || !strings.Contains(metrics, "kafka_mirror_virtual_broker_contested 1") {
		t.Errorf("unregistered twice, and no metric says so (%v)", err)
	}
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

// waitISR waits until every real replica is in sync again.
func (e *env) waitISR(t *testing.T) {
	t.Helper()
	brokers := len(e.dst.Cluster.Brokers())
	await(t, "every real replica in sync", func(ctx context.Context) error {
		topics, err := e.dstAdmin.ListTopics(ctx, e.load.TopicNames()...)
		if err != nil {
			return err
		}
		for _, topic := range topics {
			for _, p := range topic.Partitions {
				real := 0
				for _, b := range p.ISR {
					if b < stack.VirtualOffset {
						real++
					}
				}
				if real != brokers {
					return fmt.Errorf("%s-%d: in sync are %v", topic.Topic, p.Partition, p.ISR)
				}
			}
		}
		return nil
	})
}

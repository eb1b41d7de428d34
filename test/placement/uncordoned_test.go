package placement

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// TestUncordoned: a cluster whose metadata.version knows no cordon. The sidecars want to be
// told that it shall be so; then the proxies place what clients create, the sweeper moves off
// what nobody has placed, and mirrors work.
func TestUncordoned(t *testing.T) {
	racks := map[int32]string{1: "a", 2: "a", 3: "b"}
	e := start(t, func(c *stack.Config) {
		c.Kafka.Format = []string{"--release-version", "4.2"}
		c.Kafka.NodeProperties = func(id int32) map[string]string { return map[string]string{"broker.rack": racks[id]} }
		c.Kafka.Properties["auto.create.topics.enable"] = "true"
		c.Kafka.Properties["num.partitions"] = "3"
		c.Sidecar["allow.uncordoned"] = "true"
	})
	t.Run("refused without being asked", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(stack.Binaries(), "mirror-sidecar"), "run", "--config", e.dst.Sidecars[0].ConfigFile(), "--allow-uncordoned=false",
			"--listeners", "CLIENT://127.0.0.1:0", "--virtual-listeners", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--data-dir", t.TempDir())
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !strings.Contains(string(out), "--allow-uncordoned") || !strings.Contains(string(out), "4.3-IV0") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	w := e.watchPlacement(t, func(topic string) bool { return strings.HasPrefix(topic, "mirrored") })
	t.Run("placed", func(t *testing.T) { placed(t, e, w, racks) })
	t.Run("swept", func(t *testing.T) {
		factors := map[string]int{}
		for i := range 4 {
			name := fmt.Sprintf("around-%d", i)
			e.createAround(t, name, 4, 2)
			factors[name] = 2
		}
		e.createUnasked(t)
		e.createMirror(t)
		e.allReal(t, w, factors)
		if landed, _, longest := w.report(t); landed == 0 || longest > sweepLimit {
			t.Errorf("%d partitions landed on virtual brokers, for %v at most", landed, longest)
		}
		e.usable(t, "around-0", 4)
	})
	t.Run("mirrored", func(t *testing.T) {
		e.mirrorTopic(t, "mirrored", 2)
		mustReassign(t, e.proxied, "mirrored", map[int32][]int32{0: {3, 1}, 1: {2, 3}})
		e.assigned(t, "mirrored", 0, 3, 1)
		e.assigned(t, "mirrored", 1, 2, 3)
		e.same(t, "mirrored")
		e.allReal(t, w, nil)
	})
	if !harness.Full() {
		return
	}
	t.Run("upgraded", func(t *testing.T) {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		f.Feature, f.MaxVersionLevel, f.UpgradeType = "metadata.version", 30, 1
		req.FeatureUpdates = append(req.FeatureUpdates, f)
		resp, err := req.RequestWith(t.Context(), e.direct)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			t.Fatalf("upgrade: %v %s", err, text(resp.ErrorMessage))
		}
		eventually(t, "all virtual brokers are cordoned", func(context.Context) error {
			for _, b := range w.img.Brokers() {
				if isVirtual(b.ID) && len(b.CordonedDirs) == 0 {
					return fmt.Errorf("broker %d is not", b.ID)
				}
			}
			return nil
		})
		before, _, _ := w.report(t)
		e.createAround(t, "after", 12, 2)
		if err := harness.AwaitTopic(t.Context(), e.direct, "after"); err != nil {
			t.Fatal(err)
		}
		if after, _, _ := w.report(t); after != before {
			t.Errorf("%d partitions landed on virtual brokers", after-before)
		}
		mustReassign(t, e.proxied, "mirrored", map[int32][]int32{0: {1, 2}})
		e.assigned(t, "mirrored", 0, 1, 2)
		e.same(t, "mirrored")
	})
}

// createAround asks a real broker for a topic. The controller puts most of it on virtual brokers, so
// that nobody may know a leader for a moment.
func (e *env) createAround(t *testing.T, topic string, partitions int32, rf int16) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, partitions, rf
	req.Topics = append(req.Topics, rt)
	resp, err := e.direct.Broker(1).Request(t.Context(), req)
	if err == nil {
		err = kerr.ErrorForCode(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
}

// placed creates topics and partitions through the proxies.
func placed(t *testing.T, e *env, w *watch, racks map[int32]string) {
	adm := kadm.NewClient(e.proxied)
	create := func(partitions int32, rf int16, configs map[string]*string, names ...string) kadm.CreateTopicResponses {
		t.Helper()
		r, err := adm.CreateTopics(t.Context(), partitions, rf, configs, names...)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := create(6, 2, map[string]*string{"retention.ms": kadm.StringPtr("77777")}, "placed")["placed"]; r.Err != nil || r.NumPartitions != 6 || r.ReplicationFactor != 2 || r.Configs["retention.ms"].Value == nil || *r.Configs["retention.ms"].Value != "77777" {
		t.Errorf("%+v", r)
	}
	if r := create(-1, -1, nil, "defaults")["defaults"]; r.Err != nil || r.NumPartitions != 3 || r.ReplicationFactor != 2 {
		t.Errorf("%+v", r)
	}
	if r := create(1, 4, nil, "wide")["wide"]; !errors.Is(r.Err, kerr.InvalidReplicationFactor) || !strings.Contains(r.ErrMessage, "only 3 broker(s) are registered") {
		t.Errorf("%+v", r)
	}
	if r := create(1, 1, nil, "placed")["placed"]; !errors.Is(r.Err, kerr.TopicAlreadyExists) {
		t.Errorf("%+v", r)
	}
	dry, err := adm.ValidateCreateTopics(t.Context(), 2, 3, nil, "dry")
	if err != nil || dry["dry"].Err != nil || dry["dry"].NumPartitions != 2 || dry["dry"].ReplicationFactor != 3 {
		t.Errorf("%+v, %v", dry, err)
	}
	eventually(t, "the sidecar's metadata has the topic", func(ctx context.Context) error {
		_, err := partitions(ctx, e.proxied, "placed")
		return err
	})
	if r, err := adm.UpdatePartitions(t.Context(), 12, "placed"); err != nil || r["placed"].Err != nil {
		t.Errorf("%+v, %v", r, err)
	}
	eventually(t, "placed has grown", func(context.Context) error {
		id, _ := w.img.Topic("placed")
		if n := len(w.img.TopicPartitions(id)); n != 12 {
			return fmt.Errorf("%d partitions", n)
		}
		return nil
	})
	leads := map[int32]int{}
	for _, p := range w.img.AllPartitions() {
		if p.Topic != "placed" && p.Topic != "defaults" {
			continue
		}
		if p.Topic == "placed" {
			leads[p.Replicas[0]]++
		}
		if len(p.Replicas) != 2 || slices.ContainsFunc(p.Replicas, isVirtual) || racks[p.Replicas[0]] == racks[p.Replicas[1]] {
			t.Errorf("%s-%d is on %v", p.Topic, p.Partition, p.Replicas)
		}
	}
	if len(leads) != 3 || leads[1] != 4 || leads[2] != 4 {
		t.Errorf("leaders %v", leads)
	}
	if _, exists := w.img.Topic("dry"); exists {
		t.Error("a topic was created that was only to be validated")
	}
	if landed, _, _ := w.report(t); landed > 0 {
		t.Errorf("%d partitions were placed on virtual brokers", landed)
	}
	e.usable(t, "placed", 12)
}

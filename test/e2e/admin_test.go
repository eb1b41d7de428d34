package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// testAnySidecar asks every sidecar for the same.
func (e *env) testAnySidecar(t *testing.T, mirror, topic string) {
	for _, c := range e.dst.Sidecars {
		if out := e.cliAt(t, c.Proxy, "--list"); !strings.Contains(out, mirror) || !strings.Contains(out, e.src.ID()) {
			t.Errorf("sidecar %d lists:\n%s", c.Broker, out)
		}
		out := e.cliAt(t, c.Proxy, "--describe", "--mirror", mirror)
		if !strings.Contains(out, topic) || !strings.Contains(out, "MIRRORING") {
			t.Errorf("sidecar %d describes:\n%s", c.Broker, out)
		}
		for _, verb := range []string{"--list", "--describe"} {
			if out := e.cliAt(t, c.Proxy, verb, "--json"); !json.Valid([]byte(out)) {
				t.Errorf("sidecar %d: %s --json gives:\n%s", c.Broker, verb, out)
			}
		}
		// Offsets come from whoever leads, whoever is asked.
		d, err := e.describeAt(t.Context(), e.client(t, []string{c.Proxy}, mirrorAPIs()), mirror)
		if err != nil {
			t.Errorf("sidecar %d: %v", c.Broker, err)
			continue
		}
		want, err := ends(t.Context(), e.srcAdmin, topic)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range d[topic] {
			if p.DestinationOffset != want[p.PartitionIndex] || p.SourceOffset != want[p.PartitionIndex] {
				t.Errorf("sidecar %d, partition %d: offsets %d and %d, want %d", c.Broker, p.PartitionIndex, p.SourceOffset, p.DestinationOffset, want[p.PartitionIndex])
			}
		}
	}
}

// testDelete deletes a mirror through a sidecar other than the first one.
func (e *env) testDelete(t *testing.T) {
	const mirror, topic = "to-delete", "deleted-mirror"
	e.createSource(t, 1, topic)
	write(t, e.writer(t, e.src.Bootstrap(harness.ListenerInternal)), topic, 1, 10, "source")
	e.createMirror(t, mirror)
	e.mirrorTopics(t, mirror, topic)
	e.waitMirrored(t, topic)
	last := e.dst.Sidecars[len(e.dst.Sidecars)-1].Proxy
	_, err := e.tryCLIAt(t, last, "--delete", "--mirror", mirror)
	if err == nil {
		t.Fatal("a mirror with a running topic was deleted")
	}
	if !strings.Contains(err.Error(), topic) {
		t.Errorf("%v, want the name of the topic that is not stopped", err)
	}
	if err := tryWrite(t.Context(), e.writer(t, e.dst.Proxies()), topic, 1, 1, "no"); err == nil {
		t.Error("the topic is writable after a delete that was refused")
	}
	e.stopTopics(t, mirror, topic)
	e.cliAt(t, last, "--delete", "--mirror", mirror)
	for _, c := range e.dst.Sidecars {
		if out := e.cliAt(t, c.Proxy, "--list"); strings.Contains(out, mirror) {
			t.Errorf("sidecar %d still lists it:\n%s", c.Broker, out)
		}
	}
	// An ordinary topic: it can be written, changed and deleted.
	write(t, e.writer(t, e.dst.Proxies()), topic, 1, 5, "local")
	adm := kadm.NewClient(e.client(t, e.dst.Proxies()))
	value := "1048576"
	if r, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}, topic); err != nil || r[0].Err != nil {
		t.Errorf("alter configs: %v %v", err, r)
	}
	if r, err := adm.CreatePartitions(t.Context(), 1, topic); err != nil || r.Error() != nil {
		t.Errorf("create partitions: %v %v", err, r.Error())
	}
	if r, err := adm.DeleteTopic(t.Context(), topic); err != nil || r.Err != nil {
		t.Errorf("delete topic: %v %v", err, r.Err)
	}
	// The name is free for another mirror.
	e.createMirror(t, mirror)
	e.cli(t, "--delete", "--mirror", mirror)
}

package replica

import (
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestCounts: virtual replicas, whether in sync or not, change none of the counts.
func TestCounts(t *testing.T) {
	const v = ids.Virtual(10000)
	img := metadata.NewImage(v)
	all := []int32{10001, 10002, 1, 2, 3}
	set := func(brokers []metadata.Broker, parts ...metadata.Partition) {
		var out []*metadata.Partition
		for i := range parts {
			p := parts[i]
			p.Topic, p.TopicID, p.Partition = "t", ids.UUID{1}, int32(i)
			out = append(out, &p)
		}
		ordinary := metadata.Partition{Topic: "o", TopicID: ids.UUID{2}, Replicas: []int32{1, 2}, ISR: []int32{1}, Leader: 1}
		img.Set(append(out, &ordinary), brokers, nil)
	}
	both := []metadata.Broker{{ID: 10001}, {ID: 10002}}
	led := func(leader int32, isr ...int32) metadata.Partition {
		return metadata.Partition{Replicas: all, ISR: isr, Leader: leader}
	}
	set(both, led(10001, all...), led(10001, 10001, 1, 2, 3), led(10002, 10002, 1), led(10001, all...))
	c := NewCounts(img, 10001, v, func(ids.TopicPartition, string) int { return 2 })
	defer c.Close()
	reg := prometheus.NewRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	expect := func(what string, leads, underReplicated, underMin, offline, shrinks, expands float64) {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			m := f.GetMetric()[0]
			got[strings.TrimPrefix(f.GetName(), "kafka_mirror_")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		want := map[string]float64{
			"leader_count": leads, "under_replicated_partitions": underReplicated, "under_min_isr_partitions": underMin,
			"offline_partitions": offline, "isr_shrinks_total": shrinks, "isr_expands_total": expands,
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	expect("well, one virtual replica away", 3, 0, 0, 0, 0, 0)
	set(both, led(10001, 10001, 1, 2), led(10001, 10001, 10002, 1), led(10002, all...), led(10001, 10001, 10002))
	expect("real replicas away", 3, 3, 2, 1, 3, 0)
	set(both, led(10001, 10002, 10001, 1, 2, 3), led(-1), led(10001, 10001, 1), led(10002, 10002, 1))
	expect("back, and leaders changed", 2, 1, 1, 1, 3, 1)
	set([]metadata.Broker{{ID: 10001, Fenced: true}, {ID: 10002}}, led(-1), led(10002, all...))
	expect("another one counts what nobody leads", 0, 0, 0, 0, 3, 1)
}

// TestCountsMissNoChange: what changes while they are made is seen too.
func TestCountsMissNoChange(t *testing.T) {
	const v, n = ids.Virtual(10000), 2000
	parts := func(isr ...int32) []*metadata.Partition {
		out := make([]*metadata.Partition, n)
		for i := range out {
			out[i] = &metadata.Partition{Topic: "t", TopicID: ids.UUID{1}, Partition: int32(i), Replicas: []int32{10001, 1, 2}, ISR: isr, Leader: 10001}
		}
		return out
	}
	for range 20 {
		img := metadata.NewImage(v)
		img.Set(parts(10001, 1, 2), nil, nil)
		after := parts(10001, 1)
		done := make(chan struct{})
		go func() { defer close(done); img.Set(after, nil, nil) }()
		c := NewCounts(img, 10001, v, func(ids.TopicPartition, string) int { return 1 })
		<-done
		c.Close()
		for tp, isr := range c.led {
			if len(isr) != 1 {
				t.Fatalf("partition %d: in sync are %v", tp.Partition, isr)
			}
		}
	}
}

package main

import (
	"errors"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/health"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/proxy"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// A sidecar that ends keeps writers from what is read only at that time, also where it began
// without a word of a former process, or where that said something else.
func TestUnbindHoldsWhatIsReadOnly(t *testing.T) {
	const virtual = ids.Virtual(10000)
	img := metadata.NewImage(virtual)
	part := func(topic string, id byte, n int32, replicas ...int32) *metadata.Partition {
		return &metadata.Partition{Topic: topic, TopicID: ids.UUID{id}, Partition: n, Replicas: replicas, ISR: replicas, Leader: replicas[0]}
	}
	img.Set([]*metadata.Partition{
		part("mirrored", 1, 0, 10001, 1), part("ordinary", 2, 0, 1), part("failed", 3, 0, 1), part("failed", 3, 1, 1),
		part("half", 4, 0, 10001, 1), part("half", 4, 1, 1), part("stopped since", 5, 0, 1),
	}, []metadata.Broker{{ID: 1}}, nil)
	readOnly := func(tp ids.TopicPartition) bool {
		return tp.TopicID == ids.UUID{1} || tp == ids.TopicPartition{TopicID: ids.UUID{3}, Partition: 1} || tp.TopicID == ids.UUID{4}
	}
	known := make(chan struct{})
	close(known)
	for name, tc := range map[string]struct {
		state <-chan struct{}
		held  map[byte]bool
	}{
		"the state is known": {known, map[byte]bool{1: true, 3: true, 4: true}},
		"it is not":          {make(chan struct{}), map[byte]bool{1: true, 3: true, 4: true, 5: true}},
	} {
		t.Run(name, func(t *testing.T) {
			late := proxy.NewLate(nil, nil)
			late.Held = func(topic ids.UUID) bool { return topic == ids.UUID{5} }
			served, err := health.New(health.Config{}, newMetrics())
			if err != nil {
				t.Fatal(err)
			}
			r := &front{image: img, late: late, health: served, waiting: errors.New("none")}
			mirrors := late.Deps(proxy.Deps{}).Mirrors
			r.late.Bind(proxy.Parts{})
			r.unbind(tc.state, readOnly)
			for id := byte(1); id <= 5; id++ {
				if got := mirrors.ReadOnly(ids.TopicPartition{TopicID: ids.UUID{id}}); got != tc.held[id] {
					t.Errorf("topic %d: read only %v", id, got)
				}
			}
		})
	}
}

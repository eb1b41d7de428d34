package coordinator

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestKept: the virtual replicas that a client's reassignment leaves in front.
func TestKept(t *testing.T) {
	for name, c := range map[string]struct {
		desired State
		state   PartitionState
		now     func(p *metadata.Partition)
		brokers []metadata.Broker // nil: all are alive
		want    []int32
		ok      bool
		err     *kerr.Error
	}{
		"mirrored":                    {desired: Mirroring, state: PartitionState{State: Mirroring}, want: []int32{10001, 10002}, ok: true},
		"paused":                      {desired: Paused, state: PartitionState{State: Paused}, want: []int32{10001, 10002}, ok: true},
		"failed":                      {desired: Mirroring, state: PartitionState{State: Failed}, want: []int32{10001, 10002}, ok: true},
		"one is dead":                 {desired: Mirroring, state: PartitionState{State: Mirroring}, brokers: []metadata.Broker{{ID: 10001, Fenced: true}, {ID: 10002}}, want: []int32{10002}, ok: true},
		"all are dead: another leads": {desired: Mirroring, state: PartitionState{State: Mirroring}, brokers: []metadata.Broker{{ID: 10001, Fenced: true}, {ID: 10003}}, want: []int32{10003}, ok: true},
		"nobody is alive":             {desired: Mirroring, state: PartitionState{State: Mirroring}, brokers: []metadata.Broker{{ID: 1}}, err: kerr.BrokerNotAvailable},
		"being stopped":               {desired: Stopped, state: PartitionState{State: Stopping}, err: kerr.ReassignmentInProgress},
		"being stopped, on its way":   {desired: Stopped, state: PartitionState{State: Stopping}, now: func(p *metadata.Partition) { p.Removing = []int32{10001, 10002} }, err: kerr.ReassignmentInProgress},
		"stopped":                     {desired: Stopped, state: PartitionState{State: Stopped}, now: func(p *metadata.Partition) { p.Replicas = []int32{1, 2} }},
		"its start was refused":       {desired: Mirroring, state: PartitionState{State: Failed, Detail: DetailConsentNeeded}, now: func(p *metadata.Partition) { p.Replicas = []int32{1, 2} }},
		"none yet: none is added":     {desired: Mirroring, state: PartitionState{State: LogTruncation}, now: func(p *metadata.Partition) { p.Replicas = []int32{1, 2} }, ok: true},
		"one is being added":          {desired: Mirroring, state: PartitionState{State: Mirroring}, now: func(p *metadata.Partition) { p.Adding = []int32{10001} }, want: []int32{10001, 10002}, ok: true},
		"one is being taken away":     {desired: Mirroring, state: PartitionState{State: Mirroring}, now: func(p *metadata.Partition) { p.Removing = []int32{10001} }, want: []int32{10002}, ok: true},
		"a topic that nobody mirrors": {desired: Unknown, now: func(p *metadata.Partition) { p.TopicID = idOf("other") }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			topic := r.mirrorTopic("t", c.desired, Mirroring)
			tp := ids.TopicPartition{TopicID: topic.TopicID}
			if c.state.State != 0 {
				r.put(record{kind: kindState, partition: partitionKey{"m", tp}, value: c.state})
			}
			if c.now != nil {
				r.change(topic, c.now)
			}
			if c.brokers != nil {
				r.img.Set(slices.Clone(r.parts), c.brokers, r.configs)
			}
			if c.desired == Unknown {
				tp.TopicID = idOf("other")
			}
			got, ok, err := r.Kept(tp)
			if !slices.Equal(got, c.want) || ok != c.ok || (c.err == nil) != (err == nil) || c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("%v, %t, %v; want %v, %t, %v", got, ok, err, c.want, c.ok, c.err)
			}
		})
	}
}

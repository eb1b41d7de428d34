package coordinator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestUnwritable: what the state is written to waits for a broker, and an operator is told which, and
// what Kafka's own way is to go on without it.
func TestUnwritable(t *testing.T) {
	t.Parallel()
	gone := func(topic string, partition int32, replicas []int32, elr ...int32) *metadata.Partition {
		return &metadata.Partition{Topic: topic, TopicID: idOf(topic), Partition: partition, Replicas: replicas, ELR: elr, LastRealISR: elr, Leader: -1}
	}
	led := func(topic string, partition int32) *metadata.Partition {
		return &metadata.Partition{Topic: topic, TopicID: idOf(topic), Partition: partition, Replicas: []int32{1, 2, 3}, ISR: []int32{1}, Leader: 1}
	}
	all := []int32{1, 2, 3}
	// The state topic has one partition; its writer's transactions are in the first of two.
	const writer = 0
	for name, tt := range map[string]struct {
		parts []*metadata.Partition
		alive []int32
		says  []string // in its order; none: it can be written
	}{
		"all is led":           {[]*metadata.Partition{led(StateTopic, 0), led(transactionTopic, 0), led(transactionTopic, 1)}, all, nil},
		"no transactions yet":  {[]*metadata.Partition{led(StateTopic, 0)}, all, nil},
		"others' transactions": {[]*metadata.Partition{led(StateTopic, 0), gone(transactionTopic, 1-writer, all, 3), led(transactionTopic, writer)}, []int32{1, 2}, nil},
		"the writer's, not all": {[]*metadata.Partition{led(StateTopic, 0), led(transactionTopic, 1-writer), gone(transactionTopic, writer, all, 3)}, []int32{1, 2}, []string{
			"cannot be written: __transaction_state-0 has no leader; bring back broker 3, which has all data. ",
			"transactions of every application", lastBrokerPage,
			": kafka-leader-election.sh --bootstrap-server b:1,b:2 --election-type UNCLEAN --topic __transaction_state --partition 0",
		}},
		"everything": {[]*metadata.Partition{gone(StateTopic, 0, all, 3), gone(transactionTopic, 0, all, 2, 3), gone(transactionTopic, 1, all, 2, 3)}, []int32{1}, []string{
			"partitions 0, 1 of __transaction_state have no leader; bring back broker 2 or 3, which has all data; " + StateTopic + "-0 has no leader; bring back broker 3",
			"for p in 0 1; do kafka-leader-election.sh --bootstrap-server b:1 --election-type UNCLEAN --topic __transaction_state --partition $p; done; " +
				"kafka-leader-election.sh --bootstrap-server b:1 --election-type UNCLEAN --topic " + StateTopic + " --partition 0",
		}},
		"the state only": {[]*metadata.Partition{gone(StateTopic, 0, all, 3), led(transactionTopic, 0), led(transactionTopic, 1)}, []int32{1}, []string{
			"the mirrors' latest states", "--topic " + StateTopic + " --partition 0",
		}},
		"nobody to elect": {[]*metadata.Partition{gone(StateTopic, 0, all, 3), led(transactionTopic, 0), led(transactionTopic, 1)}, nil, []string{
			"bring back broker 3", "start another one of 1, 2, 3 first",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			img := metadata.NewImage(virtual)
			s := &Store{cfg: StoreConfig{Virtual: virtual, Listener: "INTERNAL"}, img: img}
			var brokers []metadata.Broker
			for _, b := range tt.alive {
				brokers = append(brokers, metadata.Broker{ID: b, Endpoints: []metadata.Endpoint{{Name: "CLIENT", Host: "sidecar", Port: 9}, {Name: "INTERNAL", Host: "b", Port: uint16(b)}}})
			}
			brokers = append(brokers, metadata.Broker{ID: 4, Fenced: true, Endpoints: []metadata.Endpoint{{Name: "INTERNAL", Host: "no", Port: 1}}}, metadata.Broker{ID: 10001, Endpoints: []metadata.Endpoint{{Name: "INTERNAL", Host: "no", Port: 1}}})
			img.Set(tt.parts, brokers, nil)
			err := s.Unwritable()
			if tt.says == nil {
				if err != nil || s.unwritable() != "" {
					t.Fatalf("%v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("it is said to be written")
			}
			text := err.Error()
			for _, want := range tt.says {
				i := strings.Index(text, want)
				if i < 0 {
					t.Fatalf("%q is not in, or not behind the rest: %s", want, err)
				}
				text = text[i:]
			}
		})
	}
}

// TestVerbWithoutLeaders: a verb does not wait for a dead broker, nor do those that come after it. It
// says what to do, and goes on as soon as that is done.
func TestVerbWithoutLeaders(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Mirroring, Mirroring)
	r.topic(transactionTopic, ids.UUID{254}, []int32{1, 2})
	lead := func(leader int32, elr ...int32) {
		r.change(Topic{TopicID: ids.UUID{254}}, func(p *metadata.Partition) { p.Leader, p.ELR = leader, elr })
	}
	lead(-1, 2)
	r.store.release(0, nil) // as after its broker's death
	req := protocol.NewRecoverMirrorTopicsRequest()
	req.MirrorName, req.Topics, req.AllowTruncate = "m", []string{topic.Name}, true
	ask := func() *protocol.RecoverMirrorTopicsResponse {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		return r.answer(ctx, "", &req).(*protocol.RecoverMirrorTopicsResponse)
	}
	resp := ask()
	if resp.ErrorCode != kerr.CoordinatorLoadInProgress.Code || resp.ErrorMessage == nil {
		t.Fatalf("code %d, %v", resp.ErrorCode, resp.ErrorMessage)
	}
	for _, want := range []string{"__transaction_state-0 has no leader; bring back broker 2, which has all data", "kafka-leader-election.sh --bootstrap-server $BROKERS --election-type UNCLEAN"} {
		if !strings.Contains(*resp.ErrorMessage, want) {
			t.Errorf("%q is not in: %s", want, *resp.ErrorMessage)
		}
	}
	if strings.Contains(*resp.ErrorMessage, kerr.CoordinatorLoadInProgress.Message) {
		t.Errorf("the code is told twice: %s", *resp.ErrorMessage)
	}
	// Describe says so of what waits, and of nothing else.
	p := &metadata.Partition{Replicas: []int32{10001, 1, 2}, ISR: []int32{10001}, ELR: []int32{2}}
	if got := r.waitsFor(topic, p, PartitionState{State: Mirroring}, r.store.unwritable); !strings.Contains(got, "no real replica is in sync; bring back broker 2, which has all data; __transaction_state-0 has no leader") {
		t.Errorf("waits: %q", got)
	}
	p.ISR = []int32{10001, 1}
	if got := r.waitsFor(topic, p, PartitionState{State: Mirroring}, r.store.unwritable); got != "" {
		t.Errorf("waits: %q", got)
	}
	lead(1)
	if resp := ask(); resp.ErrorCode != 0 {
		t.Errorf("afterwards: code %d, %v", resp.ErrorCode, resp.ErrorMessage)
	}
	if err := r.store.because(errors.New("x")); err.Error() != "x" {
		t.Errorf("an error with leaders: %v", err)
	}
}

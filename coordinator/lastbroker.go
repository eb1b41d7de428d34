package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// This file holds what keeps the mirrors' state from being written and only an operator can end.
// State is written in transactions, so it needs two topics: its own, and the one in which the brokers
// keep transactions. When all replicas of their partitions die, the controllers wait for the last one,
// as for any topic; no virtual broker is a replica of these, which could lead them meanwhile. Who
// will not wait has an unclean election. It loses what only that one had, and of the
// transactions it loses those of every application of the cluster: it is named here, and asked for
// by nobody but the operator.

// transactionTopic is where the brokers keep transactions.
const transactionTopic = "__transaction_state"

// ledPatience is how long somebody who wants to write waits for leaders: a broker with the only
// replica that restarts is no reason to refuse.
const ledPatience = 5 * time.Second

// lastBrokerPage tells operators what to do.
const lastBrokerPage = "docs/procedures/lastbroker.md"

// leaderless are the partitions of one topic that nobody leads.
type leaderless struct {
	topic string
	parts []*metadata.Partition
}

func leaderlessOf(img *metadata.Image, topic string) leaderless {
	l := leaderless{topic: topic}
	if id, ok := img.Topic(topic); ok {
		l.parts = slices.DeleteFunc(img.TopicPartitions(id), func(p *metadata.Partition) bool { return p.Leader >= 0 })
	}
	return l
}

func (l leaderless) has(partition int32) bool {
	return slices.ContainsFunc(l.parts, func(p *metadata.Partition) bool { return p.Partition == partition })
}

// waits says which brokers to bring back, partitions that wait for the same one together.
func (l leaderless) waits(v ids.Virtual) string {
	var phrases []string
	of := map[string][]int32{}
	for _, p := range l.parts {
		back := p.BringBack(v)
		if of[back] == nil {
			phrases = append(phrases, back)
		}
		of[back] = append(of[back], p.Partition)
	}
	for i, back := range phrases {
		which := of[back]
		if len(which) == 1 {
			phrases[i] = fmt.Sprintf("%s-%d has no leader; %s", l.topic, which[0], back)
		} else {
			phrases[i] = fmt.Sprintf("partitions %s of %s have no leader; %s", list(which), l.topic, back)
		}
	}
	return strings.Join(phrases, "; ")
}

// giveUp says how an operator ends the wait by Kafka's own means: the command, and what has to be
// done before it helps.
func (l leaderless) giveUp(img *metadata.Image, bootstrap string) string {
	var elect []string
	for _, p := range l.parts {
		if !slices.ContainsFunc(p.Replicas, func(b int32) bool { return alive(img, b) }) {
			return fmt.Sprintf("to give it up, start another one of %s first", list(p.Replicas))
		}
		elect = append(elect, itoa(p.Partition))
	}
	command := fmt.Sprintf("kafka-leader-election.sh --bootstrap-server %s --election-type UNCLEAN --topic %s --partition ", bootstrap, l.topic)
	if len(elect) == 1 {
		return command + elect[0]
	}
	return fmt.Sprintf("for p in %s; do %s$p; done", strings.Join(elect, " "), command)
}

// stuck returns the topics without whose leaders the state cannot be written. Of the transactions
// only those partitions matter in which the writers' ids are.
func (s *Store) stuck() []leaderless {
	var out []leaderless
	if t := leaderlessOf(s.img, transactionTopic); len(t.parts) > 0 && slices.ContainsFunc(s.writersIn(), t.has) {
		out = append(out, t)
	}
	if t := leaderlessOf(s.img, StateTopic); len(t.parts) > 0 {
		out = append(out, t)
	}
	return out
}

// writersIn are the partitions in which the brokers keep the writers' transactions.
func (s *Store) writersIn() []int32 {
	var out []int32
	for p := range s.Partitions() {
		out = append(out, s.writerIn(p))
	}
	return out
}

// writerIn is that partition of one state partition's writer; -1 while there are none.
func (s *Store) writerIn(partition int32) int32 {
	id, ok := s.img.Topic(transactionTopic)
	if !ok {
		return -1
	}
	// The brokers find a transaction's coordinator as KIP-1279 finds a mirror's.
	return protocol.MirrorPartition(stateTransactions+itoa(partition), int32(len(s.img.TopicPartitions(id))))
}

// bootstrap is where Kafka's own tools reach the real brokers that live.
func (s *Store) bootstrap() string {
	var at []string
	for _, b := range s.img.Brokers() {
		i := slices.IndexFunc(b.Endpoints, func(e metadata.Endpoint) bool { return e.Name == s.cfg.Listener })
		if i >= 0 && !s.cfg.Virtual.Is(b.ID) && !b.Fenced {
			at = append(at, b.Endpoints[i].Addr())
		}
	}
	if len(at) == 0 {
		return "$BROKERS" // as the page has it
	}
	return strings.Join(at, ",")
}

// Unwritable tells why the mirrors' state cannot be written whoever tries, which broker to bring back
// and how to go on without it; nil if nothing speaks against it. The mirrors themselves go on: only
// what has to be on record waits, as any verb does.
func (s *Store) Unwritable() error {
	stuck := s.stuck()
	if len(stuck) == 0 {
		return nil
	}
	var waits, commands []string
	lost := "the mirrors' latest states"
	for _, t := range stuck {
		waits = append(waits, t.waits(s.cfg.Virtual))
		commands = append(commands, t.giveUp(s.img, s.bootstrap()))
		if t.topic == transactionTopic {
			lost = "transactions of every application in this cluster"
		}
	}
	return refuse(kerr.CoordinatorLoadInProgress.Code, "the state of the mirrors cannot be written: %s. Only if that broker never comes back, give up what it alone has, which may be %s (%s): %s",
		strings.Join(waits, "; "), lost, lastBrokerPage, strings.Join(commands, "; "))
}

// unwritable is Unwritable in few words.
func (s *Store) unwritable() string {
	stuck := s.stuck()
	waits := make([]string, 0, len(stuck))
	for _, t := range stuck {
		waits = append(waits, t.waits(s.cfg.Virtual))
	}
	return strings.Join(waits, "; ")
}

// because adds to an error of a write what an operator has to do, if that is why.
func (s *Store) because(err error) error {
	if why := s.Unwritable(); err != nil && why != nil {
		return fmt.Errorf("%w (%w)", why, err)
	}
	return err
}

// led returns when a state partition can be written to as far as leaders go, or says why it cannot.
// It is asked before anybody's turn comes: what waits for a dead broker would keep all who
// come later from hearing so.
func (s *Store) led(ctx context.Context, partition int32) error {
	can := func() bool {
		return !leaderlessOf(s.img, StateTopic).has(partition) && !leaderlessOf(s.img, transactionTopic).has(s.writerIn(partition))
	}
	soon, cancel := context.WithTimeout(ctx, ledPatience)
	defer cancel()
	err := s.img.Wait(soon, can)
	if err == nil {
		return nil
	}
	if why := s.Unwritable(); why != nil {
		return why
	}
	return ctx.Err() // there are leaders by now
}

package main

import (
	"math/rand/v2"
	"time"
)

// kind is a kind of fault.
type kind string

// The kinds, in groups: of each group at most one fault is on at a time, so that never two real
// brokers of a cluster are away together and Kafka's own rules keep everything acknowledged.
const (
	sidecarKill     kind = "sidecar-kill"     // SIGKILL of a sidecar that leads
	sidecarPause    kind = "sidecar-pause"    // SIGSTOP for longer than the session timeout
	sidecarRestart  kind = "sidecar-restart"  // SIGTERM and start
	sidecarPair     kind = "sidecar-pair"     // both sidecars of a partition killed
	coordinatorKill kind = "coordinator-kill" // the mirror's coordinator killed

	brokerKill     kind = "broker-kill"     // a real broker of the destination
	brokerRestart  kind = "broker-restart"  // in an orderly way
	brokerPause    kind = "broker-pause"    // for longer than the session timeout
	brokerWipe     kind = "broker-wipe"     // killed, and back with an empty disk
	controllerKill kind = "controller-kill" // the destination's only controller

	sourceKill      kind = "source-kill"
	sourceRestart   kind = "source-restart"
	sourcePause     kind = "source-pause"
	sourceLeaders   kind = "source-leaders"   // every leader at the source moves
	sourceRetention kind = "source-retention" // the older half of a topic is deleted there
	sourceCompacted kind = "source-compacted" // the cleaner takes what was copied

	linkSourceCut  kind = "link-source-cut"  // no sidecar reaches the source
	linkSourceSlow kind = "link-source-slow" // late, in pieces, reset every so many bytes
	linkSourceDead kind = "link-source-dead" // half-open: nothing comes, nothing is told

	linkController kind = "link-controller" // a sidecar cut off from the controller
	linkHome       kind = "link-home"       // a sidecar cut off from its home broker
	linkPeers      kind = "link-peers"      // a sidecar cut off from the others
	linkVirtual    kind = "link-virtual"    // no real broker reaches a virtual one

	preferredElection kind = "preferred-election" // by stock means, around the proxies
	reassignment      kind = "reassignment"       // the same, through the proxies and around them
	pauseResume       kind = "pause-resume"       // of a mirror topic, by the operator
)

var groups = [][]kind{
	{sidecarKill, sidecarPause, sidecarRestart, sidecarPair, coordinatorKill},
	{brokerKill, brokerRestart, brokerPause, brokerWipe, controllerKill},
	{sourceKill, sourceRestart, sourcePause, sourceLeaders, sourceRetention, sourceCompacted},
	{linkSourceCut, linkSourceSlow, linkSourceDead},
	{linkController, linkHome, linkPeers, linkVirtual},
	{preferredElection, reassignment, pauseResume},
}

// planned is a fault of the schedule. What it hits is told by numbers: which of those that can be
// hit at that moment, for who leads what is not the schedule's to say.
type planned struct {
	Kind  kind
	Start time.Duration // after its round's
	Hold  time.Duration // between the blow and the cure
	Pick  [2]uint32
}

// schedule gives rounds of faults that are on together. It is a function of its seed alone.
type schedule struct {
	random *rand.Rand
	decks  [][]kind
}

func newSchedule(seed uint64) *schedule {
	return &schedule{random: rand.New(rand.NewPCG(seed, 5)), decks: make([][]kind, len(groups))}
}

const (
	startSpread = 4 * time.Second // faults of a round begin within it
	holdLeast   = 500 * time.Millisecond
	holdMost    = 5 * time.Second
	// skipOneIn leaves a group out of a round now and then, so that faults also come in other company.
	skipOneIn = 10
)

// next gives the faults of the next round. Every kind of a group is dealt before one is dealt again.
func (s *schedule) next() []planned {
	var round []planned
	for i := range groups {
		skip := s.random.IntN(skipOneIn) == 0
		if len(s.decks[i]) == 0 {
			s.decks[i] = append([]kind(nil), groups[i]...)
			s.random.Shuffle(len(s.decks[i]), func(a, b int) { s.decks[i][a], s.decks[i][b] = s.decks[i][b], s.decks[i][a] })
		}
		p := planned{
			Kind:  s.decks[i][0],
			Start: s.between(0, startSpread),
			Hold:  s.between(holdLeast, holdMost),
			Pick:  [2]uint32{s.random.Uint32(), s.random.Uint32()},
		}
		if skip {
			continue
		}
		s.decks[i] = s.decks[i][1:]
		round = append(round, p)
	}
	return round
}

func (s *schedule) between(from, to time.Duration) time.Duration {
	return from + time.Duration(s.random.Int64N(int64(to-from))).Round(time.Millisecond)
}

package leading

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// The model: one partition, virtual brokers that run the real Machine behind a driver of a
// few lines, stock followers, a controller, the coordinator of the mirror, the state topic
// and a source. Everything that travels is a message that is handled and answered at some
// later step, twice, or never. A walk is a list of acts, so that it replays exactly and can
// be shrunk; a world can be cloned and summed up, so that all worlds that few faults lead to
// can be visited.

const (
	simVirtual = ids.Virtual(10000)
	simV1      = int32(10001)
)

// simConfig is one kind of world.
type simConfig struct {
	name  string
	size  int  // of an exhaustive configuration
	virt  int  // virtual brokers that are assigned at first
	spare bool // one more virtual broker, which can replace one of them
	real  int
	min   int // min.insync.replicas under the write lock
	own   int // the topic's own one, which a stop restores
	elr   bool
	// source is how many batches it has at first.
	source int
	budget simBudget
	// failback: the source has mirrored from here before, and both went on alone since.
	failback bool
	// txn: the source's producers write in transactions.
	txn bool
	// raise: where clients wrote behind what is mirrored, the coordinator may raise
	// min.insync.replicas, and virtual brokers wait for it (R21).
	raise bool
	// frozen: time stands still but for acts of its own, so that worlds repeat.
	frozen bool
}

// simBudget is how many of each fault a walk may have.
type simBudget struct {
	virt    int // deaths and fences of virtual brokers
	crash   int // deaths of real ones that keep the log
	power   int // deaths of real ones that lose the end of the log, or all of it
	elect   int // leader elections at the source, clean ones
	unclean int // and unclean ones
	appends int
	retain  int // retention and compaction at the source
	stop    int
	pause   int
	min     int // changes of min.insync.replicas
	lost    int // lost messages; negative: any number
	twice   int // messages that arrive twice, the second time late
	coord   int // deaths of the coordinator: what it has asked for arrives later
	writes  int // client writes, where a broker takes them
	rogue   int // client writes that the write lock should have refused
	moves   int // preferred elections; negative: any number
	giveUp  int // times that the operator does not wait any longer for a replica with all data
	forever int // real brokers that never come back
	restore int // times that the source is restored from a backup
	silent  int // fetchers of real brokers that give the partition up
	ticks   int // with frozen: times that replica.lag.time.max.ms passes
}

// simMeta is what the metadata log says. A value is never changed once it was published.
type simMeta struct {
	leader, le, pe             int32
	replicas, adding, removing []int32
	isr, elr                   []int32
	lastReal                   []int32
	lastLeader                 int32 // last known leader of an empty ISR
	recovering                 bool
	min                        int
	brokers                    map[int32]BrokerView
	sum                        uint64 // see sum
}

func (m *simMeta) active(id int32) bool {
	b, ok := m.brokers[id]
	return ok && !b.Fenced
}

type simRequest struct {
	to, cur, last int32
	be            int64
	off, start    int64
	waits         bool // it is a long poll at a virtual leader
}

type simAnswer struct {
	code           int16
	div            bool
	divEpoch       int32
	divEnd         int64
	from           int64
	batches        []simBatch
	hw, logStart   int64
	earliest, endA int64 // ListOffsets, as asked after OFFSET_OUT_OF_RANGE
	virtual        bool
}

type simReal struct {
	id         int32
	up, failed bool
	clean      bool
	gone       bool // for ever
	be         int64
	log        simLog
	hw         int64
	view       *simMeta
	epochStart int64
	reps       map[int32]int64 // as leader: log ends seen
	joining    []int32         // and who was asked into the ISR
	req        *simRequest
	ans        *simAnswer
}

type simVirt struct {
	id     int32
	up     bool
	be     int64
	m      *Machine
	view   *simMeta
	buf    []simBatch
	msgs   []simMsg
	read   bool
	readAt int64
	readLE int32
	paused bool
	asItIs bool  // the consent of the takeover under way
	noLoss bool  // it has none
	probes int   // of the source: only the last one's answer counts
	gaveUp int   // which giving up it has heard of
	given  int32 // the epoch that has gone on without a replica with all data
	allow  bool
	failed bool     // FAILED, until it is tried again
	last   simBatch // read last under this epoch
	behind simBehind
}

// simBehind is what the following side has prepared behind a real leader's epoch.
type simBehind struct {
	epoch   int32
	read    lineage.Record
	chain   lineage.Chain // read, to be persisted
	since   time.Time     // since when it waits for a higher min.insync.replicas
	written bool          // clients wrote behind what was mirrored
	claim   int64
	ready   bool
}

// simReassign is an AlterPartitionReassignments on its way; no target cancels.
type simReassign struct {
	target []int32
	late   bool // the coordinator that sent it is gone
}

const (
	stMirroring = iota
	stStopping
	stStopped
)

// simStats is for people; nothing depends on it.
type simStats struct {
	steps, back, ready, jumps, leaked, failed, reread, given int
}

type simWorld struct {
	cfg    *simConfig
	left   simBudget
	frozen bool
	now    time.Time
	meta   *simMeta
	nextBE int64
	real   []*simReal
	virt   []*simVirt
	source simLog
	sle    int32
	nextID int
	// gone are the batches that the source lost: compacted, retained, truncated; local those
	// that clients wrote here, foreign those of them that should not have been.
	// shown are those of foreign that consumers could read.
	gone, local, foreign, shown idSet
	visible                     [maxOffset]uint8 // id of the batch with that base offset
	state                       lineage.Record
	link                        lineage.Link // what the source says of the mirror it was, with failback
	begun                       bool         // the first takeover of a start is over
	barrier                     int32        // epoch of the newest barrier in the state topic
	stopped                     int
	quiet                       *Quiesced // the state says so
	handedBack                  int32     // leader epoch of the hand-back
	open                        bool      // the write lock is off
	own                         int       // the topic's own min.insync.replicas
	reassigns                   []simReassign
	// paused is what the operator wants; rests, that PAUSED is on record, up to restsAt.
	paused, rests bool
	restsAt       int64
	// giveUp is the number of the giving up that stands, 0 if none does, of gaveUp so far.
	giveUp, gaveUp int
	// allow: AllowTruncate stands. restored: the source was. unsaid are the batches that it
	// lost by that, and that only the operator may let go.
	allow, restored bool
	unsaid          []simBatch
	fate            [maxOffset]uint8 // of a batch's transaction, as some replica has shown it
	settling        bool
	failure         string
	stats           simStats
}

func newSim(cfg *simConfig) *simWorld {
	w := &simWorld{
		cfg: cfg, left: cfg.budget, frozen: cfg.frozen, own: cfg.own, now: time.Unix(1e9, 0),
		state: lineage.NewRecord(),
	}
	m := &simMeta{leader: simV1, le: 1, pe: 1, lastLeader: -1, min: cfg.min, brokers: map[int32]BrokerView{}}
	virtual := cfg.virt
	if cfg.spare {
		virtual++
	}
	for i := range virtual + cfg.real {
		id := simV1 + int32(i)
		if i >= virtual {
			id = int32(i - virtual + 1)
		}
		w.nextBE++
		m.brokers[id] = BrokerView{Epoch: w.nextBE}
		if !simVirtual.Is(id) {
			w.real = append(w.real, &simReal{id: id, up: true, be: w.nextBE, reps: map[int32]int64{}})
		} else {
			w.virt = append(w.virt, &simVirt{id: id, up: true, be: w.nextBE, m: w.machine(id)})
		}
		if i < cfg.virt || i >= virtual {
			m.replicas = append(m.replicas, id)
		}
	}
	m.isr = m.replicas
	w.meta = m
	w.publish(func(*simMeta) {})
	for i := range max(cfg.source, 1) {
		w.append(int64(i % 2))
	}
	if cfg.failback {
		w.failedOver()
	}
	return w
}

// failedOver: the source's records so far came from here, under two epochs of ours; then
// it went on, and so did clients here, whose records not all replicas got. A real broker
// leads, and the virtual ones have just been assigned.
func (w *simWorld) failedOver() {
	w.sle = 1
	w.append(0)
	w.link = lineage.Link{LastEpoch: 2, LastOffset: w.source.end, History: lineage.Chain{
		{Epoch: 0, SourceEpoch: 1, Start: 0}, {Epoch: 1, SourceEpoch: 2, Start: w.source.batches[len(w.source.batches)-1].base},
	}}
	ours := slices.Clone(w.source.batches)
	end := w.source.end
	w.sle = 2
	w.append(1)
	for i := range ours {
		ours[i].epoch++
	}
	for i := range int64(3) { // the last mirrored epoch went on, then there was another
		w.nextID++
		w.gone.add(w.nextID)
		ours = append(ours, simBatch{base: end + i, last: end + i, epoch: 2 + int32(i/2), id: w.nextID})
	}
	isr := int64(math.MaxInt64)
	for i, r := range w.real {
		for _, b := range ours[:len(ours)-i] {
			r.log.append(b)
		}
		isr = min(isr, r.log.end)
	}
	for _, r := range w.real {
		r.hw = isr
	}
	w.publish(func(m *simMeta) {
		m.leader, m.le = w.real[0].id, 4
		m.isr = simVirtual.Real(m.isr)
	})
}

func (w *simWorld) machine(id int32) *Machine {
	lag := time.Minute
	if w.cfg.frozen {
		lag = simTick / 2
	}
	return New(Config{Self: id, Virtual: simVirtual, MaxLag: lag})
}

// maxOffset bounds offsets, and with them the ids of batches: worlds are small.
const maxOffset = 64

// idSet is a set of batches.
type idSet uint64

func (s *idSet) add(id int)     { *s |= 1 << id }
func (s idSet) has(id int) bool { return s&(1<<id) != 0 }

func (w *simWorld) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
	}
}

func (w *simWorld) byID(id int32) *simReal {
	for _, r := range w.real {
		if r.id == id {
			return r
		}
	}
	return nil
}

func (w *simWorld) virtByID(id int32) *simVirt { return w.virt[id-simV1] }

// clone returns a world that goes its own way.
func (w *simWorld) clone() *simWorld {
	c := *w
	c.real, c.virt = slices.Clone(w.real), slices.Clone(w.virt)
	for i, r := range c.real {
		n := *r
		n.log, n.reps = r.log.clone(), maps.Clone(r.reps)
		c.real[i] = &n
	}
	for i, v := range c.virt {
		n := *v
		n.m, n.buf, n.msgs = v.m.clone(), slices.Clip(v.buf), slices.Clone(v.msgs)
		c.virt[i] = &n
	}
	c.source = w.source.clone()
	c.reassigns = slices.Clone(w.reassigns)
	return &c
}

// clone copies what a Machine changes in place; everything else it replaces.
func (m *Machine) clone() *Machine {
	c := *m
	c.followers = make(map[int32]*follower, len(m.followers))
	for id, f := range m.followers {
		n := *f
		c.followers[id] = &n
	}
	if m.pending != nil {
		p := *m.pending
		c.pending = &p
	}
	c.refLogs, c.out = slices.Clone(m.refLogs), slices.Clone(m.out)
	return &c
}

func (w *simWorld) String() string {
	b := &strings.Builder{}
	m := w.meta
	fmt.Fprintf(b, "leader %d le %d pe %d replicas %v +%v -%v isr %v elr %v last %v min %d source [%d,%d)",
		m.leader, m.le, m.pe, m.replicas, m.adding, m.removing, m.isr, m.elr, m.lastReal, m.min, w.source.start, w.source.end)
	for _, x := range w.source.batches {
		fmt.Fprintf(b, " #%d@%d/%d", x.id, x.base, x.epoch)
	}
	fmt.Fprintf(b, "\n      state %v stopped %d paused %v rests %v reassigns %v", w.state.Chains, w.stopped, w.paused, w.rests, w.reassigns)
	for _, r := range w.real {
		fmt.Fprintf(b, "\n      %d up=%v fenced=%v failed=%v [%d,%d) hw %d cache %v:", r.id, r.up, m.brokers[r.id].Fenced, r.failed, r.log.start, r.log.end, r.hw, r.log.cache)
		for _, x := range r.log.batches {
			fmt.Fprintf(b, " #%d@%d/%d", x.id, x.base, x.epoch)
		}
	}
	for _, v := range w.virt {
		if st := v.m.Status(); v.up {
			fmt.Fprintf(b, "\n      %d fenced=%v %v epoch %d S %d hw %d buffer [%d,%d) durable %d chain %v messages", v.id, m.brokers[v.id].Fenced, st.Phase, st.Epoch, st.Start, st.HighWatermark, st.BufferStart, st.End, st.Durable, v.m.Chain())
			for i := range v.msgs {
				fmt.Fprintf(b, " %v", &v.msgs[i])
			}
		}
	}
	return b.String()
}

package leading

import (
	"slices"
	"time"
)

// This file cures followers that do not come any more. A replica fetcher that met what it
// cannot handle (a batch that does not fit to its log, an answer larger than a segment) gives
// the partition up for good: its broker lives on, and fetches the others. Only a new leader
// epoch makes it begin anew. A broker that is dead, whose log directory failed or that is throttled
// is none of that: the metadata log says so.

// maxSilences is how often one leader meets the silence of one follower before it leaves it
// to people: what two new epochs have not cured, more will not, and each disturbs all that
// this broker leads.
const maxSilences = 3

// silenceMemory is how long a silence counts, in multiples of MaxLag.
const silenceMemory = 20

// maxDoublings bounds the waits between the epochs that a takeover which waits for a silent
// follower still begins: silenceMemory, twice that, and so on.
const maxDoublings = 3

// stoppedFetching is why leadership is given up over a silence.
const stoppedFetching = "a follower has stopped fetching, and only a new leader epoch makes it begin anew"

// silence is what is remembered of a follower over leader epochs.
type silence struct {
	brokerEpoch int64
	times       int
	last        time.Time
	moved       time.Time // when leadership was given up over it last
}

// seenAlive is since when a real replica's broker is able to fetch, as far as this leader
// epoch has seen.
type seenAlive struct {
	brokerEpoch int64
	since       time.Time
}

// noteAlive takes from the view which real replicas can fetch.
func (m *Machine) noteAlive(now time.Time) {
	for _, id := range m.cfg.Virtual.Real(m.view.Replicas) {
		b, ok := m.view.Brokers[id]
		if !ok || b.Fenced || b.ShuttingDown || b.Excused {
			delete(m.alive, id)
			continue
		}
		if a, ok := m.alive[id]; !ok || a.brokerEpoch != b.Epoch {
			if m.alive == nil {
				m.alive = map[int32]seenAlive{}
			}
			m.alive[id] = seenAlive{b.Epoch, now}
		}
	}
	for id := range m.alive {
		if !slices.Contains(m.view.Replicas, id) {
			delete(m.alive, id)
		}
	}
}

// listen looks for followers that live and do not fetch. The ISR is shrunk first: then the
// next takeover need not wait for one that stays silent.
func (m *Machine) listen(now time.Time) {
	if !m.listens() {
		return
	}
	for _, id := range m.view.Replicas {
		if m.cfg.Virtual.Is(id) {
			continue
		}
		if m.phase == Collecting && !m.awaits(id) {
			continue // the takeover does not wait for it
		}
		silent := m.isSilent(now, id)
		switch told := slices.Contains(m.silent, id); {
		case silent && !told && !m.quiescing && !m.inTheWay(id):
			m.meet(now, id)
		case silent && told && !m.quiescing && m.moves(now, m.silences[id]):
			m.move(now, id)
		case !silent && told:
			m.silent = slices.DeleteFunc(m.silent, func(s int32) bool { return s == id })
			m.do(Heard{m.epoch, id})
		}
		if !m.listens() {
			return
		}
	}
}

// awaits tells whether a takeover has to hear of a real replica: of the members of the ISR; where none of
// them is real, of those that are eligible, and without any, or without waiting for them, of all.
func (m *Machine) awaits(id int32) bool {
	of := m.cfg.Virtual.Real(m.view.ISR)
	if len(of) == 0 && !m.consent.GiveUp {
		of = m.cfg.Virtual.Real(m.view.ELR)
	}
	return len(of) == 0 || slices.Contains(of, id)
}

// listens: while a takeover waits for the followers, too. One that cannot reach this broker may
// well reach its peer.
func (m *Machine) listens() bool { return m.phase == Leading || m.phase == Collecting }

// inTheWay tells whether a silent follower has to leave the ISR before anything else. The last
// real member never does.
func (m *Machine) inTheWay(id int32) bool {
	real := m.cfg.Virtual.Real(m.view.ISR)
	return slices.Contains(real, id) && len(real) > 1
}

func (m *Machine) isSilent(now time.Time, id int32) bool {
	a, ok := m.alive[id]
	if !ok {
		return false
	}
	last := m.started
	if a.since.After(last) {
		last = a.since
	}
	if f := m.followers[id]; f != nil && f.brokerEpoch == a.brokerEpoch && f.heard.After(last) {
		last = f.heard
	}
	return now.Sub(last) > m.cfg.MaxLag
}

// meet counts a silence, and begins a new epoch unless that did not help before.
func (m *Machine) meet(now time.Time, id int32) {
	s, ok := m.silences[id]
	if !ok || s.brokerEpoch != m.alive[id].brokerEpoch || now.Sub(s.last) > silenceMemory*m.cfg.MaxLag {
		s = silence{brokerEpoch: m.alive[id].brokerEpoch}
	}
	s.times++
	s.last = now
	if m.silences == nil {
		m.silences = map[int32]silence{}
	}
	m.silences[id] = s
	m.silent = append(m.silent, id)
	final := !m.moves(now, s)
	m.do(Silent{m.epoch, id, s.times, final})
	if !final {
		m.move(now, id)
	}
}

// moves tells whether a new epoch is begun over a silence that was met this often. A takeover
// that waits for the follower serves nobody, and a peer may well reach it: it goes on giving
// up, only ever more seldom.
func (m *Machine) moves(now time.Time, s silence) bool {
	if s.times < maxSilences {
		return true
	}
	wait := silenceMemory * m.cfg.MaxLag << min(s.times-maxSilences, maxDoublings)
	return m.phase == Collecting && m.peerInSync() && now.Sub(s.moved) >= wait
}

// peerInSync tells whether another virtual broker could lead.
func (m *Machine) peerInSync() bool {
	return slices.ContainsFunc(m.view.ISR, func(id int32) bool {
		b, ok := m.view.Brokers[id]
		return m.cfg.Virtual.Is(id) && id != m.cfg.Self && ok && !b.Fenced && !b.ShuttingDown
	})
}

func (m *Machine) move(now time.Time, id int32) {
	s := m.silences[id]
	s.last, s.moved = now, now
	m.silences[id] = s
	m.resign(m.epoch, stoppedFetching)
}

// Forgive forgets what silences were met: who is silent still gets a new epoch again.
func (m *Machine) Forgive(now time.Time) {
	if len(m.silences) == 0 {
		return
	}
	m.silences, m.silent = nil, nil
	m.progress(now)
}

// LeftToPeople returns the followers whose silence new epochs did not end.
func (m *Machine) LeftToPeople() []int32 {
	if !m.listens() {
		return nil
	}
	return slices.Clone(m.silent)
}

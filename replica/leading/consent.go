package leading

import "time"

// Reconsider begins a takeover anew, under the same epoch, that was refused: what the state
// allows has changed. Nothing was truncated or served under this epoch. It does nothing
// once a hand-back was asked for, whose order stands (R17).
func (m *Machine) Reconsider(now time.Time) {
	if m.phase != Refused || m.quiescing {
		return
	}
	m.do(StopReading{m.epoch})
	m.do(Drop{})
	m.reset(ReadingState, m.epoch, now)
	m.do(ReadState{m.epoch})
}

// Consented begins a takeover anew, under the same epoch, that has not got past the source: more
// may be dropped than was known when the state was read. Nobody was answered under this epoch.
func (m *Machine) Consented(now time.Time) {
	if m.phase != Collecting && m.phase != AskingHW && m.phase != Probing || m.quiescing {
		return
	}
	m.reset(ReadingState, m.epoch, now)
	m.do(ReadState{m.epoch})
}

// back lets S go back by one epoch of the chain; false if nothing is known below.
func (m *Machine) back() bool {
	if len(m.chain) == 0 {
		return false
	}
	m.s = m.shown(min(m.s, m.chain[len(m.chain)-1].Start))
	m.chain = m.chain.Cut(m.s)
	return true
}

// shown bounds S, where the source's log is another one, by what replicas show: nobody can compare
// what lies above with the source, and its epochs do not tell it from what is there now.
func (m *Machine) shown(s int64) int64 { return min(s, m.knownHW) }

// Stuck tells whether nothing that is read now can become visible: |ISR| is below the
// minimum, and no member needs anything of the source to get in sync again.
func (m *Machine) Stuck() bool {
	return m.phase == Leading && m.end >= m.s && len(m.view.ISR) < min(m.view.MinISR, len(m.view.Replicas))
}

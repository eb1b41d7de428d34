package leading

import "time"

// This file holds what keeps a leader from reading although it leads: a pause that the
// operator asked for, and a fault of the source. Followers are served on either way.

// Pause ends reading; leadership and read only stay. It is repeatable.
func (m *Machine) Pause(now time.Time) {
	if m.phase == Off || m.paused {
		return
	}
	m.paused = true
	m.reread()
	m.progress(now)
}

// Resume goes on where a pause ended. What the source did meanwhile is found out by the
// first answer to reading, which says whether it still has what was read last.
func (m *Machine) Resume(now time.Time) {
	if !m.paused {
		return
	}
	m.paused, m.rested = false, false
	switch m.phase {
	case Leading:
		m.reread()
		m.progress(now)
	case Collecting, AskingHW, Probing, Refused:
		// Nothing was answered under this epoch yet, and what the state allows has changed.
		m.do(StopReading{m.epoch})
		m.do(Drop{})
		m.reset(ReadingState, m.epoch, now)
		m.do(ReadState{m.epoch})
	}
}

// Bar keeps the source from being asked or read: it is not what was mirrored. An answer
// of it must not truncate anything.
func (m *Machine) Bar(now time.Time) {
	if m.phase == Off || m.barred {
		return
	}
	m.barred = true
	m.reread()
	m.progress(now)
}

// Unbar lets the source be asked again.
func (m *Machine) Unbar(now time.Time) {
	if !m.barred {
		return
	}
	m.barred = false
	m.Retry(now, m.epoch)
}

// asItIs tells whether the partition can be led without an answer of the source: nothing
// will be read, the logs of the ISR are equal and all of it is visible, so nothing is
// truncated, served or made visible that was not before (R7).
func (m *Machine) asItIs() bool {
	return (m.paused || m.barred) && !m.quiesced && m.equalAndVisible() && len(m.cfg.Virtual.Real(m.view.ISR)) > 0
}

func (m *Machine) equalAndVisible() bool { return m.s == m.refEnd && m.knownHW >= m.s }

// rest reports once that a pause is complete.
func (m *Machine) rest() {
	if !m.paused || m.rested || m.quiescing || m.phase != Leading || m.pending != nil || m.durable != m.end || m.hw < m.LogEnd() {
		return
	}
	real := m.cfg.Virtual.Real(m.view.ISR)
	if len(real) == 0 {
		return
	}
	for _, id := range real {
		if f := m.followers[id]; f == nil || !f.valid || f.end < m.LogEnd() || f.toldHW < m.hw {
			return
		}
	}
	m.rested = true
	m.do(Rested{m.epoch, m.LogEnd()})
}

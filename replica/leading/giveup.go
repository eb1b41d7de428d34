package leading

import (
	"fmt"
	"time"
)

// This file holds what becomes of a partition whose real replicas are all gone from the ISR when
// its operator does not wait for the right one any more (R15, design.md §5).

// GiveUp lets a partition without a real member in the ISR go on with the best replica that is
// alive. What was visible and is not on it goes. Where followers were answered under this epoch
// already, the next one does so: nothing is served twice at one offset under one epoch (R13). It is
// false while this leader sees a real member there, which whoever has heard the operator does not
// any more: it has to be told again.
func (m *Machine) GiveUp(now time.Time) bool {
	if m.phase == Off || m.quiesced {
		return true
	}
	if len(m.cfg.Virtual.Real(m.view.ISR)) > 0 {
		return false
	}
	switch m.phase {
	case ReadingState: // reads it
	case Collecting:
		m.consent.GiveUp = true
		m.progress(now)
	default:
		why := "the operator does not wait any longer for a replica with all data"
		if from, to := m.Missing(); from < to {
			m.gaveUp = to
			why += fmt.Sprintf("; offsets %d to %d are on no replica that is alive", from, to-1)
		}
		m.resign(m.epoch, why)
	}
	return true
}

// Missing returns the visible offsets that no live real replica has, as far as this leader knows:
// what giving up would give up. None if from is not below to.
func (m *Machine) Missing() (from, to int64) {
	if m.phase != Leading || len(m.cfg.Virtual.Real(m.view.ISR)) > 0 {
		return 0, 0
	}
	from = -1
	for id, f := range m.followers {
		if b, ok := m.view.Brokers[id]; ok && !b.Fenced && !m.cfg.Virtual.Is(id) && f.valid {
			from = max(from, f.end)
		}
	}
	if from < 0 {
		return 0, 0 // nobody is back
	}
	return from, m.hw
}

// Unheard returns the real replicas that a takeover still has to hear of before it is known who
// has all data; none where one certain replica is enough.
func (m *Machine) Unheard() []int32 {
	if m.phase != Collecting || len(m.cfg.Virtual.Real(m.view.ISR)) > 0 || len(m.cfg.Virtual.Real(m.view.ELR)) > 0 {
		return nil
	}
	var out []int32
	for _, id := range m.cfg.Virtual.Real(m.view.Replicas) {
		if !m.reported(id) {
			out = append(out, id)
		}
	}
	return out
}

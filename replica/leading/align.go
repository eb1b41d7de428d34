package leading

// align says once that the takeover is complete: every real member of the ISR has come
// with a log end that passed the lineage check. Until then one may still hold records that
// have to go, and a start is not MIRRORING (design.md §6).
func (m *Machine) align() {
	real := m.cfg.Virtual.Real(m.view.ISR)
	if m.aligned || len(real) == 0 {
		return
	}
	for _, id := range real {
		if f := m.followers[id]; f == nil || !f.valid {
			return
		}
	}
	m.aligned = true
	m.do(Ready{m.epoch, m.s, m.hw})
}

// Aligned tells whether Ready was said under this epoch. Nothing else makes a start MIRRORING,
// which consents to what later takeovers drop (R20).
func (m *Machine) Aligned() bool { return m.aligned }

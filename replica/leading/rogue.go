package leading

import "math"

// foreign returns what the members that S was computed from hold of records that no virtual
// broker led (R5, C12). With none, From is above every offset. A start drops what clients wrote
// before there was a mirror, or after it was stopped: nobody went around it.
func (m *Machine) foreign() Foreign {
	f := Foreign{Epoch: m.epoch, From: math.MaxInt64}
	if !m.consent.Runs {
		return f
	}
	for _, l := range m.refLogs {
		c, _, known := m.record.ChainOf(l)
		if from, has := c.FirstLocal(); known && has && from < l.End {
			f.From, f.To = min(f.From, from), max(f.To, l.End)
		}
	}
	f.Visible = max(0, min(m.knownHW, f.To)-f.From)
	return f
}

package leading

import (
	"maps"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// The controller, as Kafka's ReplicationControlManager and PartitionChangeBuilder act.

func (w *simWorld) publish(f func(m *simMeta)) {
	m := *w.meta
	m.brokers = maps.Clone(m.brokers)
	f(&m)
	m.sum = 0
	w.meta = &m
}

// change elects and keeps the ELR after the ISR or the assignment has changed.
func (w *simWorld) change(isr, unclean []int32, prefer bool) {
	m := w.meta
	w.assign(m.replicas, m.adding, m.removing, isr, unclean, prefer)
}

func (w *simWorld) assign(replicas, adding, removing, isr, unclean []int32, prefer bool) {
	w.publish(func(m *simMeta) {
		old := *w.meta
		isr = only(isr, replicas)
		if len(adding)+len(removing) > 0 {
			in, all := without(isr, removing...), without(replicas, removing...)
			if len(in) > 0 && len(all) > 0 && len(without(all, in...)) == 0 {
				isr, replicas, adding, removing = in, all, nil, nil
			}
		}
		m.replicas, m.adding, m.removing = replicas, adding, removing
		elr := m.elr
		if w.cfg.elr {
			if len(isr) >= min(m.min, len(replicas)) {
				elr = nil
			} else {
				for _, id := range old.isr {
					elr = with(elr, id)
				}
				elr = without(only(elr, replicas), append(slices.Clone(unclean), isr...)...)
			}
		} else if len(isr) == 0 {
			isr = only(old.isr, replicas)
		}
		ok := func(id int32) bool { return slices.Contains(isr, id) && m.active(id) }
		leader := m.leader
		if leader < 0 || !ok(leader) || prefer && ok(replicas[0]) {
			leader = -1
			for _, id := range replicas {
				if ok(id) {
					leader = id
					break
				}
			}
			if leader < 0 && w.cfg.elr && len(isr) == 0 {
				for _, id := range replicas {
					if slices.Contains(elr, id) && m.active(id) {
						leader, isr, elr, m.recovering = id, []int32{id}, without(elr, id), false
						break
					}
				}
				if leader < 0 && len(elr) == 0 && m.lastLeader >= 0 && m.active(m.lastLeader) && slices.Contains(replicas, m.lastLeader) {
					// Stock Kafka's unclean recovery by the last known leader.
					leader, isr, m.recovering = m.lastLeader, []int32{m.lastLeader}, true
					w.visible = [maxOffset]uint8{}
				}
			}
		}
		if w.cfg.elr && len(isr) == 0 && old.leader >= 0 {
			m.lastLeader = old.leader
		} else if leader >= 0 {
			m.lastLeader = -1
		}
		if len(simVirtual.Real(isr)) > 0 {
			m.lastReal = nil
		} else if r := simVirtual.Real(old.isr); len(r) > 0 {
			m.lastReal = r
		}
		m.isr, m.elr = isr, elr
		if leader != m.leader || len(without(old.replicas, replicas...)) > 0 {
			// A replica that goes bumps the epoch also under the same leader.
			m.leader = leader
			m.le++
		}
		m.pe++
	})
}

// reassign is AlterPartitionReassignments; no target cancels what is pending.
func (w *simWorld) reassign(target []int32) bool {
	m := w.meta
	if len(target) == 0 {
		if len(m.adding)+len(m.removing) == 0 {
			return false
		}
		// Those being added go again, unless nobody else is in the ISR.
		isr := without(m.isr, m.adding...)
		if len(isr) == 0 {
			return false
		}
		w.assign(without(m.replicas, m.adding...), nil, nil, isr, nil, false)
		return true
	}
	current := without(m.replicas, m.adding...)
	removing := without(current, target...)
	adding := without(target, current...)
	w.assign(append(slices.Clone(target), removing...), adding, removing, m.isr, nil, false)
	return true
}

// setMin changes min.insync.replicas, which empties the ELR (ClearElrRecord).
func (w *simWorld) setMin(n int) bool {
	if n == w.meta.min {
		return false
	}
	w.publish(func(m *simMeta) { m.min, m.elr, m.lastLeader = n, nil, -1 })
	return true
}

func (w *simWorld) fence(id int32) {
	w.publish(func(m *simMeta) {
		b := m.brokers[id]
		b.Fenced = true
		m.brokers[id] = b
	})
	w.change(without(w.meta.isr, id), nil, false)
}

func (w *simWorld) register(id int32, unclean bool) int64 {
	w.fence(id)
	w.nextBE++
	w.publish(func(m *simMeta) { m.brokers[id] = BrokerView{Epoch: w.nextBE, Fenced: true} })
	if w.cfg.elr && unclean {
		w.publish(func(m *simMeta) { m.elr = without(m.elr, id) })
		w.change(without(w.meta.isr, id), []int32{id}, false)
	}
	return w.nextBE
}

func (w *simWorld) unfence(id int32) bool {
	b := w.meta.brokers[id]
	if !b.Fenced {
		return false
	}
	if simVirtual.Is(id) {
		if v := w.virtByID(id); !v.up || v.be != b.Epoch {
			return false
		}
	} else if r := w.byID(id); !r.up || r.be != b.Epoch {
		return false
	}
	w.publish(func(m *simMeta) {
		b.Fenced = false
		m.brokers[id] = b
	})
	w.change(w.meta.isr, nil, false)
	return true
}

func (w *simWorld) alter(from int32, be int64, a AlterPartition) int16 {
	m := w.meta
	switch {
	case be != m.brokers[from].Epoch:
		return codeStaleBrokerEpoch
	case m.leader != from || a.LeaderEpoch > m.le:
		return codeNewLeaderElected
	case a.LeaderEpoch < m.le:
		return CodeFencedLeaderEpoch
	case a.PartitionEpoch != m.pe:
		return codeInvalidUpdateVer
	}
	var isr []int32
	self := false
	for _, p := range a.ISR {
		b := m.brokers[p.ID]
		if b.Fenced || p.Epoch != lineage.Undefined && p.Epoch != b.Epoch || !slices.Contains(m.replicas, p.ID) {
			return codeIneligibleReplica
		}
		isr = append(isr, p.ID)
		self = self || p.ID == from
	}
	if !self {
		return 42
	}
	w.publish(func(m *simMeta) { m.recovering = false })
	w.change(isr, nil, false)
	return CodeNone
}

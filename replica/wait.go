package replica

import "fmt"

// This file says what a partition without a real replica in sync waits for (R15).

// waitsForLocked says it in words for whoever can do something about it; "" if a real replica is
// in sync. The leader knows more than the metadata log tells.
func (p *partition) waitsForLocked() string {
	img := p.m.image.Partition(p.tp)
	if img == nil || !p.machine.Status().Waiting {
		return ""
	}
	const what = "no real replica is in sync; "
	if all := p.machine.Unheard(); len(all) > 0 {
		return what + img.BringBackAll(p.m.cfg.Virtual, all)
	}
	out := what + img.BringBack(p.m.cfg.Virtual)
	if from, to := p.machine.Missing(); from < to {
		out += fmt.Sprintf("; offsets %d to %d, %d records, are on no replica that is alive: --recover --allow-truncate gives them up, and reads again what the source still has of them", from, to-1, to-from)
	}
	return out
}

// tellWaitLocked logs what is waited for, once.
func (p *partition) tellWaitLocked() {
	now := p.waitsForLocked()
	if now == p.waitTold {
		return
	}
	if p.waitTold = now; now == "" {
		p.log.Info("a real replica is in sync again")
		return
	}
	p.log.Warn("waits for replicas", "epoch", p.machine.Status().Epoch, "reason", now)
}

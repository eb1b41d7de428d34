package replica

import (
	"fmt"

	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
)

// silenceLocked takes note of a follower that lives and does not fetch.
func (p *partition) silenceLocked(a leading.Silent) {
	p.m.cfg.Metrics.silent()
	p.log.Warn("a live broker has stopped fetching", "epoch", a.Epoch, "broker", a.Replica, "times", a.Times, "lastTry", a.Final)
	if a.Final {
		p.alignedLocked(a.Epoch) // it is not
	}
}

// heardLocked: a follower that new epochs did not cure fetches again, or is dead.
func (p *partition) heardLocked(a leading.Heard) {
	p.log.Info("a broker that had stopped fetching does so no longer", "epoch", a.Epoch, "broker", a.Replica)
	if p.failures == 0 {
		p.alignedLocked(a.Epoch)
	}
}

// silentLocked says which followers need people, "" if none does.
func (p *partition) silentLocked() string {
	silent := p.machine.LeftToPeople()
	if len(silent) == 0 {
		return ""
	}
	return fmt.Sprintf("broker %s lives, but does not fetch the partition, and new leader epochs did not help; its log says why (look for \"marked as failed\")", list(silent))
}

// alignedLocked reports that all is well, or that a follower needs people: the others are
// served on either way. While the takeover lasts it is not known that all is well; the end of
// the takeover will tell.
func (p *partition) alignedLocked(epoch int32) {
	if why := p.silentLocked(); why != "" {
		p.reportLocked(epoch, Report{Kind: Failing, Message: why})
		return
	}
	if p.machine.Aligned() {
		p.reportLocked(epoch, Report{Kind: Aligned})
	}
}

func list(brokers []int32) string {
	text := ""
	for i, id := range brokers {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprint(id)
	}
	return text
}

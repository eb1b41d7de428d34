package replica

import (
	"fmt"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
)

// This file follows what is wanted of a led partition (mirrored, paused, stopped) and what
// becomes of it when it fails: reports, and further tries.

// topicLocked takes what the state says of the topic. It is called with every change, and
// once at each takeover, then with a zero p.mirror.
func (p *partition) topicLocked(now time.Time, mt MirrorTopic) {
	p.giveUpLocked(now, mt)
	old := p.mirror
	if mt == old {
		return
	}
	p.mirror = mt
	epoch := p.machine.Status().Epoch
	if mt.Fault != old.Fault {
		if mt.Fault == "" {
			p.machine.Unbar(now)
			if mt.Paused && old.Paused {
				// Nothing will be read, so nothing else ends the failure.
				p.clearLocked()
				p.reportLocked(epoch, p.restingLocked())
			}
		} else {
			p.failures, p.failMessage, p.retryAt = max(p.failures, 1), mt.Fault, time.Time{}
			p.log.Error("mirror partition failed", "epoch", epoch, "error", mt.Fault)
			p.machine.Bar(now)
			p.reportLocked(epoch, Report{Kind: Failing, Message: mt.Fault})
		}
	}
	switch {
	case mt.Stopping:
		if mt.PIDReset {
			p.machine.EndWithReset()
		}
		p.machine.Quiesce(now)
		return
	case mt.Paused && !old.Paused:
		p.machine.Pause(now)
		if mt.Fault == "" {
			if p.failures > 0 { // a failure of reading ends with reading
				p.clearLocked()
				p.machine.Retry(now, epoch)
			}
			p.reportLocked(epoch, Report{Kind: Pauses})
		}
	case !mt.Paused && old.Paused:
		p.machine.Resume(now)
		if p.machine.Status().Phase == leading.Leading && mt.Fault == "" {
			p.alignedLocked(epoch)
		}
	}
	if mt.Since != old.Since {
		p.retryNowLocked(now)
	}
	if old != (MirrorTopic{}) && mt.Since != old.Since {
		p.machine.Forgive(now)
	}
	if old != (MirrorTopic{}) && (mt.Since != old.Since || mt.AllowTruncate != old.AllowTruncate) {
		p.machine.Reconsider(now)
	}
	if old != (MirrorTopic{}) && mt.AllowTruncate && !old.AllowTruncate {
		p.machine.Consented(now)
	}
}

// giveUpLocked hands on that the operator does not wait any longer for a replica of this very
// partition. Leave to drop what the source lacks does not say so.
func (p *partition) giveUpLocked(now time.Time, mt MirrorTopic) {
	told := p.gaveUp
	p.gaveUpWaits = false
	if p.gaveUp = p.m.state.GivenUp(p.tp); p.gaveUp != 0 && p.gaveUp != told && !mt.Paused && !p.machine.GiveUp(now) {
		p.gaveUp, p.gaveUpWaits = told, true // the metadata log has yet to show here what the operator has seen
	}
}

// giveUpAgainLocked hands on what the machine could not take yet.
func (p *partition) giveUpAgainLocked(now time.Time) {
	if p.gaveUpWaits {
		p.giveUpLocked(now, p.mirror)
	}
}

// restingLocked is the report of a partition that is to be paused.
func (p *partition) restingLocked() Report {
	if p.machine.Status().Rested {
		return Report{Kind: Rests}
	}
	return Report{Kind: Pauses}
}

func (p *partition) clearLocked() {
	p.failures, p.failMessage, p.failsOn, p.retryAt = 0, "", false, time.Time{}
}

// readyLocked tells that a takeover is done.
func (p *partition) readyLocked(epoch int32) {
	r := Report{Kind: Aligned}
	if p.moved != nil {
		r.Detail, r.Message = p.moved.Detail, p.moved.Message
		p.moved = nil
	}
	if p.mirror.Fault == "" {
		p.clearLocked()
		p.reportLocked(epoch, r)
	}
}

// failLocked marks the partition failed and says when it is tried again.
func (p *partition) failLocked(epoch int32, err error) {
	if p.failsOn && p.failMessage == err.Error() {
		return // the fetcher asks on; that is no further try
	}
	if !p.failsOn {
		p.failures++
	}
	p.failMessage = err.Error()
	p.log.Error("mirror partition failed", "epoch", epoch, "attempt", p.failures, "error", err)
	p.m.cfg.Metrics.failed()
	p.machine.Fail(p.m.now(), epoch)
	p.reportLocked(epoch, Report{Kind: Failing, Message: err.Error(), Retry: int16(min(p.failures, 1<<15-1))})
	if p.failsOn {
		return // for another reason now, but tried again when it was to be
	}
	p.failsOn, p.retryAt = true, time.Time{}
	if wait, again := p.m.retries.after(p.failures, p.m.spread()); again {
		p.retryAt = p.m.now().Add(wait)
	}
}

// retryLocked tries a failed partition again when its wait is over.
func (p *partition) retryLocked(now time.Time) {
	if p.retryAt.IsZero() || now.Before(p.retryAt) {
		return
	}
	p.retryAt, p.failsOn = time.Time{}, false
	p.machine.Retry(now, p.machine.Status().Epoch)
}

// retryNowLocked begins anew to count tries, with one at once.
func (p *partition) retryNowLocked(now time.Time) {
	if p.failures == 0 || p.mirror.Fault != "" {
		return
	}
	p.failures, p.retryAt = 1, now
	p.retryLocked(now)
}

// wellLocked takes note of a good answer of the source: a failure is over.
func (p *partition) wellLocked(epoch int32) {
	if p.failures == 0 || p.mirror.Fault != "" {
		return
	}
	p.clearLocked()
	p.alignedLocked(epoch)
}

// movedLocked makes it visible that the mirror went back, or forward over a hole.
func (p *partition) movedLocked(a leading.Truncated) {
	p.log.Warn("the mirror moves", "epoch", a.Epoch, "from", a.From, "to", a.To, "reason", a.Reason)
	p.moved = moved(a)
	p.m.cfg.Metrics.moved(p.moved.Detail)
}

// moved says for people what a Truncated did.
func moved(a leading.Truncated) *Report {
	if a.To > a.From {
		return &Report{Detail: DetailHole, Message: fmt.Sprintf("up to %d records (offsets %d to %d) were deleted at the source before they were mirrored; the mirror goes on at %d", a.To-a.From, a.From, a.To-1, a.To)}
	}
	if a.To == a.From {
		return &Report{Detail: DetailTruncated, Message: fmt.Sprintf("records from offset %d on may have left the mirror, how many is not known: %s", a.To, a.Reason)}
	}
	return &Report{Detail: DetailTruncated, Message: fmt.Sprintf("up to %d records (offsets %d to %d) left the mirror: %s", a.From-a.To, a.To, a.From-1, a.Reason)}
}

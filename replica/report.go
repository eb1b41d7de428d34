package replica

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
)

// This file tells the coordinator what becomes of a led partition.

// reports is what a partition tells.
type reports struct {
	nextReport *queuedReport
	telling    *queuedReport // on its way
	reporting  bool
	// ended is the report of this epoch that the coordinator waits for, Quiet or Rests. The
	// machine says it once; toldAt is when it was told last.
	ended  *queuedReport
	toldAt time.Time
}

// queuedReport is what the coordinator is to be told next.
type queuedReport struct {
	epoch  int32
	report Report
}

// end tells whether somebody waits for a report.
func (k ReportKind) end() bool { return k == Quiet || k == Rests }

func (p *partition) report(epoch int32, r Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reportLocked(epoch, r)
}

// reportLocked tells the coordinator, in the background and until it has heard. Only the
// newest report counts: an older one that could not be delivered yet is dropped.
func (p *partition) reportLocked(epoch int32, r Report) {
	if p.foreign {
		return // there is no mirror that wants to know
	}
	next := &queuedReport{epoch, r}
	switch {
	case r.Kind.end():
		p.ended, p.toldAt = next, p.m.now()
	case p.keepsLocked(p.nextReport, next) || p.nextReport == nil && p.keepsLocked(p.telling, next):
		return
	}
	p.nextReport = next
	p.deliverLocked()
}

// keepsLocked tells whether a report that has not arrived yet is not to be replaced: after
// the end of reading, a failure of the source is of no interest to anybody, and the end is.
func (p *partition) keepsLocked(was, next *queuedReport) bool {
	switch {
	case was == nil || was.epoch != next.epoch || next.report.Kind != Failing && next.report.Kind != Note:
		return false
	case was.report.Kind == Rests:
		return p.mirror.Fault == "" // what is PAUSED fails with its topic
	}
	return was.report.Kind == Quiet
}

// assertAfter is how long the coordinator has to record what it was told.
const assertAfter = time.Second

// assertLocked tells again what somebody waits for, if it is not on record: it may have been
// overwritten by who did not know of it.
func (p *partition) assertLocked(now time.Time) {
	e, st := p.ended, p.machine.Status()
	if e == nil || p.reporting || e.epoch != st.Epoch || now.Sub(p.toldAt) < assertAfter {
		return
	}
	still := st.Quiesced && p.mirror.Stopping
	if e.report.Kind == Rests {
		still = st.Rested && st.Phase == leading.Leading && p.mirror.Paused && !p.mirror.Stopping && p.mirror.Fault == ""
	}
	if !still || p.m.state.Recorded(p.mirror.Mirror, p.tp, e.epoch, e.report.Kind) {
		return
	}
	p.log.Warn("what was reported is not on record, and is told again", "epoch", e.epoch, "detail", e.report.Detail)
	p.reportLocked(e.epoch, e.report)
}

func (p *partition) deliverLocked() {
	if p.reporting || p.closed {
		return
	}
	p.reporting = true
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		p.deliverReports()
	}()
}

// errSuperseded ends the tries to deliver a report when there is a newer one.
var errSuperseded = errors.New("there is a newer report")

func (p *partition) deliverReports() {
	for {
		p.mu.Lock()
		next, mirror := p.nextReport, p.mirror.Mirror
		p.nextReport, p.telling = nil, next
		if next == nil || p.closed {
			p.reporting, p.telling, p.toldAt = false, nil, p.m.now()
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		// A report that does not arrive delays people and hand-backs, not data.
		err := p.retry(p.ctx, "reporting the partition's state", func(ctx context.Context) error {
			p.mu.Lock()
			superseded := p.nextReport != nil
			p.mu.Unlock()
			if superseded {
				return backoff.Permanent(errSuperseded)
			}
			return p.m.state.Report(ctx, mirror, p.tp, next.epoch, next.report)
		})
		if err != nil && p.ctx.Err() == nil && !errors.Is(err, errSuperseded) {
			p.log.Warn("report refused", "epoch", next.epoch, "error", err)
		}
	}
}

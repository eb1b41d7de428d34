package replica

import (
	"fmt"

	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
)

// foreignRecordsLocked makes it visible that records which clients wrote here, around the
// mirror, are removed: while no sidecar was alive, a real broker led, and nothing kept it from
// taking them.
func (p *partition) foreignRecordsLocked(a leading.Foreign) {
	p.log.Warn("records that clients wrote here around the mirror are removed",
		"epoch", a.Epoch, "from", a.From, "to", a.To, "records", a.To-a.From, "visible", a.Visible)
	p.m.cfg.Metrics.foreignRecords(a.To - a.From)
	r := foreignReport(a)
	if p.moved != nil {
		r.Message = p.moved.Message + "; " + r.Message
	}
	p.moved = r
}

// foreignReport says for people what a Foreign did.
func foreignReport(a leading.Foreign) *Report {
	msg := fmt.Sprintf("%d records that clients wrote here around the mirror, offsets %d to %d, were removed", a.To-a.From, a.From, a.To-1)
	if a.Visible > 0 {
		msg += fmt.Sprintf("; consumers may have read %d of them", a.Visible)
	}
	return &Report{Detail: DetailForeign, Message: msg}
}

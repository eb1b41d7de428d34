package replica

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestForeign: a partition that is in no mirror is led as it is, and nobody is told. When a
// mirror takes it after all, everything begins anew.
func TestForeign(t *testing.T) {
	r := newWishRig(t)
	r.foreign = true
	r.lead(wishEpoch)
	if probes, adds := r.src.asked(); probes+adds > 0 {
		t.Errorf("a source was asked %d times and read %d times", probes, adds)
	}
	if len(r.reports) > 0 {
		t.Errorf("reported %+v", r.reports)
	}
	r.m.image.Set([]*metadata.Partition{{Topic: "t", TopicID: r.tp.TopicID, Leader: wishSelf}}, nil, nil)
	r.mu.Lock()
	r.foreign = false
	r.mu.Unlock()
	r.m.stateChanged()
	// The image does not show this process as registered, so it leads nothing.
	r.until("given up", func() bool { return r.phase() == leading.Off })
	r.lead(wishEpoch + 1)
	r.reported(Aligned)
	r.reading()
}

package coordinator

import (
	"slices"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// waitsFor says what keeps a partition of a mirror topic from going on that somebody has to
// do something about: which broker to bring back. Empty if nothing does. Every sidecar can
// tell, since the metadata log and the state say it all. unwritable is the store's, which is the same
// for all partitions of an answer.
func (c *Coordinator) waitsFor(t Topic, p *metadata.Partition, s PartitionState, unwritable func() string) string {
	v := c.cfg.Virtual
	if s.State == Stopped || !slices.ContainsFunc(p.Replicas, v.Is) {
		return ""
	}
	if t.Desired == Stopped {
		h := mayHandBack(v, p, s, func(b int32) bool { return alive(c.img, b) }, false, 1)
		if h.wait != "" {
			return "the stop waits: " + h.wait
		}
		return ""
	}
	if len(v.Real(p.ISR)) == 0 {
		// Nothing of it can be given up before that can be written down.
		return strings.TrimSuffix(waitsForReplicas(v, p)+"; "+unwritable(), "; ")
	}
	return ""
}

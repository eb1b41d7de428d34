package coordinator

import (
	"slices"
	"strconv"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// mayChangeMinISR tells whether a mirror topic's min.insync.replicas may go from have to
// want now. The controller forgets with each change who is eligible to lead beside the ISR
// (KIP-966). That must not be all that is known: each partition needs a real member in its
// ISR. And where fewer are than the topic's own minimum, nothing moves with a lower one
// either, but who else has everything would be forgotten for it.
func mayChangeMinISR(v ids.Virtual, parts []*metadata.Partition, own int, have, want string) bool {
	now, err := strconv.Atoi(have)
	if have == want || err != nil {
		return true
	}
	next, err := strconv.Atoi(want)
	return err == nil && !slices.ContainsFunc(parts, func(p *metadata.Partition) bool {
		real := len(v.Real(p.ISR))
		return slices.ContainsFunc(p.Replicas, v.Is) && (real == 0 || next < now && real < own && len(v.Real(p.ELR)) > 0)
	})
}

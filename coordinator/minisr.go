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

// exposes tells whether a change of min.insync.replicas may make visible what clients write around a
// mirror whose write lock does not keep them out: a lower one, where a real broker leads. A virtual
// replica needs none to get in sync there, and the lower one can be set once it leads (R21).
func exposes(v ids.Virtual, parts []*metadata.Partition, have, want string) bool {
	now, err := strconv.Atoi(have)
	next, errNext := strconv.Atoi(want)
	return err == nil && errNext == nil && next < now && slices.ContainsFunc(parts, func(p *metadata.Partition) bool {
		return p.Leader >= 0 && !v.Is(p.Leader) && slices.ContainsFunc(p.Replicas, v.Is)
	})
}

// ownMinISR is a mirror topic's own min.insync.replicas as far as it is known without asking
// anybody; 0 if it is not.
func (c *Coordinator) ownMinISR(t Topic) int {
	def, err := strconv.Atoi(c.img.BrokerDefaultConfig()[configMinISR])
	if err != nil && c.deps.Destination != nil {
		def = c.deps.Destination.knownDefault(configMinISR)
	}
	if t.Wanted[configMinISR] == nil && def < 1 {
		return 0
	}
	return configuredMinISR(t, def)
}

// knownDefault is a broker-wide number that was asked for before, 0 if none was. It waits for
// nobody who asks.
func (d *Destination) knownDefault(key string) int {
	known := d.known.Load()
	if known == nil {
		return 0
	}
	n, err := strconv.Atoi((*known)[key])
	if err != nil {
		return 0
	}
	return n
}

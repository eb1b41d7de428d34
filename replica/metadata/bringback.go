package metadata

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// BringBack says which broker has to come back before a partition whose ISR has no real member
// can go on (R15), in words for whoever has to start it.
func (p *Partition) BringBack(v ids.Virtual) string {
	last := slices.DeleteFunc(slices.Clone(p.LastRealISR), func(id int32) bool { return !slices.Contains(p.Replicas, id) })
	switch elr := v.Real(p.ELR); {
	case len(elr) > 0:
		return fmt.Sprintf("bring back broker %s, which has all data", anyOf(elr))
	case len(last) > 0:
		return fmt.Sprintf("bring back broker %s, which was the last in sync", allOf(last))
	}
	return fmt.Sprintf("bring back broker %s", allOf(v.Real(p.Replicas)))
}

// BringBackAll is BringBack for a leader that has to hear of every real replica before it can
// tell who has all data; unheard are those that it has not heard of.
func (p *Partition) BringBackAll(v ids.Virtual, unheard []int32) string {
	return fmt.Sprintf("bring back broker %s: who has all data is known when the logs of broker %s were compared", allOf(unheard), allOf(v.Real(p.Replicas)))
}

func anyOf(brokers []int32) string { return join(brokers, " or ") }

func allOf(brokers []int32) string { return join(brokers, ", ") }

func join(brokers []int32, with string) string {
	s := make([]string, len(brokers))
	for i, b := range brokers {
		s[i] = fmt.Sprint(b)
	}
	return strings.Join(s, with)
}

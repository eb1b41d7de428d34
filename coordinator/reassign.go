package coordinator

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// openTimeout bounds how long a client's reassignment waits for virtual brokers to open.
const openTimeout = 10 * time.Second

// Kept returns the virtual replicas of a partition that stay when a client moves its real
// ones; ok is false if it is no mirror's. None are added where there are none: that is the
// reconciler's, who locks the topic and records its state before. So what a client sends
// leaves the assignment as it is wanted; if it comes late, after a stop, or around the
// sidecars, the reconciler repairs it (R19).
func (c *Coordinator) Kept(tp ids.TopicPartition) (virtual []int32, ok bool, err error) {
	p := c.img.Partition(tp)
	if p == nil {
		return nil, false, nil
	}
	v := c.cfg.Virtual
	have := v.Only(settled(p))
	t, known := c.view.TopicByID(tp.TopicID)
	if !known {
		select {
		case <-c.store.Ready():
		default:
			if len(v.Only(p.Replicas)) > 0 {
				return nil, false, refuse(kerr.CoordinatorNotAvailable.Code, "topic %s: this sidecar has not read yet whether it is a mirror's; ask again", p.Topic)
			}
		}
		return nil, false, nil
	}
	s, _ := c.view.State(t.Mirror, tp)
	switch {
	case t.Desired == Stopped && len(v.Only(p.Replicas)) > 0:
		return nil, false, refuse(kerr.ReassignmentInProgress.Code,
			"topic %s is being taken out of mirror %q, which changes its replicas; ask again when it is STOPPED", t.Name, t.Mirror)
	case t.Desired == Stopped || t.lost() || refusedStart(s):
		return nil, false, nil
	case len(have) == 0:
		return nil, true, nil
	}
	// The controller takes no assignment that names a dead virtual broker. Those that are
	// missing then are the reconciler's to replace; but one must lead.
	live := liveVirtual(c.img, v)
	virtual = slices.DeleteFunc(have, func(b int32) bool { return !slices.Contains(live, b) })
	if len(virtual) == 0 && len(live) > 0 {
		virtual = []int32{live[(hashStart(t.Name, len(live))+int(p.Partition))%len(live)]}
	}
	if len(virtual) == 0 {
		return nil, false, refuse(kerr.BrokerNotAvailable.Code, "topic %s: no virtual broker is alive to go on mirroring it; ask again when a sidecar runs", t.Name)
	}
	return virtual, true, nil
}

// Open lets the controller accept assignments to virtual brokers until the returned
// function is called.
func (c *Coordinator) Open(ctx context.Context, virtual []int32) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	who := map[int32]bool{}
	for _, b := range virtual {
		who[b] = true
	}
	return c.openWindows(ctx, who)
}

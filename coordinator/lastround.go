package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/syncs"
)

// Syncs mirrors what is not records; syncs.Syncer does.
type Syncs interface {
	// Run runs one sync of a mirror at once. The mirror has to be coordinated here.
	Run(ctx context.Context, mirror string, kind policy.Kind, why policyv1.Round_Why) (syncs.Report, error)
}

// UseSyncs tells the coordinator who mirrors what is not records: it is built after it. It is
// called before Start.
func (c *Coordinator) UseSyncs(s Syncs) { c.syncs = s }

// lastRoundTimeout bounds how long a stop is held up by the groups. In a failover the source is
// dead, and somebody waits.
const lastRoundTimeout = 5 * time.Second

// lastRound copies the offsets of groups a last time before topics are stopped: from then on their
// consumers are here. It returns what is to be said of it where it did not succeed, which keeps
// nobody from stopping.
func (c *Coordinator) lastRound(ctx context.Context, r stopRequest) (warning string) {
	if c.syncs == nil || r.validateOnly {
		return ""
	}
	m, err := c.mirror(r.mirror)
	if err != nil {
		return "" // for the stop to say
	}
	names, _, err := c.toStop(m, r)
	if err != nil || !slices.ContainsFunc(names, func(n string) bool { return c.copiesGroups(r.mirror, n) }) {
		return ""
	}
	within, cancel := context.WithTimeout(ctx, lastRoundTimeout)
	defer cancel()
	err = reachable(within, m)
	if err == nil {
		err = c.copyGroups(within, r.mirror)
	}
	if err != nil {
		c.log.Warn("a mirror is stopped, and the offsets of its groups were not copied one last time", "mirror", r.mirror, "err", err)
		return fmt.Sprintf("not all offsets of groups were copied one last time: %v", err)
	}
	return ""
}

// comesUp is how long a coordinator of groups that is not ready yet is left alone between two tries.
const comesUp = 200 * time.Millisecond

// copyGroups runs the sync of groups, again while a coordinator of groups comes up.
func (c *Coordinator) copyGroups(ctx context.Context, mirror string) error {
	for {
		_, err := c.syncs.Run(ctx, mirror, policy.Groups, policyv1.Round_STOP)
		if !protocol.ComesUp(err) || ctx.Err() != nil {
			return err
		}
		pause(ctx, comesUp)
		if ctx.Err() != nil {
			return err
		}
	}
}

// reachTimeout is how long a source that does not even take connections is waited for: clients try
// again for much longer.
const reachTimeout = time.Second

// reachable returns an error if no address of a mirror's source takes connections.
func reachable(ctx context.Context, m Mirror) error {
	cfg, err := m.stored()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	errs := make([]error, len(cfg.Bootstrap))
	var tries sync.WaitGroup
	for i, addr := range cfg.Bootstrap {
		tries.Go(func() {
			var conn net.Conn
			if conn, errs[i] = (&net.Dialer{}).DialContext(ctx, "tcp", addr); conn != nil {
				_ = conn.Close()
				cancel() // one is enough
			}
		})
	}
	tries.Wait()
	if slices.Contains(errs, nil) {
		return nil
	}
	return fmt.Errorf("the source at %s takes no connections: %w", strings.Join(cfg.Bootstrap, ","), errors.Join(errs...))
}

// copiesGroups tells whether the offsets of groups in a topic of a mirror follow the source.
func (c *Coordinator) copiesGroups(mirror, topic string) bool {
	t, ok := c.view.Topic(mirror, topic)
	return ok && t.Desired == Mirroring && t.Fault == "" && !t.TopicID.IsZero()
}

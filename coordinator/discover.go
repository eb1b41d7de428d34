package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// discover starts the source topics that the mirror's patterns pick and that it does not
// have yet. What is picked and not started is remembered, and logged once, with the reason.
func (r *Refresher) discover(ctx context.Context, mirror Mirror, cfg *config.Mirror, m *refreshed) error {
	skipped := map[string]string{}
	defer func() { r.skips(mirror.Name, m, skipped) }()
	if cfg.TopicsInclude.Empty() {
		return nil
	}
	all, err := m.src.Names(ctx)
	if err != nil {
		return fmt.Errorf("mirror %s: topics at the source: %w", mirror.Name, err)
	}
	var fresh []string
	for _, n := range all {
		if !cfg.TopicsInclude.Match(n) {
			continue
		}
		t, known := r.c.view.Topic(mirror.Name, n)
		switch {
		case known && t.Desired != Stopped:
		case internalTopic(n):
			skipped[n] = "internal to Kafka, never mirrored"
		case cfg.TopicsExclude.Match(n):
			skipped[n] = fmt.Sprintf("excluded by the pattern %q", matching(config.SplitList(cfg.TopicsExclude.String()), n))
		case known:
			// Whoever stopped it has perhaps written to it since.
			skipped[n] = "stopped here; start it by its name to mirror it again"
		default:
			fresh = append(fresh, n)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if len(fresh) > maxTopicsPerRequest {
		r.log.Warn("more new topics than are started at once", "mirror", mirror.Name, "topics", len(fresh), "now", maxTopicsPerRequest)
		fresh = fresh[:maxTopicsPerRequest]
	}
	found, err := m.src.Topics(ctx, fresh)
	if err != nil {
		return fmt.Errorf("mirror %s: new topics at the source: %w", mirror.Name, err)
	}
	if err := r.c.askBefore(ctx, m.src, mirror, found); err != nil {
		return err
	}
	var begin []beginning
	for _, n := range fresh {
		b, again, err := r.c.checkStart(ctx, mirror, n, found, false)
		switch {
		case err != nil:
			skipped[n] = asError(err, kerr.UnknownServerError.Code).Message
		case !again:
			begin = append(begin, b)
		}
	}
	if len(begin) == 0 {
		return nil
	}
	names := make([]string, len(begin))
	for i, b := range begin {
		names[i] = b.topic
	}
	r.log.Info("new topics at the source match the mirror's patterns", "mirror", mirror.Name, "topics", strings.Join(names[:min(len(names), 20)], ","), "count", len(names))
	refused, err := r.c.begin(ctx, mirror.Name, begin, nil)
	for n, e := range refused {
		skipped[n] = e.Message
	}
	return err
}

// skips remembers what was left out, and logs what is new in it.
func (r *Refresher) skips(mirror string, m *refreshed, skipped map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.skipped = skipped
	for _, n := range slices.Sorted(maps.Keys(skipped)) {
		if m.told[n] != skipped[n] {
			r.log.Info("topic matches the mirror's patterns and is not mirrored", "mirror", mirror, "topic", n, "why", skipped[n])
		}
	}
	m.told = skipped
}

// maxSkips bounds what one mirror's describe lists as left out.
const maxSkips = 1000

// policies is what describe shows of the refresh of a mirror that is coordinated here: what
// was left out, and what cannot be made as it is wanted.
func (c *Coordinator) policies(mirror string) []protocol.DescribedPolicy {
	r := c.refresher.Load()
	if r == nil {
		return nil
	}
	r.mu.Lock()
	m := r.mirrors[mirror]
	if m == nil || m.lastRun.IsZero() {
		r.mu.Unlock()
		return nil
	}
	p := protocol.NewDescribedPolicy()
	p.Kind, p.Plugin, p.LastRunMs, p.LastError = "topics", "built-in", m.lastRun.UnixMilli(), nullable(m.lastErr)
	why := maps.Clone(m.skipped)
	r.mu.Unlock()
	if why == nil {
		why = map[string]string{}
	}
	for _, t := range c.view.Topics(mirror) {
		if hindrance := r.rec.hindrance(topicKey{mirror, t.Name}); hindrance != "" {
			why[t.Name] = hindrance
		}
	}
	for _, n := range slices.Sorted(maps.Keys(why)) {
		if len(p.Skipped) == maxSkips {
			break
		}
		s := protocol.NewPolicySkip()
		s.Name, s.Reason = n, why[n]
		p.Skipped = append(p.Skipped, s)
	}
	return []protocol.DescribedPolicy{p}
}

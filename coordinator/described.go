package coordinator

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// MaxSkips bounds what one policy of a mirror's describe lists as left out.
const MaxSkips = 1000

// policies is what describe shows of the policies of a mirror that is coordinated here: one row for
// each plugin of each kind that was asked, with what it left out, and what cannot be made as it is
// wanted.
func (c *Coordinator) policies(mirror string) []protocol.DescribedPolicy {
	r := c.refresher.Load()
	m, ok := c.view.Mirror(mirror)
	if r == nil || !ok {
		return nil
	}
	r.mu.Lock()
	look := r.mirrors[mirror]
	if look == nil || look.lastRun.IsZero() {
		r.mu.Unlock()
		return nil
	}
	last, lastErr, why, ignored := look.lastRun.UnixMilli(), look.lastErr, maps.Clone(look.skipped), look.ignored
	r.mu.Unlock()
	if why == nil {
		why = map[string]string{}
	}
	for _, t := range c.view.Topics(mirror) {
		if hindrance := r.rec.hindrance(topicKey{mirror, t.Name}); hindrance != "" {
			why[t.Name] = hindrance
		}
	}
	ledger, runs := c.deps.Policies.Ledger(), map[policy.Kind][]policy.Run{}
	for _, run := range c.deps.Policies.Ledger().Runs(mirror) {
		runs[run.Kind] = append(runs[run.Kind], run)
	}
	settings := config.ForPolicies(m.Configs)
	// The refresh is what topics are mirrored by: it is shown also before anybody was asked.
	out := describeRuns(policy.Topics, policy.Names(settings, policy.Topics), runs[policy.Topics])
	for i := range out {
		out[i].LastRunMs, out[i].LastError = last, nullable(cmp.Or(text(out[i].LastError), lastErr))
	}
	out[0].Warnings = append(out[0].Warnings, ignored...)
	for _, n := range slices.Sorted(maps.Keys(why)) {
		e, _ := ledger.Get(mirror, policy.Topics, n)
		addSkip(out, e, n, why[n])
	}
	for _, k := range []policy.Kind{policy.Configs, policy.ACLs, policy.Groups, policy.Quotas, policy.Events} {
		if len(runs[k]) == 0 {
			continue
		}
		rows := describeRuns(k, policy.Names(settings, k), runs[k])
		for _, s := range ledger.Skips(mirror, k, MaxSkips) {
			addSkip(rows, s.Entry, s.Item, s.Why())
		}
		out = append(out, rows...)
	}
	return out
}

// describeRuns makes a row for each plugin that a mirror names for a kind. It is a pure function.
// Groups have not run before a round is through that has looked at them: only then is all told that
// --switchover goes by.
func describeRuns(k policy.Kind, names []string, runs []policy.Run) []protocol.DescribedPolicy {
	if len(names) == 0 {
		names = []string{""}
	}
	through := k != policy.Groups || slices.ContainsFunc(runs, func(r policy.Run) bool { return r.Plugin == "" && !r.Idle })
	var out []protocol.DescribedPolicy
	for _, n := range names {
		p := protocol.NewDescribedPolicy()
		p.Kind, p.Plugin = string(k), n
		for _, r := range runs {
			if r.Plugin != n && r.Plugin != "" { // what was done at last is everybody's
				continue
			}
			if through {
				p.LastRunMs = max(p.LastRunMs, r.At.UnixMilli())
			}
			if p.LastError == nil {
				p.LastError = nullable(r.LastError)
			}
			p.Warnings = append(p.Warnings, r.Warnings...)
		}
		out = append(out, p)
	}
	return out
}

// addSkip shows an item with the plugin that refused it, or else with the first one.
func addSkip(rows []protocol.DescribedPolicy, e policy.Entry, name, why string) {
	row := 0
	for i := range rows {
		if !e.Accepted && e.Plugin != "" && rows[i].Plugin == e.Plugin {
			row = i
		}
	}
	if len(rows) == 0 || len(rows[row].Skipped) >= MaxSkips {
		return
	}
	s := protocol.NewPolicySkip()
	s.Name, s.Reason = name, why
	rows[row].Skipped = append(rows[row].Skipped, s)
}

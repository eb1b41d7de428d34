package coordinator

import (
	"context"
	"fmt"

	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/syncs"
)

// everything is the name that asks what would be changed, instead of one thing.
const everything = "*"

// maxPreviewed bounds how many changes one answer names, and how many things that are left out.
const maxPreviewed = 1000

// previewer says what a sync would do.
type previewer interface {
	Preview(ctx context.Context, mirror string, kind policy.Kind, with map[string]*string) (syncs.Report, error)
}

// previewSync says what would be changed of a kind if the mirror's configuration were changed so.
func (c *Coordinator) previewSync(ctx context.Context, m Mirror, kind policy.Kind, with []protocol.ExplainedConfig) (steps []protocol.ExplanationStep, done bool) {
	p, ok := c.syncs.(previewer)
	if !ok {
		return []protocol.ExplanationStep{step("sync", false, "this sidecar mirrors nothing but records")}, false
	}
	changes := map[string]*string{}
	for _, w := range with {
		changes[w.Name] = w.Value
	}
	r, err := p.Preview(ctx, m.Name, kind, changes)
	if err != nil {
		return []protocol.ExplanationStep{step("sync", false, "%v", err)}, false
	}
	if r.Note != "" {
		steps = append(steps, step("sync", false, "%s", r.Note))
	}
	for _, w := range r.Warnings {
		steps = append(steps, step("warning", false, "%s", w))
	}
	for _, ch := range r.Changes[:min(len(r.Changes), maxPreviewed)] {
		text := ch.Item
		if ch.Detail != "" {
			text = fmt.Sprintf("%s (%s)", ch.Item, ch.Detail)
		}
		steps = append(steps, step(ch.Verb, true, "%s", text))
	}
	for _, s := range r.Skipped[:min(len(r.Skipped), maxPreviewed)] {
		steps = append(steps, step("skip", false, "%s: %s", s.Item, s.Reason))
	}
	if more := max(len(r.Changes)-maxPreviewed, 0) + max(len(r.Skipped)-maxPreviewed, 0); more > 0 {
		steps = append(steps, step("more", true, "%d changes and %d that are left out in all", len(r.Changes), len(r.Skipped)))
	}
	return steps, len(r.Changes) == 0 && r.Note == ""
}

package coordinator

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/syncs"
)

// foreseen is what syncs would do.
type foreseen struct {
	report syncs.Report
	err    error
	kind   policy.Kind
	with   map[string]*string
}

func (f *foreseen) Run(context.Context, string, policy.Kind, policyv1.Round_Why) (syncs.Report, error) {
	return syncs.Report{}, errors.New("not scripted")
}

func (f *foreseen) Preview(_ context.Context, _ string, kind policy.Kind, with map[string]*string) (syncs.Report, error) {
	f.kind, f.with = kind, with
	return f.report, f.err
}

// TestPreviewSync asks for the difference instead of for one ACL or quota.
func TestPreviewSync(t *testing.T) {
	r := newRig(t)
	ask := func(kind string, with ...protocol.ExplainedConfig) protocol.MirrorExplanation {
		t.Helper()
		req := protocol.NewExplainClusterMirrorRequest()
		req.Kind, req.Name, req.With = kind, "*", with
		resp, ok := r.explainAnswer(t.Context(), true, &req).(*protocol.ExplainClusterMirrorResponse)
		if !ok || resp.ErrorCode != 0 || len(resp.Explanations) != 1 {
			t.Fatalf("%+v", resp)
		}
		return resp.Explanations[0]
	}
	f := &foreseen{report: syncs.Report{
		Changes: []syncs.Change{{Item: "a", Verb: "create"}, {Item: "b", Verb: "delete", Detail: "the source does not have it any more"}},
		Skipped: []syncs.Skip{{Item: "c", Reason: "no rule fits"}}, Warnings: []string{"beware"},
	}}
	r.UseSyncs(f)
	rules := "TOPIC"
	got := ask("acl", protocol.ExplainedConfig{Name: "mirror.acls.include", Value: &rules}, protocol.ExplainedConfig{Name: "mirror.acls.exclude"})
	var lines []string
	for _, s := range got.Steps {
		lines = append(lines, s.Rule+": "+s.Reason)
	}
	if want := "warning: beware|create: a|delete: b (the source does not have it any more)|skip: c: no rule fits"; strings.Join(lines, "|") != want || got.Mirrored {
		t.Errorf("%v %q, want %q", got.Mirrored, lines, want)
	}
	if v, removed := f.with["mirror.acls.exclude"]; f.kind != policy.ACLs || *f.with["mirror.acls.include"] != rules || v != nil || !removed {
		t.Errorf("asked about %s with %v", f.kind, f.with)
	}
	f.report = syncs.Report{Note: "the source has no authorizer"}
	if got := ask("quota"); f.kind != policy.Quotas || len(got.Steps) != 1 || !strings.Contains(got.Steps[0].Reason, "no authorizer") {
		t.Errorf("%+v", got)
	}
	f.report = syncs.Report{}
	if got := ask("acl"); !got.Mirrored || len(got.Steps) != 0 {
		t.Errorf("nothing to do: %+v", got)
	}
	for range 2 * maxPreviewed {
		f.report.Changes = append(f.report.Changes, syncs.Change{Item: "x", Verb: "create"})
	}
	if got := ask("acl"); len(got.Steps) != maxPreviewed+1 {
		t.Errorf("%d steps", len(got.Steps))
	}
	f.err = errors.New("the source does not answer")
	if got := ask("acl"); len(got.Steps) != 1 || !strings.Contains(got.Steps[0].Reason, "does not answer") {
		t.Errorf("%+v", got)
	}
	r.UseSyncs(nil)
	if got := ask("acl"); len(got.Steps) != 1 {
		t.Errorf("%+v", got)
	}
}

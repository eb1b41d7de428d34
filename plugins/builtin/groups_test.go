package builtin

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

func TestGroups(t *testing.T) {
	r := &policyv1.SelectGroupsRequest{Round: &policyv1.Round{MirrorConfig: map[string]string{
		groupsIncludeKey: "app-.*,billing", groupsExcludeKey: "app-test.*",
	}}}
	want := map[string]string{
		"app-1":      `mirror.groups.include: included by the pattern "app-.*"`,
		"billing":    `mirror.groups.include: included by the pattern "billing"`,
		"billing-2":  `mirror.groups.include: no pattern matches`,
		"app-test-1": `mirror.groups.exclude: excluded by the pattern "app-test.*"`,
	}
	for _, name := range []string{"app-1", "billing", "billing-2", "app-test-1"} {
		r.Groups = append(r.Groups, &policyv1.GroupFacts{Group: name})
	}
	got, err := groups{}.SelectGroups(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range got.GetDecisions() {
		text := d.GetDecision().GetRule() + ": " + d.GetDecision().GetReason()
		accepted := d.GetDecision().GetVerdict() == policyv1.Decision_ACCEPT
		if d.GetGroup() != r.Groups[i].GetGroup() || text != want[d.GetGroup()] || accepted != (i < 2) {
			t.Errorf("%s: accepted %v, %s", d.GetGroup(), accepted, text)
		}
	}
	r.Round.MirrorConfig[groupsExcludeKey] = "("
	if _, err := (groups{}).SelectGroups(t.Context(), r); err == nil {
		t.Error("a pattern that is none was taken")
	}
}

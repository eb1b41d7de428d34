package builtin

import (
	"context"
	"fmt"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// The keys of a mirror that groups are selected by.
const (
	groupsIncludeKey = config.GroupsIncludeKey
	groupsExcludeKey = "mirror.groups.exclude"
)

// groups selects groups by their names.
type groups struct{}

// SelectGroups implements plugins.GroupPolicy.
func (groups) SelectGroups(ctx context.Context, r *policyv1.SelectGroupsRequest) (*policyv1.SelectGroupsResponse, error) {
	include, err := namePatterns(r.GetRound(), groupsIncludeKey)
	if err != nil {
		return nil, err
	}
	exclude, err := namePatterns(r.GetRound(), groupsExcludeKey)
	if err != nil {
		return nil, err
	}
	return plugins.GroupFunc(func(_ context.Context, _ *policyv1.Round, g *policyv1.GroupFacts) (*policyv1.Decision, error) {
		return selectGroup(include, exclude, g.GetGroup()), nil
	}).SelectGroups(ctx, r)
}

func selectGroup(include, exclude []config.Pattern, group string) *policyv1.Decision {
	if p, ok := firstMatch(exclude, group); ok {
		return plugins.Refuse(groupsExcludeKey, fmt.Sprintf("excluded by the pattern %q", p))
	}
	if p, ok := firstMatch(include, group); ok {
		return plugins.Accept(groupsIncludeKey, fmt.Sprintf("included by the pattern %q", p))
	}
	return plugins.Refuse(groupsIncludeKey, "no pattern matches")
}

// namePatterns reads a key that holds a list of patterns. They are kept one by one, so that a
// reason can name the one that matches.
func namePatterns(r *policyv1.Round, key string) ([]config.Pattern, error) {
	var out []config.Pattern
	for _, text := range config.SplitList(r.GetMirrorConfig()[key]) {
		p, err := config.ParsePattern(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// firstMatch returns the first pattern that matches a name.
func firstMatch(patterns []config.Pattern, name string) (string, bool) {
	for _, p := range patterns {
		if p.Match(name) {
			return p.String(), true
		}
	}
	return "", false
}

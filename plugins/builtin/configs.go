package builtin

import (
	"context"
	"fmt"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// configs copies topic configs by mirror.topic.properties.exclude (never), .always (also where the
// topic has only its brokers' default) and .include (what else, where it is set).
type configs struct{}

// SelectConfigs implements plugins.ConfigPolicy.
func (configs) SelectConfigs(ctx context.Context, r *policyv1.SelectConfigsRequest) (*policyv1.SelectConfigsResponse, error) {
	include, err := namePatterns(r.GetRound(), config.PropertiesIncludeKey)
	if err != nil {
		return nil, err
	}
	always := config.SplitList(r.GetRound().GetMirrorConfig()[config.PropertiesAlwaysKey])
	never := config.SplitList(r.GetRound().GetMirrorConfig()[config.PropertiesExcludeKey])
	return plugins.ConfigFunc(func(_ context.Context, _ *policyv1.Round, _ string, c *policyv1.ConfigFacts) (*policyv1.Decision, *string, error) {
		return selectConfig(c, always, never, include), nil, nil
	}).SelectConfigs(ctx, r)
}

func selectConfig(c *policyv1.ConfigFacts, always, never []string, include []config.Pattern) *policyv1.Decision {
	in, included := firstMatch(include, c.GetName())
	switch {
	case config.TieredTopicConfig(c.GetName()):
		return plugins.Refuse("tiered storage", "a mirror moves nothing to remote storage, so its configs are never copied")
	case slices.Contains(never, c.GetName()):
		return plugins.Refuse(config.PropertiesExcludeKey, "listed there, and never copied")
	case slices.Contains(always, c.GetName()):
		return plugins.Accept(config.PropertiesAlwaysKey, "listed there, and copied also where it is the source's default")
	case !c.GetSourceSet():
		return plugins.Refuse("source", "not set on the topic at the source, where its brokers' default holds")
	case !included:
		return plugins.Refuse(config.PropertiesIncludeKey, "no pattern of the mirror matches")
	}
	return plugins.Accept(config.PropertiesIncludeKey, fmt.Sprintf("included by the pattern %q", in))
}

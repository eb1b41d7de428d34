package coordinator

import (
	"regexp"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/config"
)

// This file holds what starts and stops do to a mirror's patterns, as pure functions of
// its configuration (contract.md §4).

// listOf returns a list of a mirror's configuration, with its default if it has none.
func listOf(p config.Properties, key string) []string {
	v, given := p[key]
	if !given {
		v, _ = config.MirrorDefault(key)
	}
	return config.SplitList(v)
}

// setList changes a list in a mirror's configuration; one that says what the default says
// stays, or becomes, unset only if it was.
func setList(p config.Properties, key string, items []string) {
	if slices.Equal(listOf(p, key), items) {
		return
	}
	p[key] = config.JoinList(items)
}

func with(list []string, items ...string) []string {
	out := slices.Clone(list)
	for _, i := range items {
		if !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	return out
}

func without(list []string, items ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(items, s) })
}

// startPatterns returns a mirror's configuration after a start with patterns: they are
// added to what is included and excluded. An include that was excluded word for word,
// by a stop, is not excluded any more, and neither is a topic that is started by its name.
func startPatterns(p config.Properties, include, exclude, names []string) config.Properties {
	out := p.Clone()
	if out == nil {
		out = config.Properties{}
	}
	var quoted []string
	for _, n := range names {
		quoted = append(quoted, regexp.QuoteMeta(n))
	}
	setList(out, config.TopicsIncludeKey, with(listOf(p, config.TopicsIncludeKey), include...))
	setList(out, config.TopicsExcludeKey, with(without(without(listOf(p, config.TopicsExcludeKey), include...), quoted...), exclude...))
	return out
}

// stopPatterns returns a mirror's configuration after a stop: patterns move from include
// to exclude, and so does the name of a topic that would be found again otherwise.
func stopPatterns(p config.Properties, patterns, names []string) config.Properties {
	out := p.Clone()
	if out == nil {
		out = config.Properties{}
	}
	setList(out, config.TopicsIncludeKey, without(listOf(p, config.TopicsIncludeKey), patterns...))
	setList(out, config.TopicsExcludeKey, with(listOf(p, config.TopicsExcludeKey), patterns...))
	for _, n := range names {
		if matching(listOf(out, config.TopicsIncludeKey), n) != "" && matching(listOf(out, config.TopicsExcludeKey), n) == "" {
			setList(out, config.TopicsExcludeKey, with(listOf(out, config.TopicsExcludeKey), regexp.QuoteMeta(n)))
		}
	}
	return out
}

// matching returns the first pattern of a list that matches a whole name, "" if none does.
func matching(list []string, name string) string {
	for _, item := range list {
		if p, err := config.ParsePattern(item); err == nil && p.Match(name) {
			return item
		}
	}
	return ""
}

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The keys of a mirror that others than ParseMirror name.
const (
	TopicsIncludeKey = "mirror.topics.include"
	TopicsExcludeKey = "mirror.topics.exclude"

	GroupsIncludeKey = "mirror.groups.include"
	ACLsIncludeKey   = "mirror.acls.include"
	ACLsExcludeKey   = "mirror.acls.exclude"
	QuotasIncludeKey = "mirror.quotas.include"

	PropertiesAlwaysKey  = "mirror.topic.properties.always"
	PropertiesIncludeKey = "mirror.topic.properties.include"
	PropertiesExcludeKey = "mirror.topic.properties.exclude"

	// PolicyPrefix begins the keys that name the plugins that decide, by kind.
	PolicyPrefix = "mirror.policy."
)

// IsList tells whether a mirror's key holds a comma separated list, to which entries can
// be added and from which they can be taken away.
func IsList(key string) bool {
	switch key {
	case "bootstrap.servers", TopicsIncludeKey, TopicsExcludeKey, GroupsIncludeKey, "mirror.groups.exclude",
		ACLsIncludeKey, ACLsExcludeKey, QuotasIncludeKey, PropertiesAlwaysKey, PropertiesIncludeKey, PropertiesExcludeKey, "ssl.enabled.protocols", "ssl.cipher.suites":
		return true
	}
	return strings.HasPrefix(key, PolicyPrefix)
}

// parsePolicies reads names of plugins.
func parsePolicies(v string) ([]string, error) {
	names := SplitList(v)
	for i, n := range names {
		if err := checkPluginName(n); err != nil {
			return nil, fmt.Errorf("%q is no name of a plugin: %w", n, err)
		}
		if slices.Contains(names[:i], n) {
			return nil, fmt.Errorf("%q is named twice", n)
		}
	}
	return names, nil
}

// ForPolicies is a mirror's configuration as its policies see it: every key, with its default if it
// has no value, without secrets.
func ForPolicies(p Properties) map[string]string {
	out := map[string]string{}
	for _, k := range MirrorKeys() {
		v, given := p[k.Name]
		if !given {
			v = k.Default
		}
		if !Hidden(k.Name, v) && (given || v != "") {
			out[k.Name] = v
		}
	}
	return out
}

// SameSource tells whether two configurations of a mirror read from the source in the
// same way: then what is connected may stay connected.
func SameSource(a, b Properties) bool {
	return maps.Equal(sourceKeys(a), sourceKeys(b))
}

// sourceKeys are the keys that say how the source is reached and fetched from, with their
// defaults: all but the filters.
func sourceKeys(p Properties) Properties {
	out := Properties{}
	for _, k := range MirrorKeys() {
		if !readsSource(k.Name) {
			continue
		}
		v, given := p[k.Name]
		if !given {
			v = k.Default
		}
		out[k.Name] = v
	}
	return out
}

func readsSource(key string) bool {
	return key == "bootstrap.servers" || key == "request.timeout.ms" || strings.HasPrefix(key, "mirror.fetch.") ||
		slices.ContainsFunc(securityKeys(), func(k Key) bool { return k.Name == key })
}

// MirrorDefault returns the default of a mirror's key, false for a key that is not known.
func MirrorDefault(key string) (string, bool) {
	for _, k := range MirrorKeys() {
		if k.Name == key {
			return k.Default, true
		}
	}
	return "", false
}

// JoinList is the way back from SplitList.
func JoinList(items []string) string { return strings.Join(items, ",") }

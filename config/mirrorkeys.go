package config

import (
	"maps"
	"slices"
	"strings"
)

// The keys of a mirror that others than ParseMirror name.
const (
	TopicsIncludeKey = "mirror.topics.include"
	TopicsExcludeKey = "mirror.topics.exclude"
)

// IsList tells whether a mirror's key holds a comma separated list, to which entries can
// be added and from which they can be taken away.
func IsList(key string) bool {
	switch key {
	case "bootstrap.servers", TopicsIncludeKey, TopicsExcludeKey, "mirror.groups.include", "mirror.groups.exclude",
		"mirror.acls.include", "mirror.topic.properties.exclude", "ssl.enabled.protocols":
		return true
	}
	return false
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

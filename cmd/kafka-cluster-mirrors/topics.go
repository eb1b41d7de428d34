package main

import (
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/config"
)

// literal tells whether a text is a topic's name rather than a regular expression. A dot
// is both; a name is what most people mean by it.
func literal(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-') {
			return false
		}
	}
	return s != ""
}

// split sorts what was given as topics into names and patterns.
func split(list []string) (names, patterns []string) {
	for _, s := range list {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		if literal(s) {
			names = append(names, s)
		} else {
			patterns = append(patterns, s)
		}
	}
	return names, patterns
}

// selector picks topics by --topics. An empty one picks all.
type selector struct {
	names    map[string]bool
	patterns config.Pattern
	all      bool
}

func newSelector(list []string) (*selector, error) {
	names, patterns := split(list)
	s := &selector{names: map[string]bool{}, all: len(names)+len(patterns) == 0}
	for _, n := range names {
		s.names[n] = true
	}
	var err error
	s.patterns, err = config.ParsePattern(strings.Join(patterns, ","))
	return s, err
}

func (s *selector) match(topic string) bool {
	return s.all || s.names[topic] || s.patterns.Match(topic)
}

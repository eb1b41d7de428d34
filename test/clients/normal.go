package main

import (
	"fmt"
	"regexp"
	"strings"
)

// normaliser makes equal what cannot be equal on two ways: addresses, the names of the legs, and ids that are drawn
// by chance. Each of the latter gets a number in the order of its appearance within a part, so that two that were the
// same stay the same.
type normaliser struct {
	replace *strings.Replacer
}

// newNormaliser is for one leg: its addresses by what they stand for.
func newNormaliser(l leg, addresses map[string]string) *normaliser {
	var pairs []string
	for addr, name := range addresses {
		pairs = append(pairs, addr, name)
	}
	pairs = append(pairs, l.Token, "RUN")
	return &normaliser{strings.NewReplacer(pairs...)}
}

type chance struct {
	name string
	re   *regexp.Regexp
}

// chances are the forms of what is drawn by chance.
func chances() []chance {
	return []chance{
		{"uuid", regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)},
		// Kafka's ids: 22 characters of base64, with what stands before them.
		{"id", regexp.MustCompile(`(?:^|[^A-Za-z0-9_-])[A-Za-z0-9_-]{22}\b`)},
	}
}

// part normalises the observations of a part in place.
func (n *normaliser) part(p *part) {
	seen := map[string]string{}
	count := map[string]int{}
	rename := func(name string) func(string) string {
		return func(s string) string {
			before := ""
			if name == "id" {
				if len(s) > idLength {
					before, s = s[:len(s)-idLength], s[len(s)-idLength:]
				}
				if !looksDrawn(s) {
					return before + s
				}
			}
			if seen[s] == "" {
				count[name]++
				seen[s] = fmt.Sprintf("<%s-%d>", name, count[name])
			}
			return before + seen[s]
		}
	}
	for i := range p.Seen {
		v := n.replace.Replace(p.Seen[i].Value)
		for _, c := range chances() {
			v = c.re.ReplaceAllStringFunc(v, rename(c.name))
		}
		p.Seen[i].Value = v
	}
}

const idLength = 22

// looksDrawn tells ids from words of the same length, such as names of ours, which have no capitals.
func looksDrawn(s string) bool {
	return strings.ContainsAny(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") && strings.ContainsAny(s, "abcdefghijklmnopqrstuvwxyz")
}

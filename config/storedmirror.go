package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// unreadKey is a key of a mirror that this version cannot read.
type unreadKey struct {
	name  string
	known bool // its value is wrong
	err   error
}

// ParseStored reads the configuration of a mirror that exists. Another version may have written it:
// only what says how the source is reached and read from must be right, so that records go on.
// Mirror.Unread has what else is not understood.
func ParseStored(p Properties) (*Mirror, error) {
	m, bad, err := parseMirror(p)
	errs := []error{err}
	for _, b := range bad {
		if b.known && readsSource(b.name) || !b.known && secures(b.name) {
			errs = append(errs, b.err)
		} else {
			m.unread = append(m.unread, b)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return m, nil
}

// secures tells whether a key that is not known belongs to how the source is reached: it may demand a
// check that this version does not make.
func secures(key string) bool {
	return slices.ContainsFunc([]string{"ssl.", "sasl.", "security."}, func(p string) bool { return strings.HasPrefix(key, p) })
}

// Unread is an error if something is not understood that may say what of a kind is mirrored. A key
// that this version does not know may be a restriction: nothing of the kind is begun then.
func (m *Mirror) Unread(kind string) error {
	var errs []error
	for _, u := range m.unread {
		if concerns(u.name, kind) {
			errs = append(errs, u.err)
		}
	}
	return errors.Join(errs...)
}

// Ignored says of each key that is not understood, and says of no kind what of it is mirrored, that it has
// no effect: nothing is held up by it, so that nobody would miss it.
func (m *Mirror) Ignored() []string {
	var out []string
	for _, u := range m.unread {
		if !slices.ContainsFunc([]string{"topics", "configs", "acls", "groups", "quotas"}, func(kind string) bool { return concerns(u.name, kind) }) {
			out = append(out, fmt.Sprintf("%v; this version goes on without it", u.err))
		}
	}
	return out
}

// concerns tells whether a key may say what of a kind is mirrored: what is of another kind's, or of
// the connection, does not.
func concerns(key, kind string) bool {
	if of, ok := strings.CutPrefix(key, PolicyPrefix); ok {
		of, _, _ = strings.Cut(of, ".")
		return of == kind
	}
	for prefix, of := range map[string]string{
		"mirror.topics.": "topics", "mirror.topic.properties.": "configs", "mirror.acls.": "acls", "mirror.groups.": "groups", "mirror.quotas.": "quotas",
		"mirror.fetch.": "", "mirror.stop.": "", "ssl.": "", "sasl.": "", "security.": "",
	} {
		if strings.HasPrefix(key, prefix) {
			return of == kind
		}
	}
	return true
}

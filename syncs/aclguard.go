package syncs

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// guard holds back what would let somebody do here what he may not at the source: an ALLOW while a
// DENY that goes with it is not here, and the end of a DENY while an ALLOW that went before it is.
type guard struct {
	everybody bool
	of        []string // the principals of what has failed
}

func (g *guard) add(a acl) {
	if !slices.Contains(g.of, a.principal) {
		g.of = append(g.of, a.principal)
	}
}

// holds tells whether an ACL is for somebody for whom something has failed.
func (g *guard) holds(a acl) bool {
	return g.everybody || slices.ContainsFunc(g.of, func(principal string) bool { return meet(principal, a.principal) })
}

// meet tells whether two principals may be the same client. Only of users is it known that their
// names say so; what else there is, roles and groups, is the authorizer's own.
func meet(a, b string) bool {
	one := func(p string) bool { return strings.HasPrefix(p, "User:") && p != "User:*" }
	return a == b || !one(a) || !one(b)
}

// leaves tells whether an ACL stays here although the source does not have it any more: clients of
// topics that were stopped are here, and the source is cleaned up after them. Whom an ACL that is
// not for a topic serves is not known; and what denies something would let an ALLOW that stays
// mean more.
func (m Mirror) leaves(a acl) bool {
	if len(m.Stopped) == 0 {
		return false
	}
	if a.resource != kmsg.ACLResourceTypeTopic || a.permission != kmsg.ACLPermissionTypeAllow {
		return true
	}
	return slices.ContainsFunc(m.Stopped, func(topic string) bool {
		if a.pattern == kmsg.ACLResourcePatternTypePrefixed {
			return strings.HasPrefix(topic, a.name)
		}
		return a.name == topic || a.name == "*"
	})
}

package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"strings"
)

// Principal is the distinguished name of a certificate's subject as Kafka writes it where
// there are no mapping rules: in the order of RFC 2253, the last part first.
func Principal(c *x509.Certificate) string {
	// Subject.String puts the parts into an order of its own.
	var rdns pkix.RDNSequence
	if rest, err := asn1.Unmarshal(c.RawSubject, &rdns); err != nil || len(rest) > 0 {
		return c.Subject.String()
	}
	return rdns.String()
}

// Principals is a set of distinguished names.
type Principals map[string]bool

// ParsePrincipals reads a list as super.users has it: distinguished names hold commas, so
// semicolons are between them; "User:" may stand before each.
func ParsePrincipals(v string) Principals {
	out := Principals{}
	for _, p := range strings.Split(v, ";") {
		if p = normal(strings.TrimPrefix(strings.TrimSpace(p), "User:")); p != "" {
			out[p] = true
		}
	}
	return out
}

// Has tells whether a certificate's subject is in the set.
func (p Principals) Has(c *x509.Certificate) bool { return p[normal(Principal(c))] }

// normal takes away what people write between the parts of a name, and the case of the
// parts' types. A comma that belongs to a value has a backslash before it.
func normal(dn string) string {
	var parts []string
	var part strings.Builder
	escaped := false
	add := func() {
		kind, value, found := strings.Cut(strings.TrimSpace(part.String()), "=")
		if found {
			parts = append(parts, strings.ToUpper(strings.TrimSpace(kind))+"="+strings.TrimSpace(value))
		} else if kind != "" {
			parts = append(parts, kind)
		}
		part.Reset()
	}
	for _, r := range dn {
		if r == ',' && !escaped {
			add()
			continue
		}
		part.WriteRune(r)
		escaped = r == '\\' && !escaped
	}
	add()
	return strings.Join(parts, ",")
}

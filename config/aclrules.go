package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ACLRules are the rules of ACLs of a mirror, in the KIP's syntax: a comma separated list of
// resourceType;resourceName;operation;permissionType;principal. Name and principal are regular
// expressions for the whole text, * is anything, fields at the end may be left out.
type ACLRules []aclRule

type aclRule struct {
	text            string
	fixed           [3]string // resource type, operation, permission; empty for any
	name, principal *regexp.Regexp
}

// ParseACLRules reads a list of rules; an empty one matches nothing.
func ParseACLRules(v string) (ACLRules, error) {
	var out ACLRules
	for _, text := range SplitList(v) {
		r, err := parseACLRule(text)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", text, err)
		}
		out = append(out, r)
	}
	return out, nil
}

func parseACLRule(text string) (aclRule, error) {
	fields := strings.Split(text, ";")
	if len(fields) > 5 {
		return aclRule{}, fmt.Errorf("it has %d fields, at most five are allowed: resourceType;resourceName;operation;permissionType;principal", len(fields))
	}
	fields = append(fields, slices.Repeat([]string{"*"}, 5-len(fields))...)
	r := aclRule{text: text}
	for i, field := range []struct {
		what  string
		at    int
		names []string
	}{
		{"resource type", 0, kmsg.ACLResourceTypeStrings()},
		{"operation", 2, kmsg.ACLOperationStrings()},
		{"permission type", 3, kmsg.ACLPermissionTypeStrings()},
	} {
		name := strings.ToUpper(strings.TrimSpace(fields[field.at]))
		if name == "*" || name == "ANY" {
			continue
		}
		names := slices.DeleteFunc(slices.Clone(field.names), func(n string) bool { return n == "ANY" })
		if !slices.Contains(names, name) {
			return aclRule{}, fmt.Errorf("%q is no %s: %s, or * for any", fields[field.at], field.what, strings.Join(names, ", "))
		}
		r.fixed[i] = name
	}
	var err error
	if r.name, err = wholeOrAny(fields[1]); err != nil {
		return aclRule{}, fmt.Errorf("resource name: %w", err)
	}
	if r.principal, err = wholeOrAny(fields[4]); err != nil {
		return aclRule{}, fmt.Errorf("principal: %w", err)
	}
	return r, nil
}

// wholeOrAny compiles an expression for the whole text; nil is anything.
func wholeOrAny(text string) (*regexp.Regexp, error) {
	text = strings.TrimSpace(text)
	if text == "*" {
		return nil, nil
	}
	if _, err := regexp.Compile(text); err != nil {
		return nil, fmt.Errorf("%q is not a regular expression: %w", text, err)
	}
	re, err := regexp.Compile("^(?:" + text + ")$")
	if err != nil {
		return nil, fmt.Errorf("%q is not a regular expression: %w", text, err)
	}
	return re, nil
}

// Match returns the first rule that an ACL fits. Types, operation and permission have Kafka's names.
// The name of a prefixed pattern is its prefix, and the literal name * stands for itself.
func (r ACLRules) Match(resourceType, name, operation, permission, principal string) (rule string, ok bool) {
	for _, rule := range r {
		if rule.fixes(resourceType, operation, permission) &&
			(rule.name == nil || rule.name.MatchString(name)) && (rule.principal == nil || rule.principal.MatchString(principal)) {
			return rule.text, true
		}
	}
	return "", false
}

func (r aclRule) fixes(values ...string) bool {
	for i, v := range values {
		if r.fixed[i] != "" && r.fixed[i] != v {
			return false
		}
	}
	return true
}

// String returns the list as it was written.
func (r ACLRules) String() string {
	texts := make([]string, len(r))
	for i, rule := range r {
		texts[i] = rule.text
	}
	return strings.Join(texts, ",")
}

package host

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// What an answer may have.
const (
	maxWarnings = 100
	maxSubject  = 512
	// maxValue of a config: Kafka's largest are lists of replicas.
	maxValue = 32 << 10
	// maxName of a resource or principal: what a record of Kafka's metadata log may well have.
	maxName = 4 << 10
)

// nonsenseError is an answer that does not decide on what was asked.
type nonsenseError struct{ what string }

func (e *nonsenseError) Error() string { return "answers nonsense: " + e.what }

func nonsense(format string, args ...any) error {
	return &nonsenseError{what: clip(fmt.Sprintf(format, args...), 500)}
}

// checkDecision makes a decision's texts such that they can be shown anywhere.
func checkDecision(of string, d *policyv1.Decision) error {
	of = clip(of, 100)
	if d == nil {
		return nonsense("no decision on %q", of)
	}
	switch d.GetVerdict() {
	case policyv1.Decision_ACCEPT, policyv1.Decision_REFUSE:
	default:
		return nonsense("verdict %d on %q, which is neither ACCEPT nor REFUSE", d.GetVerdict(), of)
	}
	if len(d.GetRule()) > policyv1.MaxRule {
		return nonsense("the rule that decided on %q has %d bytes, more than %d", of, len(d.GetRule()), policyv1.MaxRule)
	}
	if len(d.GetReason()) > policyv1.MaxReason {
		return nonsense("the reason for %q has %d bytes, more than %d", of, len(d.GetReason()), policyv1.MaxReason)
	}
	d.Rule, d.Reason = printable(d.GetRule()), printable(d.GetReason())
	if strings.TrimSpace(d.GetReason()) == "" {
		return nonsense("no reason for the decision on %q", of)
	}
	return nil
}

// checkWarnings cuts what is too much: warnings decide nothing.
func checkWarnings(list []*policyv1.Warning) []*policyv1.Warning {
	out := make([]*policyv1.Warning, 0, min(len(list), maxWarnings))
	for i, w := range list {
		if i == maxWarnings-1 && len(list) > maxWarnings {
			return append(out, &policyv1.Warning{Text: fmt.Sprintf("%d more warnings are left out", len(list)-i)})
		}
		if text := clip(w.GetText(), policyv1.MaxReason); strings.TrimSpace(text) != "" {
			out = append(out, &policyv1.Warning{Subject: clip(w.GetSubject(), maxSubject), Text: text})
		}
	}
	return out
}

func counted(asked, answered int, of string) error {
	if asked != answered {
		return nonsense("%d decisions on %d %s", answered, asked, of)
	}
	return nil
}

func named(i int, asked, answered, of string) error {
	if asked != answered {
		return nonsense("decision %d is on %s %q, where %q was asked for", i+1, of, clip(answered, 100), clip(asked, 100))
	}
	return nil
}

// CheckTopics tells whether an answer decides on what was asked, and makes its texts fit to be shown.
func CheckTopics(q *policyv1.SelectTopicsRequest, a *policyv1.SelectTopicsResponse) error {
	if err := counted(len(q.GetTopics()), len(a.GetDecisions()), "topics"); err != nil {
		return err
	}
	for i, t := range q.GetTopics() {
		d := a.GetDecisions()[i]
		if err := named(i, t.GetName(), d.GetName(), "topic"); err != nil {
			return err
		}
		if err := checkDecision(t.GetName(), d.GetDecision()); err != nil {
			return err
		}
	}
	a.Warnings = checkWarnings(a.GetWarnings())
	return nil
}

// CheckConfigs is CheckTopics for configs.
func CheckConfigs(q *policyv1.SelectConfigsRequest, a *policyv1.SelectConfigsResponse) error {
	if err := counted(len(q.GetTopics()), len(a.GetTopics()), "topics"); err != nil {
		return err
	}
	for i, t := range q.GetTopics() {
		d := a.GetTopics()[i]
		if err := named(i, t.GetTopic(), d.GetTopic(), "topic"); err != nil {
			return err
		}
		if err := counted(len(t.GetConfigs()), len(d.GetDecisions()), "configs of "+t.GetTopic()); err != nil {
			return err
		}
		for j, c := range t.GetConfigs() {
			d := d.GetDecisions()[j]
			if err := named(j, c.GetName(), d.GetName(), "config of "+t.GetTopic()); err != nil {
				return err
			}
			of := t.GetTopic() + "/" + c.GetName()
			if err := checkDecision(of, d.GetDecision()); err != nil {
				return err
			}
			if err := checkChanged(of, d.GetDecision(), d.Value != nil); err != nil {
				return err
			}
			if len(d.GetValue()) > maxValue {
				return nonsense("the value of %q has %d bytes, more than %d", clip(of, 100), len(d.GetValue()), maxValue)
			}
		}
	}
	a.Warnings = checkWarnings(a.GetWarnings())
	return nil
}

// CheckACLs is CheckTopics for ACLs.
func CheckACLs(q *policyv1.SelectAclsRequest, a *policyv1.SelectAclsResponse) error {
	if err := counted(len(q.GetAcls()), len(a.GetDecisions()), "ACLs"); err != nil {
		return err
	}
	for i, f := range q.GetAcls() {
		d := a.GetDecisions()[i]
		of := f.GetAcl().GetPrincipal() + " on " + f.GetAcl().GetResourceName()
		if err := checkDecision(of, d.GetDecision()); err != nil {
			return err
		}
		if err := checkChanged(of, d.GetDecision(), d.GetAs() != nil); err != nil {
			return err
		}
		if err := checkACL(of, f.GetAcl(), d.GetAs()); err != nil {
			return err
		}
	}
	a.Warnings = checkWarnings(a.GetWarnings())
	return nil
}

// CheckGroups is CheckTopics for groups.
func CheckGroups(q *policyv1.SelectGroupsRequest, a *policyv1.SelectGroupsResponse) error {
	if err := counted(len(q.GetGroups()), len(a.GetDecisions()), "groups"); err != nil {
		return err
	}
	for i, g := range q.GetGroups() {
		d := a.GetDecisions()[i]
		if err := named(i, g.GetGroup(), d.GetGroup(), "group"); err != nil {
			return err
		}
		if err := checkDecision(g.GetGroup(), d.GetDecision()); err != nil {
			return err
		}
	}
	a.Warnings = checkWarnings(a.GetWarnings())
	return nil
}

// CheckQuotas is CheckTopics for quotas.
func CheckQuotas(q *policyv1.SelectQuotasRequest, a *policyv1.SelectQuotasResponse) error {
	if err := counted(len(q.GetQuotas()), len(a.GetDecisions()), "quotas"); err != nil {
		return err
	}
	for i, f := range q.GetQuotas() {
		d := a.GetDecisions()[i]
		if err := checkDecision(f.GetKey(), d.GetDecision()); err != nil {
			return err
		}
		if err := checkChanged(f.GetKey(), d.GetDecision(), d.Value != nil); err != nil {
			return err
		}
		if v := d.GetValue(); d.Value != nil && (math.IsNaN(v) || math.IsInf(v, 0) || v <= 0) {
			return nonsense("%v is no value of quota %q", v, f.GetKey())
		}
	}
	a.Warnings = checkWarnings(a.GetWarnings())
	return nil
}

// checkChanged: who leaves something out does not say as what it is to be created.
func checkChanged(of string, d *policyv1.Decision, changed bool) error {
	if changed && d.GetVerdict() == policyv1.Decision_REFUSE {
		return nonsense("%q is refused, and changed", clip(of, 100))
	}
	return nil
}

// checkACL tells whether an ACL is one that can be created. Filters cannot: ANY, MATCH. What the
// source's has may be unknown here, and is for the cluster to judge.
func checkACL(of string, source, a *policyv1.AclBinding) error {
	if a == nil {
		return nil
	}
	of = clip(of, 100)
	oneOf := func(what string, get func(*policyv1.AclBinding) string, allowed ...string) error {
		if v := get(a); v != get(source) && !slices.Contains(allowed, v) {
			return nonsense("the ACL that is to be created for %q has %s %q, which is none of %s", of, what, clip(v, 60), strings.Join(allowed, ", "))
		}
		return nil
	}
	for _, err := range []error{
		oneOf("resource type", (*policyv1.AclBinding).GetResourceType, "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"),
		oneOf("pattern type", (*policyv1.AclBinding).GetPatternType, "LITERAL", "PREFIXED"),
		oneOf("operation", (*policyv1.AclBinding).GetOperation, "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
		oneOf("permission type", (*policyv1.AclBinding).GetPermissionType, "ALLOW", "DENY"),
	} {
		if err != nil {
			return err
		}
	}
	if proto.Equal(source, a) {
		return nil
	}
	kind, name, ok := strings.Cut(a.GetPrincipal(), ":")
	if !ok || kind == "" || name == "" || len(a.GetPrincipal()) > maxName {
		return nonsense("the ACL that is to be created for %q has principal %q, which is not TYPE:NAME", of, clip(a.GetPrincipal(), 60))
	}
	if a.GetHost() == "" || len(a.GetHost()) > maxName {
		return nonsense("the ACL that is to be created for %q has no host; * is every one", of)
	}
	if a.GetResourceName() == "" || len(a.GetResourceName()) > maxName {
		return nonsense("the ACL that is to be created for %q names no resource", of)
	}
	if a.GetResourceType() == "CLUSTER" && (a.GetResourceName() != "kafka-cluster" || a.GetPatternType() != "LITERAL") {
		return nonsense("the ACL that is to be created for %q is on cluster %q; there is only kafka-cluster, LITERAL", of, clip(a.GetResourceName(), 60))
	}
	return nil
}

// printable has one blank for every character that is no text: in a log or on a terminal it could
// be taken for something else.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) && !unicode.IsSpace(r) || r == utf8.RuneError || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
}

// clip shortens a text, at a whole character, and makes it printable.
func clip(s string, limit int) string {
	if len(s) > limit {
		cut := limit - len("…")
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return printable(s)
}

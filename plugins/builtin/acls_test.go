package builtin

import (
	"fmt"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

func TestACLs(t *testing.T) {
	acl := func(kind, name, pattern, principal, operation, permission string) *policyv1.AclFacts {
		return &policyv1.AclFacts{Acl: &policyv1.AclBinding{
			ResourceType: kind, ResourceName: name, PatternType: pattern, Principal: principal, Host: "*", Operation: operation, PermissionType: permission,
		}}
	}
	r := &policyv1.SelectAclsRequest{Round: &policyv1.Round{MirrorConfig: map[string]string{
		config.ACLsIncludeKey: "TOPIC;orders.*,GROUP;*;READ;ALLOW", config.ACLsExcludeKey: "*;*;*;DENY,TOPIC;*;*;*;User:admin",
	}}}
	var want []string
	for _, c := range []struct {
		acl  *policyv1.AclFacts
		want string
	}{
		{acl("TOPIC", "orders", "LITERAL", "User:a", "READ", "ALLOW"), `ACCEPT mirror.acls.include: included by the rule "TOPIC;orders.*"`},
		{acl("TOPIC", "orders-", "PREFIXED", "User:a", "WRITE", "ALLOW"), `ACCEPT mirror.acls.include: included by the rule "TOPIC;orders.*"`},
		{acl("TOPIC", "orders", "LITERAL", "User:a", "READ", "DENY"), `REFUSE mirror.acls.exclude: excluded by the rule "*;*;*;DENY"`},
		{acl("TOPIC", "orders", "LITERAL", "User:admin", "READ", "ALLOW"), `REFUSE mirror.acls.exclude: excluded by the rule "TOPIC;*;*;*;User:admin"`},
		{acl("TOPIC", "payments", "LITERAL", "User:a", "READ", "ALLOW"), `REFUSE mirror.acls.include: no rule of the mirror fits`},
		{acl("GROUP", "*", "LITERAL", "User:a", "READ", "ALLOW"), `ACCEPT mirror.acls.include: included by the rule "GROUP;*;READ;ALLOW"`},
		{acl("GROUP", "g", "LITERAL", "User:a", "DELETE", "ALLOW"), `REFUSE mirror.acls.include: no rule of the mirror fits`},
	} {
		r.Acls, want = append(r.Acls, c.acl), append(want, c.want)
	}
	got, err := acls{}.SelectAcls(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range got.GetDecisions() {
		if text := said(d.GetDecision()); text != want[i] || d.GetAs() != nil {
			t.Errorf("%v: %s, want %s", r.Acls[i].GetAcl(), text, want[i])
		}
	}
	r.Round.MirrorConfig = nil
	if got, err = (acls{}).SelectAcls(t.Context(), r); err != nil || said(got.GetDecisions()[0].GetDecision()) != "REFUSE mirror.acls.include: the mirror has no rules for ACLs" {
		t.Errorf("without rules: %v, %v", got.GetDecisions(), err)
	}
	for _, key := range []string{config.ACLsIncludeKey, config.ACLsExcludeKey} {
		r.Round.MirrorConfig = map[string]string{key: "nonsense"}
		if _, err := (acls{}).SelectAcls(t.Context(), r); err == nil {
			t.Errorf("%s: a rule that is none was taken", key)
		}
	}
}

func said(d *policyv1.Decision) string {
	return fmt.Sprintf("%s %s: %s", d.GetVerdict(), d.GetRule(), d.GetReason())
}

func TestQuotas(t *testing.T) {
	name := func(s string) *string { return &s }
	entity := func(parts ...*policyv1.QuotaEntity) *policyv1.QuotaFacts {
		return &policyv1.QuotaFacts{Entity: parts, Key: "producer_byte_rate", SourceValue: 1}
	}
	r := &policyv1.SelectQuotasRequest{
		Round: &policyv1.Round{MirrorConfig: map[string]string{config.QuotasIncludeKey: "user=app-.*,client-id=<default>"}},
		Quotas: []*policyv1.QuotaFacts{
			entity(&policyv1.QuotaEntity{Type: "user", Name: name("app-1")}),
			entity(&policyv1.QuotaEntity{Type: "user", Name: name("app-1")}, &policyv1.QuotaEntity{Type: "client-id"}),
			entity(&policyv1.QuotaEntity{Type: "client-id"}),
			entity(&policyv1.QuotaEntity{Type: "client-id", Name: name("x")}),
			entity(&policyv1.QuotaEntity{Type: "user"}),
		},
	}
	want := []string{
		`ACCEPT mirror.quotas.include: included by the pattern "user=app-.*"`,
		`ACCEPT mirror.quotas.include: included by the pattern "user=app-.*"`,
		`ACCEPT mirror.quotas.include: included by the pattern "client-id=<default>"`,
		`REFUSE mirror.quotas.include: no pattern of the mirror matches`,
		`REFUSE mirror.quotas.include: no pattern of the mirror matches`,
	}
	got, err := quotas{}.SelectQuotas(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range got.GetDecisions() {
		if text := said(d.GetDecision()); text != want[i] || d.Value != nil {
			t.Errorf("%s: %s, want %s", entityText(r.Quotas[i].GetEntity()), text, want[i])
		}
	}
	r.Round.MirrorConfig[config.QuotasIncludeKey] = "("
	if _, err := (quotas{}).SelectQuotas(t.Context(), r); err == nil {
		t.Error("a pattern that is none was taken")
	}
}

package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// section9 tests what policies decide.
func section9() []row {
	return []row{
		{proves: "C9.1 C9.8 A5.5 topics", run: policiesDecide},
		{proves: "C9.2 C9.9 configs", run: policiesConfigs},
		{proves: "A4.1 A4.2 plugins", run: policiesRefused},
		{proves: "C9.3 ACLs", run: policiesACLs},
		{proves: "C9.4 C9.5 C9.6 C9.7 groups", run: policiesGroups},
	}
}

// policiesACLs mirrors ACLs to the secured cluster: those that match are created, those that the
// mirror has created go with the source's, those of others stay.
func policiesACLs(t *testing.T, e *env) {
	s := e.secured(t)
	adm, src := s.admin(t), kadm.NewClient(e.srcClient)
	acl := func(topic string) *kadm.ACLBuilder {
		return kadm.NewACLs().Allow("User:c9-3").AllowHosts().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead)
	}
	create := func(adm *kadm.Client, topics ...string) {
		t.Helper()
		for _, topic := range topics {
			if _, err := adm.CreateACLs(t.Context(), acl(topic)); err != nil {
				t.Fatal(err)
			}
		}
	}
	has := func(want ...string) {
		t.Helper()
		eventually(t, fmt.Sprintf("ACLs of %v", want), func(ctx context.Context) error {
			all, err := adm.DescribeACLs(ctx, kadm.NewACLs().Allow("User:c9-3").AllowHosts().Topics().ResourcePatternType(kadm.ACLPatternAny).Operations(kadm.OpAny))
			if err != nil {
				return err
			}
			var got []string
			for _, r := range all {
				for _, d := range r.Described {
					got = append(got, d.Name)
				}
			}
			slices.Sort(got)
			if !slices.Equal(slices.Compact(got), want) {
				return fmt.Errorf("there are %v", got)
			}
			return nil
		})
	}
	create(adm, "c9-3.both", "c9-3.local")
	create(src, "c9-3.both", "c9-3.gone", "c9-3.new", "other.c9-3")
	config := e.sourceConfig()
	config["mirror.acls.include"] = "TOPIC;c9-3[.].*;READ;ALLOW;User:.*"
	r := askAt[*protocol.CreateClusterMirrorResponse](t, s.addr(), createRequest("c9-3", config), login(userAdmin))
	if err := protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage); err != nil {
		t.Fatal(err)
	}
	has("c9-3.both", "c9-3.gone", "c9-3.local", "c9-3.new")
	for _, topic := range []string{"c9-3.both", "c9-3.gone"} {
		if _, err := src.DeleteACLs(t.Context(), acl(topic)); err != nil {
			t.Fatal(err)
		}
	}
	has("c9-3.both", "c9-3.local", "c9-3.new")
	if out, err := s.stack.CLI(t.Context(), "--command-config", commandConfig(t, userAdmin), "--delete", "--mirror", "c9-3"); err != nil {
		t.Errorf("%v %s", err, strings.TrimSpace(out))
	}
}

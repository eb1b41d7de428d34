package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// aclRow is what a row about ACLs has: the secured cluster, to which ACLs of one user are mirrored.
type aclRow struct {
	*env
	sec      *secured
	src, adm *kadm.Client
	user     string
}

func (e *env) acls(t *testing.T, user string) *aclRow {
	t.Helper()
	s := e.secured(t)
	return &aclRow{env: e, sec: s, src: kadm.NewClient(e.srcClient), adm: s.admin(t), user: "User:" + user}
}

// reads is the ACL that the user may read a topic, or may not.
func (r *aclRow) reads(topic string, deny bool) *kadm.ACLBuilder {
	b := kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead)
	if deny {
		return b.Deny(r.user).DenyHosts()
	}
	return b.Allow(r.user).AllowHosts()
}

func (r *aclRow) create(t *testing.T, adm *kadm.Client, acls ...*kadm.ACLBuilder) {
	t.Helper()
	for _, a := range acls {
		results, err := adm.CreateACLs(t.Context(), a)
		for _, x := range results {
			err = errors.Join(err, x.Err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (r *aclRow) allow(t *testing.T, adm *kadm.Client, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		r.create(t, adm, r.reads(topic, false))
	}
}

func (r *aclRow) remove(t *testing.T, adm *kadm.Client, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		results, err := adm.DeleteACLs(t.Context(), r.reads(topic, false))
		for _, x := range results {
			err = errors.Join(err, x.Err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// here lists the topics of the user's ACLs at the destination, those that deny with a "!" before.
func (r *aclRow) here(ctx context.Context) ([]string, error) {
	all, err := r.adm.DescribeACLs(ctx, kadm.NewACLs().Allow(r.user).AllowHosts().Deny(r.user).DenyHosts().
		Topics().ResourcePatternType(kadm.ACLPatternAny).Operations(kadm.OpAny))
	if err != nil {
		return nil, err
	}
	var got []string
	for _, x := range all {
		for _, d := range x.Described {
			if d.Permission.String() == "DENY" {
				d.Name = "!" + d.Name
			}
			got = append(got, d.Name)
		}
	}
	slices.Sort(got)
	return slices.Compact(got), nil
}

func (r *aclRow) has(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("ACLs of %v", want), func(ctx context.Context) error {
		got, err := r.here(ctx)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("there are %v", got)
		}
		return err
	})
}

// mirror creates a mirror of the ACLs of topics that begin with its name.
func (r *aclRow) mirror(t *testing.T, name string, more ...string) string {
	t.Helper()
	config := r.sourceConfig(append([]string{"mirror.acls.include", "TOPIC;" + name + "[.].*;READ;*;" + r.user}, more...)...)
	return r.sec.mirrorWith(t, name, config)
}

// policiesACLs mirrors ACLs to the secured cluster: those that match are created, those that the
// mirror has created go with the source's, those of others stay.
func policiesACLs(t *testing.T, e *env) {
	r := e.acls(t, "c9-3")
	r.allow(t, r.adm, "c9-3.both", "c9-3.local")
	r.allow(t, r.src, "c9-3.both", "c9-3.gone", "c9-3.new", "other.c9-3")
	m := r.mirror(t, "c9-3")
	r.has(t, "c9-3.both", "c9-3.gone", "c9-3.local", "c9-3.new")
	r.remove(t, r.src, "c9-3.both", "c9-3.gone")
	r.has(t, "c9-3.both", "c9-3.local", "c9-3.new")
	if out, err := r.sec.stack.CLI(t.Context(), "--command-config", commandConfig(t, userAdmin), "--delete", "--mirror", m); err != nil {
		t.Errorf("%v %s", err, strings.TrimSpace(out))
	}
}

// policiesDeny: while nobody can be asked about what denies something at the source, nothing that
// allows something is created, also what was decided on before; and describe says so.
func policiesDeny(t *testing.T, e *env) {
	r := e.acls(t, "c9-3-deny")
	const topic = "c9-3-deny.a"
	r.allow(t, r.src, topic)
	m := r.mirror(t, "c9-3-deny", "mirror.policy.acls", "built-in,"+pluginMute)
	r.has(t, topic)
	cl := apiClient(t, r.sec.addr(), login(userAdmin))
	policy := func(ctx context.Context) (protocol.DescribedPolicy, error) {
		d, err := describe(ctx, cl, m)
		if err != nil {
			return protocol.DescribedPolicy{}, err
		}
		i := slices.IndexFunc(d.Policies, func(p protocol.DescribedPolicy) bool { return p.Kind == "acls" && p.Plugin == pluginMute })
		if i < 0 {
			return protocol.DescribedPolicy{}, fmt.Errorf("%s is not described: %+v", pluginMute, d.Policies)
		}
		return d.Policies[i], nil
	}
	e.will(t, m, willErr)
	r.create(t, r.src, r.reads(topic, true))
	eventually(t, "describe shows that what denies is not decided on", func(ctx context.Context) error {
		p, err := policy(ctx)
		if err == nil && (!strings.Contains(text(p.LastError), "does not want to") ||
			!slices.ContainsFunc(p.Skipped, func(s protocol.PolicySkip) bool { return strings.Contains(s.Name, "DENY") })) {
			err = fmt.Errorf("%+v", p)
		}
		return err
	})
	r.remove(t, r.adm, topic) // would come back
	eventually(t, "describe warns of what is held back", func(ctx context.Context) error {
		p, err := policy(ctx)
		if err == nil && !slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, "held back") }) {
			err = fmt.Errorf("%+v", p)
		}
		return err
	})
	if got, err := r.here(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("there are ACLs of %v (%v)", got, err)
	}
	e.will(t, m, "")
	r.has(t, "!"+topic, topic)
}

// policiesStopped: what goes at the source once a topic is stopped stays here where the topic's clients
// need it.
func policiesStopped(t *testing.T, e *env) {
	r := e.acls(t, "c9-3-stop")
	const stays, goes, kept = "c9-3-stop.a", "c9-3-stop.b", "c9-3-stop.c"
	m := r.mirror(t, "c9-3-stop")
	r.allow(t, r.src, stays, goes, kept) // it would take longer to believe that all of them are gone
	for _, topic := range []string{stays, goes} {
		e.topic(t, topic, 1, 1)
		if err := r.sec.send(t, userAdmin, vStart, m, topic); err != nil {
			t.Fatal(err)
		}
		r.sec.waitState(t, m, mirroring, topic)
	}
	r.has(t, stays, goes, kept)
	if err := r.sec.send(t, userAdmin, vStop, m, stays); err != nil {
		t.Fatal(err)
	}
	r.sec.waitState(t, m, stopped, stays)
	r.remove(t, r.src, stays) // before the other one: who finds that gone finds this gone too
	r.remove(t, r.src, goes)
	r.has(t, stays, kept)
}

package policies

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// acl is an ACL as the command line writes it: type;name;operation;permission;principal;pattern;host.
type acl string

func (a acl) fields() []string { return strings.Split(string(a), ";") }

// topicACL lets a user read a topic.
func topicACL(name, user string) acl {
	return acl("TOPIC;" + name + ";READ;ALLOW;User:" + user + ";LITERAL;*")
}

// must is for names of types and operations in tests.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// creates creates ACLs in a cluster.
func creates(t *testing.T, cl *kgo.Client, acls ...acl) {
	t.Helper()
	req := kmsg.NewPtrCreateACLsRequest()
	for _, a := range acls {
		f := a.fields()
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.Operation = must(kmsg.ParseACLResourceType(f[0])), f[1], must(kmsg.ParseACLOperation(f[2]))
		c.PermissionType, c.Principal, c.ResourcePatternType, c.Host = must(kmsg.ParseACLPermissionType(f[3])), f[4], must(kmsg.ParseACLResourcePatternType(f[5])), f[6]
		req.Creations = append(req.Creations, c)
	}
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatalf("create ACLs: %v", err)
	}
	for i, r := range resp.Results {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			t.Fatalf("create ACL %s: %v", acls[i], err)
		}
	}
}

// deletes deletes ACLs from a cluster.
func deletes(t *testing.T, cl *kgo.Client, acls ...acl) {
	t.Helper()
	req := kmsg.NewPtrDeleteACLsRequest()
	for _, a := range acls {
		f := a.fields()
		d := kmsg.NewDeleteACLsRequestFilter()
		d.ResourceType, d.ResourceName, d.Operation = must(kmsg.ParseACLResourceType(f[0])), &f[1], must(kmsg.ParseACLOperation(f[2]))
		d.PermissionType, d.Principal, d.ResourcePatternType, d.Host = must(kmsg.ParseACLPermissionType(f[3])), &f[4], must(kmsg.ParseACLResourcePatternType(f[5])), &f[6]
		req.Filters = append(req.Filters, d)
	}
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatalf("delete ACLs: %v", err)
	}
	for i, r := range resp.Results {
		if len(r.MatchingACLs) != 1 {
			t.Fatalf("delete ACL %s: %d of its kind", acls[i], len(r.MatchingACLs))
		}
	}
}

// aclsOf returns the ACLs of a cluster whose resource has this prefix.
func aclsOf(ctx context.Context, cl *kgo.Client, prefix string) ([]acl, error) {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, err
	}
	var out []acl
	for _, r := range resp.Resources {
		for _, a := range r.ACLs {
			if strings.HasPrefix(r.ResourceName, prefix) {
				out = append(out, acl(strings.Join([]string{
					r.ResourceType.String(), r.ResourceName, a.Operation.String(), a.PermissionType.String(), a.Principal, r.ResourcePatternType.String(), a.Host,
				}, ";")))
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// hasACLs returns when this cluster has exactly these ACLs of resources with a prefix.
func (e *env) hasACLs(t *testing.T, prefix string, want ...acl) {
	t.Helper()
	slices.Sort(want)
	harness.AwaitT(t, patience, fmt.Sprintf("%d ACLs of %s are here", len(want), prefix), func(ctx context.Context) error {
		got, err := aclsOf(ctx, e.dstCl, prefix)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%d are: %v", len(got), got[:min(len(got), 20)])
		}
		return err
	})
}

// says returns when the words stand in what a command prints.
func (e *env) says(t *testing.T, args []string, words ...string) {
	t.Helper()
	harness.AwaitT(t, patience, fmt.Sprintf("%v says %q", args, words), func(ctx context.Context) error {
		out, err := e.dst.CLI(ctx, args...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for _, w := range words {
			if !strings.Contains(out, w) {
				return fmt.Errorf("without %q: %s", w, out)
			}
		}
		return nil
	})
}

// settled returns when two rounds of the ACLs of a mirror have begun and ended from now on: an ACL
// that only it can have created has come twice.
func (e *env) settled(t *testing.T, prefix string) {
	t.Helper()
	for i := range 2 {
		witness := topicACL(fmt.Sprintf("%switness-%d", prefix, i), "witness")
		creates(t, e.srcCl, witness)
		harness.AwaitT(t, patience, "a round of the ACLs", func(ctx context.Context) error {
			got, err := aclsOf(ctx, e.dstCl, prefix+"witness")
			if err == nil && !slices.Contains(got, witness) {
				err = errors.New("not yet")
			}
			return err
		})
	}
	deletes(t, e.srcCl, topicACL(prefix+"witness-0", "witness"), topicACL(prefix+"witness-1", "witness"))
	harness.AwaitT(t, patience, "the ACLs of the rounds are gone", func(ctx context.Context) error {
		got, err := aclsOf(ctx, e.dstCl, prefix+"witness")
		if err == nil && len(got) > 0 {
			err = fmt.Errorf("%v", got)
		}
		return err
	})
}

// TestACLsFollowTheSource creates what rules pick, deletes what the mirror has created itself, and
// says of each why.
func TestACLsFollowTheSource(t *testing.T) {
	e := start(t)
	const name = "acls"
	read, denied, group := topicACL("acls.orders", "alice"), acl("TOPIC;acls.orders;READ;DENY;User:mallory;LITERAL;*"), acl("GROUP;acls.app;READ;ALLOW;User:alice;PREFIXED;*")
	write, txn := acl("TOPIC;acls.;WRITE;ALLOW;User:CN=alice,O=company;PREFIXED;*"), acl("TRANSACTIONAL_ID;acls.tx;ALL;ALLOW;User:alice;LITERAL;*")
	both, local := topicACL("acls.both", "alice"), topicACL("acls.local", "bob")
	host, admin, outside := acl("TOPIC;acls.orders;READ;ALLOW;User:alice;LITERAL;10.0.0.1"), topicACL("acls.orders", "admin"), acl("CLUSTER;kafka-cluster;ALTER;ALLOW;User:acls-admin;LITERAL;*")
	creates(t, e.srcCl, read, denied, group, write, txn, both, host, admin, outside)
	creates(t, e.dstCl, both, local)
	e.mirror(t, name, map[string]string{
		"mirror.acls.include": "TOPIC;acls[.].*,GROUP;acls[.].*;READ,TRANSACTIONAL_ID;acls.*;*;ALLOW", "mirror.acls.exclude": "*;*;*;*;User:admin",
	})
	e.hasACLs(t, name, read, denied, group, write, txn, both, local)
	explain := func(a acl) []string { return []string{"--explain", "--mirror", name, "--acl", string(a), "--json"} }
	e.says(t, explain(read), `"mirrored": true`, "mirror.acls.include", `included by the rule \"TOPIC;acls[.].*\"`)
	e.says(t, explain(admin), `"mirrored": false`, "mirror.acls.exclude", `excluded by the rule \"*;*;*;*;User:admin\"`)
	e.says(t, explain(host), `"mirrored": false`, "it is for host 10.0.0.1, and behind a sidecar brokers see its address")
	e.says(t, explain(outside), `"mirrored": false`, "no rule of the mirror fits")
	e.says(t, []string{"--describe", "--policies", "--mirror", name}, string(admin), "10.0.0.1")

	// Nothing goes here that others have created, and what has to come back does.
	deletes(t, e.srcCl, both, group)
	deletes(t, e.dstCl, read)
	e.hasACLs(t, name, read, denied, write, txn, both, local)
	// What the rules refuse from now on goes, if it came with the mirror.
	creates(t, e.srcCl, local)
	e.settled(t, "acls.")
	refuseTopics := []string{"--alter", "--mirror", name, "--add-config", "mirror.acls.exclude=TOPIC"}
	e.says(t, append(refuseTopics, "--dry-run"), "What would be done about the acls of mirror "+name, "delete", string(read)+" (the policies refuse it now)")
	e.says(t, []string{"--explain", "--mirror", name, "--acl", "*"}, "Nothing would be changed of the acls")
	e.cli(t, refuseTopics...)
	e.hasACLs(t, name, txn, both, local)
}

// manyACLs creates as many ACLs at the source, and a mirror of them.
func (e *env) manyACLs(t *testing.T, mirror string, count int) []acl {
	t.Helper()
	var all []acl
	for i := range count {
		all = append(all, topicACL(fmt.Sprintf("%s.%04d", mirror, i), "alice"))
	}
	for part := range slices.Chunk(all, 500) {
		creates(t, e.srcCl, part...)
	}
	e.mirror(t, mirror, map[string]string{"mirror.acls.include": "TOPIC;" + mirror + "[.].*"})
	return all
}

// TestComplaint09ACLsAreADiff: KAFKA-15119, MirrorMaker 2 creates all ACLs anew at every interval and
// floods the controller. Here it is the difference. What requests there are is counted by the test of
// that name in package syncs.
func TestComplaint09ACLsAreADiff(t *testing.T) {
	e := start(t)
	const name = "c09"
	all := e.manyACLs(t, name, 600)
	e.hasACLs(t, "c09.", all...)
	before := 0
	harness.AwaitT(t, patience, "it is told that they were created", func(context.Context) error {
		if before = e.changes(t, name); before < len(all) {
			return fmt.Errorf("of %d of them", before)
		}
		return nil
	})
	e.settled(t, "c09.")
	// The two that it waited for, and that they were deleted.
	if n := e.changes(t, name) - before; n > 4 {
		t.Errorf("%d ACLs were changed while nothing else changed at the source", n)
	}
}

// TestACLsOutlastTheirCoordinator kills the coordinator in the middle: what it has created is known to be
// the mirror's, and what it has not is created by the next one.
func TestACLsOutlastTheirCoordinator(t *testing.T) {
	if !harness.Full() {
		t.Skip("the full form only: package syncs has the same with fake clusters")
	}
	e := start(t)
	const name = "acls-killed"
	all := e.manyACLs(t, name, 3000)
	harness.AwaitT(t, patience, "some are here", func(ctx context.Context) error {
		got, err := aclsOf(ctx, e.dstCl, name+".")
		if err == nil && len(got) == 0 {
			err = errors.New("none")
		}
		return err
	})
	who := e.coordinates(t, name)
	if err := who.Kill(); err != nil {
		t.Fatal(err)
	}
	got, err := aclsOf(t.Context(), e.dstCl, name+".")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d ACLs were here when the coordinator was killed", len(got), len(all))
	e.hasACLs(t, name+".", all...)
	if err := who.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(all[1:], 500) {
		deletes(t, e.srcCl, part...)
	}
	e.hasACLs(t, name+".", all[0])
}

// changes counts the ACLs that sidecars say they have changed for a mirror.
func (e *env) changes(t *testing.T, mirror string) int {
	t.Helper()
	n := 0
	said := regexp.MustCompile(`ACLs of a mirror were changed here.* mirror=` + mirror + ` changes=(\d+)`)
	for _, s := range e.dst.Sidecars {
		text, err := os.ReadFile(s.LogFile())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range said.FindAllSubmatch(text, -1) {
			n += must(strconv.Atoi(string(m[1])))
		}
	}
	return n
}

// TestComplaint10NoAuthorizerIsNoError: KAFKA-14781, MirrorMaker 2 logs errors if the source has no
// authorizer.
func TestComplaint10NoAuthorizerIsNoError(t *testing.T) {
	e := start(t)
	const name = "c10"
	open := harness.StartT(t, harness.Config{Name: "open", Brokers: 1})
	text := "bootstrap.servers=" + open.Bootstrap(harness.ListenerInternal)[0] + "\nmirror.acls.include=*\n"
	file := filepath.Join(t.TempDir(), name+".properties")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e.cli(t, "--create", "--mirror", name, "--mirror-config", file)
	e.says(t, []string{"--describe", "--policies", "--mirror", name}, "the source has no authorizer, so there are no ACLs to mirror")
	for _, s := range e.dst.Sidecars {
		log, err := os.ReadFile(s.LogFile())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(log)) {
			// What a slow machine makes of the source is not meant.
			of := strings.Contains(line, "mirror="+name+" ") && regexp.MustCompile(`(?i)acl|authoriz|security`).MatchString(line)
			if of && (strings.Contains(line, "level=ERROR") || strings.Contains(line, "level=WARN")) {
				t.Errorf("sidecar %d: %s", s.Broker, line)
			}
		}
	}
	e.cli(t, "--delete", "--mirror", name)
}

// quotas of a cluster whose entity has this prefix.
func quotas(ctx context.Context, cl *kgo.Client, prefix string) (map[string]float64, error) {
	resp, err := kmsg.NewPtrDescribeClientQuotasRequest().RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, e := range resp.Entries {
		var parts []string
		for _, c := range e.Entity {
			name := "<default>"
			if c.Name != nil {
				name = *c.Name
			}
			parts = append(parts, c.Type+"="+name)
		}
		slices.Sort(parts)
		slices.Reverse(parts) // user before client-id
		if entity := strings.Join(parts, ","); strings.Contains(entity, prefix) {
			for _, v := range e.Values {
				out[entity+";"+v.Key] = v.Value
			}
		}
	}
	return out, nil
}

// setQuota sets a quota like user=x,client-id=<default>;key, or removes it if value is negative.
func setQuota(t *testing.T, cl *kgo.Client, item string, value float64) {
	t.Helper()
	entity, key, _ := strings.Cut(item, ";")
	req := kmsg.NewPtrAlterClientQuotasRequest()
	entry := kmsg.NewAlterClientQuotasRequestEntry()
	for _, part := range strings.Split(entity, ",") {
		c := kmsg.NewAlterClientQuotasRequestEntryEntity()
		kind, name, _ := strings.Cut(part, "=")
		c.Type = kind
		if name != "<default>" {
			c.Name = &name
		}
		entry.Entity = append(entry.Entity, c)
	}
	op := kmsg.NewAlterClientQuotasRequestEntryOp()
	op.Key, op.Value, op.Remove = key, max(value, 0), value < 0
	entry.Ops = append(entry.Ops, op)
	req.Entries = append(req.Entries, entry)
	resp, err := req.RequestWith(t.Context(), cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Entries[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("quota %s: %v", item, err)
	}
}

// TestQuotasFollowTheSource sets what patterns pick, follows values, and leaves alone what others
// have set.
func TestQuotasFollowTheSource(t *testing.T) {
	e := start(t)
	const name = "quotas"
	const alice, client, local = "user=quotas-alice;producer_byte_rate", "user=quotas-alice,client-id=<default>;request_percentage", "user=quotas-local;producer_byte_rate"
	const address = "ip=192.0.2.1;connection_creation_rate"
	setQuota(t, e.srcCl, alice, 1e6)
	setQuota(t, e.srcCl, client, 12.5)
	setQuota(t, e.srcCl, local, 1000)
	setQuota(t, e.srcCl, address, 7)
	setQuota(t, e.dstCl, local, 9)
	e.mirror(t, name, map[string]string{"mirror.policy.quotas": "built-in", "mirror.quotas.include": "user=quotas.*,ip=.*"})
	has := func(want map[string]float64) {
		t.Helper()
		harness.AwaitT(t, patience, fmt.Sprintf("the quotas are %v", want), func(ctx context.Context) error {
			got, err := quotas(ctx, e.dstCl, name)
			if err == nil && !maps.Equal(got, want) {
				err = fmt.Errorf("they are %v", got)
			}
			return err
		})
	}
	has(map[string]float64{alice: 1e6, client: 12.5, local: 9})
	explain := func(item string) []string { return []string{"--explain", "--mirror", name, "--quota", item, "--json"} }
	e.says(t, explain(alice), `"mirrored": true`, "mirror.quotas.include")
	e.says(t, explain(local), `"mirrored": false`, "somebody has set it to 9 here")
	e.says(t, explain(address), `"mirrored": false`, "it is for an ip address, and behind a sidecar brokers see its address")
	setQuota(t, e.srcCl, alice, 2e6)
	setQuota(t, e.srcCl, client, -1)
	has(map[string]float64{alice: 2e6, local: 9})
	if got, err := quotas(t.Context(), e.dstCl, "ip="); err != nil || len(got) != 0 {
		t.Errorf("quotas of addresses: %v %v", got, err)
	}
}

// scramRecord is what a controller keeps of a SCRAM credential.
type scramRecord struct {
	Name      string `json:"name"`
	Mechanism int8   `json:"mechanism"`
	Salt      []byte `json:"salt"`
	StoredKey []byte `json:"storedKey"`
	ServerKey []byte `json:"serverKey"`
}

// scramOf reads what the metadata log of a cluster has of a user.
func scramOf(t *testing.T, c *harness.Cluster, user string) (record scramRecord, raw string) {
	t.Helper()
	n := c.Controllers()[0]
	dir, err := n.PartitionDir("__cluster_metadata", 0)
	if err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	class, err := n.Installation().FindClass("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments")
	if err != nil {
		t.Fatal(err)
	}
	harness.AwaitT(t, patience, "the credential of "+user+" is in the metadata log", func(context.Context) error {
		res := n.Installation().ToolT(t, nil, class, "--cluster-metadata-decoder", "--files", strings.Join(segments, ","))
		for line := range strings.Lines(res.Stdout) {
			_, payload, ok := strings.Cut(line, "payload: ")
			if !ok || !strings.Contains(payload, "USER_SCRAM_CREDENTIAL_RECORD") {
				continue
			}
			var r struct {
				Data scramRecord `json:"data"`
			}
			if err := json.Unmarshal([]byte(payload), &r); err != nil {
				return err
			}
			if r.Data.Name == user {
				record, raw = r.Data, payload
			}
		}
		if raw == "" {
			return errors.New("it is not")
		}
		return nil
	})
	return record, raw
}

// upsert creates a SCRAM-SHA-256 credential of what Kafka asks for.
func upsert(t *testing.T, cl *kgo.Client, user string, salt, saltedPassword []byte) {
	t.Helper()
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	u.Name, u.Mechanism, u.Iterations, u.Salt, u.SaltedPassword = user, 1, 4096, salt, saltedPassword
	req.Upsertions = append(req.Upsertions, u)
	resp, err := req.RequestWith(t.Context(), cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Results[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("credential of %s: %v", user, err)
	}
}

func keyed(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// TestSCRAMHashesCannotBeMirrored shows with two clusters why: what a cluster keeps of a credential
// is not told by any API, nor is it what the API to create one takes, and that cannot be computed
// from what is kept. What a mirror can do is to name the users.
func TestSCRAMHashesCannotBeMirrored(t *testing.T) {
	e := start(t)
	const user = "scram-alice"
	salt := []byte("0123456789abcdef")
	salted, err := pbkdf2.Key(sha256.New, "secret", salt, 4096, 32)
	if err != nil {
		t.Fatal(err)
	}
	upsert(t, e.srcCl, user, salt, salted)
	creates(t, e.srcCl, topicACL("scram.orders", user))
	e.mirror(t, "scram", map[string]string{"mirror.acls.include": "TOPIC;scram[.].*"})
	e.says(t, []string{"--describe", "--policies", "--mirror", "scram"}, user+" (SCRAM-SHA-256, 4096 iterations)", "neither tells nor takes their hashes")

	// The API tells the mechanism and the number of iterations: the answer has no other field.
	resp, err := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest().RequestWith(t.Context(), e.srcCl)
	if err != nil {
		t.Fatal(err)
	}
	told, err := json.Marshal(resp)
	if err != nil || !strings.Contains(string(told), user) {
		t.Fatalf("%s %v", told, err)
	}
	stored := sha256.Sum256(keyed(salted, "Client Key"))
	for what, secret := range map[string][]byte{"salt": salt, "salted password": salted, "stored key": stored[:]} {
		if strings.Contains(string(told), base64.StdEncoding.EncodeToString(secret)) {
			t.Errorf("the source tells the %s", what)
		}
	}
	// The metadata log of the source has hashes of the salted password, and not that itself.
	has, raw := scramOf(t, e.src, user)
	if !slices.Equal(has.StoredKey, stored[:]) || !slices.Equal(has.ServerKey, keyed(salted, "Server Key")) || strings.Contains(raw, base64.StdEncoding.EncodeToString(salted)) {
		t.Fatalf("the metadata log has %s", raw)
	}
	// Who sends what is kept instead of the salted password creates another credential.
	upsert(t, e.dstCl, user, has.Salt, has.StoredKey)
	if got, raw := scramOf(t, e.dst.Cluster, user); slices.Equal(got.StoredKey, has.StoredKey) || slices.Equal(got.ServerKey, has.ServerKey) {
		t.Errorf("the hashes were taken as they are: %s", raw)
	}
	// With the password everything is as at the source.
	upsert(t, e.dstCl, user, salt, salted)
}

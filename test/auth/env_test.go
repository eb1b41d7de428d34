package auth

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// patience bounds every wait: CI's machines are slow.
const patience = 60 * time.Second

// Users. The brokers are broker, who may do everything, as may root.
const (
	userSidecar = "sidecar"

	userAll        = "all"           // every right that operators need
	userNoCreate   = "no-create"     // all but CREATE on the cluster
	userNoAlter    = "no-alter"      // all but ALTER on the cluster
	userNoDescribe = "no-describe"   // CREATE on the cluster only; ALTER would imply DESCRIBE
	userFewTopics  = "few-topics"    // all, but ALTER_CONFIGS on the topic auth-a only
	userDescribes  = "describes"     // DESCRIBE on the cluster, and reads topics
	userReads      = "reads"         // reads and writes topics, and nothing on the cluster
	userSees       = "sees"          // DESCRIBE on topics, and nothing else
	userSeesConfig = "sees-config"   // DESCRIBE_CONFIGS on the cluster
	userSetsConfig = "sets-config"   // ALTER_CONFIGS on the cluster
	userIsBroker   = "is-a-broker"   // CLUSTER_ACTION and DESCRIBE on the cluster
	userActs       = "acts-a-broker" // CLUSTER_ACTION, which says nothing without DESCRIBE
	userNobody     = "nobody"        // logs in, and has no rights at all

	// userEast is who the mirror logs in as at the source.
	userEast = "east"
)

type acl struct {
	user    string
	kind    kmsg.ACLResourceType
	name    string // "*" for all
	allowed []kmsg.ACLOperation
}

const anyName = "*"

func acls() []acl {
	cluster := func(user string, ops ...kmsg.ACLOperation) acl {
		return acl{user, kmsg.ACLResourceTypeCluster, "kafka-cluster", ops}
	}
	topic := func(user, name string, ops ...kmsg.ACLOperation) acl {
		return acl{user, kmsg.ACLResourceTypeTopic, name, ops}
	}
	const (
		create, alter, describe   = kmsg.ACLOperationCreate, kmsg.ACLOperationAlter, kmsg.ACLOperationDescribe
		describeCfg, alterCfg     = kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationAlterConfigs
		read, write, action, idem = kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationClusterAction, kmsg.ACLOperationIdempotentWrite
	)
	out := []acl{
		cluster(userAll, create, alter, describe, describeCfg, alterCfg, idem), topic(userAll, anyName, alterCfg, read, write, describe),
		cluster(userNoCreate, alter, describe, describeCfg, alterCfg), topic(userNoCreate, anyName, alterCfg),
		cluster(userNoAlter, create, describe, describeCfg, alterCfg), topic(userNoAlter, anyName, alterCfg),
		cluster(userNoDescribe, create), topic(userNoDescribe, anyName, alterCfg),
		cluster(userFewTopics, create, alter, describe), topic(userFewTopics, "auth-a", alterCfg),
		cluster(userDescribes, describe), topic(userDescribes, anyName, read, describe),
		topic(userReads, anyName, read, write, describe, describeCfg),
		{userReads, kmsg.ACLResourceTypeGroup, anyName, []kmsg.ACLOperation{read}},
		{userAll, kmsg.ACLResourceTypeTransactionalId, anyName, []kmsg.ACLOperation{write, describe}},
		topic(userSees, anyName, describe),
		cluster(userSeesConfig, describeCfg),
		cluster(userSetsConfig, alterCfg),
		cluster(userIsBroker, action, describe),
		cluster(userActs, action),
	}
	return append(out, sidecarACLs()...)
}

// sidecarACLs are the rights that the sidecars' own principal needs at the destination.
func sidecarACLs() []acl {
	return []acl{
		{userSidecar, kmsg.ACLResourceTypeCluster, "kafka-cluster", []kmsg.ACLOperation{
			kmsg.ACLOperationClusterAction, kmsg.ACLOperationAlter, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs,
		}},
		{userSidecar, kmsg.ACLResourceTypeTopic, anyName, []kmsg.ACLOperation{
			kmsg.ACLOperationCreate, kmsg.ACLOperationDescribe, kmsg.ACLOperationRead, kmsg.ACLOperationAlter,
			kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationAlterConfigs,
		}},
		{userSidecar, kmsg.ACLResourceTypeTopic, protocol.StateTopic, []kmsg.ACLOperation{kmsg.ACLOperationWrite}},
		{userSidecar, kmsg.ACLResourceTypeTransactionalId, anyName, []kmsg.ACLOperation{kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe}},
		{userSidecar, kmsg.ACLResourceTypeGroup, anyName, []kmsg.ACLOperation{kmsg.ACLOperationRead}},
	}
}

// sourceACLs are the rights that a mirror's user needs at the source to mirror records: docs/security.md.
func sourceACLs() []acl {
	return []acl{{userEast, kmsg.ACLResourceTypeTopic, anyName, []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationDescribeConfigs}}}
}

func password(user string) string { return user + "-secret" }

// jaas is a server's login with every user's password.
func jaas() string {
	users := map[string]bool{"broker": true, "root": true, userNobody: true}
	for _, a := range acls() {
		users[a.user] = true
	}
	var b strings.Builder
	fmt.Fprintf(&b, `org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password=%q`, password("broker"))
	for u := range users {
		fmt.Fprintf(&b, ` user_%s=%q`, u, password(u))
	}
	return b.String() + ";"
}

func sasl(user string) kgo.Opt {
	return kgo.SASL(plain.Auth{User: user, Pass: password(user)}.AsMechanism())
}

type env struct {
	src *harness.Cluster
	dst *stack.Stack
}

// start starts a source, a destination with an authorizer, and sidecars with the rights
// of sidecarACLs.
func start(t *testing.T) *env {
	t.Helper()
	harness.SkipShort(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	secured := map[string]string{
		"listener.security.protocol.map":       "INTERNAL:SASL_PLAINTEXT,CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
		"sasl.enabled.mechanisms":              "PLAIN",
		"sasl.mechanism.inter.broker.protocol": "PLAIN",
		"sasl.mechanism.controller.protocol":   "PLAIN",
		"authorizer.class.name":                "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                          "User:broker;User:root",
		"default.replication.factor":           "2",
	}
	for _, l := range []string{"internal", "client", "controller"} {
		secured["listener.name."+l+".plain.sasl.jaas.config"] = jaas()
	}
	e := &env{}
	var group errgroup.Group
	group.Go(func() (err error) {
		e.src, err = harness.Start(ctx, harness.Config{Name: "source", Brokers: 1, Log: log, Properties: map[string]string{
			"listener.security.protocol.map":               "INTERNAL:PLAINTEXT,CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
			"listener.name.client.sasl.enabled.mechanisms": "PLAIN",
			"listener.name.client.plain.sasl.jaas.config":  fmt.Sprintf(`org.apache.kafka.common.security.plain.PlainLoginModule required user_%s=%q;`, userEast, secret),
			"authorizer.class.name":                        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":                                  "User:ANONYMOUS", // the broker and the tests, at listeners without a login
		}})
		return err
	})
	group.Go(func() (err error) {
		e.dst, err = stack.Start(ctx, stack.Config{
			Kafka:      harness.Config{Name: "destination", Brokers: 2, Properties: secured, ClientOpts: []kgo.Opt{sasl("root")}, Log: log},
			Bin:        stack.Binaries(),
			NoSidecars: true,
			Sidecar: map[string]string{
				"mirror.metadata.refresh.interval.ms": "2000", // rights are looked at that often
				"security.protocol":                   "SASL_PLAINTEXT",
				"sasl.mechanism":                      "PLAIN",
				"sasl.jaas.config":                    fmt.Sprintf(`org.apache.kafka.common.security.plain.PlainLoginModule required username=%q password=%q;`, userSidecar, password(userSidecar)),
			},
		})
		return err
	})
	err := group.Wait()
	t.Cleanup(func() {
		if e.src != nil {
			if err := e.src.Stop(); err != nil {
				t.Error(err)
			}
		}
		if e.dst != nil {
			if t.Failed() {
				for _, c := range e.dst.Sidecars {
					t.Logf("sidecar %d:\n%s", c.Broker, c.LogTail())
				}
			}
			if err := e.dst.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	e.createACLs(t)
	if err := e.dst.StartSidecars(ctx); err != nil {
		t.Fatal(err)
	}
	return e
}

// createACLs creates what users, sidecars and the mirror may do.
func (e *env) createACLs(t *testing.T) {
	t.Helper()
	e.allow(t, e.dst.Cluster, acls())
	e.allow(t, e.src, sourceACLs())
}

// allow creates ACLs in a cluster, and returns when every broker has them.
func (e *env) allow(t *testing.T, c *harness.Cluster, all []acl) {
	t.Helper()
	req := kmsg.NewPtrCreateACLsRequest()
	for _, a := range all {
		for _, op := range a.allowed {
			one := kmsg.NewCreateACLsRequestCreation()
			one.ResourceType, one.ResourceName = a.kind, a.name
			one.ResourcePatternType = kmsg.ACLResourcePatternTypeLiteral
			one.Principal, one.Host = "User:"+a.user, "*"
			one.Operation, one.PermissionType = op, kmsg.ACLPermissionTypeAllow
			req.Creations = append(req.Creations, one)
		}
	}
	resp, err := req.RequestWith(t.Context(), c.ClientT(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resp.Results {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			t.Fatal(err)
		}
	}
	e.awaitACLs(t, c, all, true)
}

// take takes ACLs away again, and returns when no broker has them.
func (e *env) take(t *testing.T, c *harness.Cluster, all []acl) {
	t.Helper()
	req := kmsg.NewPtrDeleteACLsRequest()
	for _, a := range all {
		for _, op := range a.allowed {
			f := kmsg.NewDeleteACLsRequestFilter()
			f.ResourceType, f.ResourceName = a.kind, kmsg.StringPtr(a.name)
			f.ResourcePatternType = kmsg.ACLResourcePatternTypeLiteral
			f.Principal, f.Host = kmsg.StringPtr("User:"+a.user), kmsg.StringPtr("*")
			f.Operation, f.PermissionType = op, kmsg.ACLPermissionTypeAllow
			req.Filters = append(req.Filters, f)
		}
	}
	resp, err := req.RequestWith(t.Context(), c.ClientT(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resp.Results {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			t.Fatal(err)
		}
	}
	e.awaitACLs(t, c, all, false)
}

// awaitACLs: ACLs are in the metadata log, which brokers follow.
func (e *env) awaitACLs(t *testing.T, c *harness.Cluster, all []acl, there bool) {
	t.Helper()
	cl := c.ClientT(t)
	for _, n := range c.Brokers() {
		eventually(t, "ACLs", func(ctx context.Context) error {
			req := kmsg.NewPtrDescribeACLsRequest()
			req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
			req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
			resp, err := req.RequestWith(ctx, cl.Broker(int(n.ID())))
			if err != nil {
				return err
			}
			have := map[string]bool{}
			for _, r := range resp.Resources {
				for _, a := range r.ACLs {
					have[fmt.Sprint(a.Principal, r.ResourceType, r.ResourceName, a.Operation)] = true
				}
			}
			for _, a := range all {
				for _, op := range a.allowed {
					if have[fmt.Sprint("User:"+a.user, a.kind, a.name, op)] != there {
						return fmt.Errorf("%s %s %s of %s, there: %t", op, a.kind, a.name, a.user, !there)
					}
				}
			}
			return nil
		})
	}
}

// client is a user's client of the proxies.
func (e *env) client(t *testing.T, user string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(e.dst.Proxies()...), sasl(user), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())),
		kgo.RequestTimeoutOverhead(patience), kgo.DisableClientMetrics(),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// ask sends a request to the n-th sidecar as a user.
func (e *env) ask(t *testing.T, user string, n int, req kmsg.Request, opts ...kgo.Opt) kmsg.Response {
	t.Helper()
	resp, err := e.client(t, user, append(opts, kgo.SeedBrokers(e.dst.Proxies()[n]))...).SeedBrokers()[0].Request(t.Context(), req)
	if err != nil {
		t.Fatalf("%s: %T: %v", user, req, err)
	}
	return resp
}

func eventually(t *testing.T, what string, fn func(ctx context.Context) error) {
	t.Helper()
	harness.AwaitT(t, patience, what, fn)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func findVersion(v int16) *kversion.Versions    { return withMax(int16(kmsg.FindCoordinator), v) }
func produceVersion(v int16) *kversion.Versions { return withMax(int16(kmsg.Produce), v) }

func withMax(key, version int16) *kversion.Versions {
	v := protocol.AllowMirrorAPIs(kversion.Stable())
	v.SetMaxKeyVersion(key, version)
	return v
}

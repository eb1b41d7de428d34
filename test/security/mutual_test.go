package security

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/pki"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// TestMutualTLS has certificates for everybody and no SASL: brokers and operators are told by
// theirs at the virtual listener, clients are relayed under one that may do little.
func TestMutualTLS(t *testing.T) {
	harness.SkipShort(t)
	if !harness.Full() {
		t.Skip("only with MIRROR_FULL=1")
	}
	dir := t.TempDir()
	e := &env{ca: pki.NewCA(t, "test authority")}
	e.trust = pki.Write(t, dir, "trust.pem", e.ca.PEM())
	issued, files := map[string]tls.Certificate{}, map[string]string{}
	for _, name := range []string{"broker", "sidecar", "operator", "clients", "eve"} {
		c := e.ca.Issue(t, pki.Subject{Name: name})
		issued[name], files[name] = c.TLS(t), pki.Write(t, dir, name+".pem", c.Store)
	}
	as := func(name string) kgo.Opt {
		return kgo.DialTLSConfig(&tls.Config{RootCAs: e.ca.Pool(), Certificates: []tls.Certificate{issued[name]}})
	}
	e.run(t, stack.Config{
		Kafka: harness.Config{
			Brokers: 2, // so that brokers and sidecars talk to each other
			Properties: map[string]string{
				"default.replication.factor":     "2",
				"listener.security.protocol.map": "INTERNAL:SSL,CLIENT:SSL,CONTROLLER:SSL",
				"ssl.client.auth":                "required",
				"ssl.keystore.type":              "PEM",
				"ssl.keystore.location":          files["broker"],
				"ssl.truststore.type":            "PEM",
				"ssl.truststore.location":        e.trust,
				"authorizer.class.name":          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
				"super.users":                    "User:CN=broker;User:CN=sidecar",
			},
			ClientOpts: []kgo.Opt{as("broker")},
		},
		Sidecar: map[string]string{
			"security.protocol":              "SSL",
			"ssl.keystore.location":          files["sidecar"],
			"ssl.truststore.location":        e.trust,
			"listener.security.protocol.map": "CLIENT:SSL",
			"ssl.client.auth":                "required",
			"upstream.ssl.keystore.location": files["clients"],
			"mirror.replica.principals":      "User:CN=broker;User:CN=sidecar;User:CN=operator",
		},
	})
	root := e.dst.Cluster.ClientT(t)
	adm := kadm.NewClient(root)
	const open = "open"
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, open); err != nil {
		t.Fatal(err)
	}
	if err := harness.AwaitTopic(t.Context(), root, open); err != nil {
		t.Fatal(err)
	}
	b := kadm.NewACLs().Topics("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead, kadm.OpWrite, kadm.OpDescribe).Allow("User:CN=clients", "User:CN=operator").AllowHosts("*")
	if _, err := adm.CreateACLs(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	client := func(t *testing.T, at, name string, opts ...kgo.Opt) *kgo.Client {
		cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(at), as(name), kgo.DisableClientMetrics(), kgo.RequestTimeoutOverhead(patience)}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	details, err := adm.ListTopics(t.Context(), open)
	if err != nil {
		t.Fatal(err)
	}
	proxy, virtual := e.dst.Proxies()[0], e.dst.Sidecars[0].Virtual
	follow := func(ctx context.Context, cl *kgo.Client) error {
		req := kmsg.NewPtrFetchRequest()
		req.ReplicaID, req.MaxBytes, req.SessionEpoch = e.dst.Sidecars[0].Broker, 1, -1
		req.ReplicaState.ID = req.ReplicaID
		ft, fp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
		ft.Topic, ft.TopicID, fp.PartitionMaxBytes = open, details[open].ID, 1
		ft.Partitions = append(ft.Partitions, fp)
		req.Topics = append(req.Topics, ft)
		resp, err := cl.SeedBrokers()[0].Request(ctx, req)
		if err != nil {
			return err
		}
		r := resp.(*kmsg.FetchResponse)
		if r.ErrorCode == 0 && len(r.Topics) > 0 && len(r.Topics[0].Partitions) > 0 {
			return kerr.ErrorForCode(r.Topics[0].Partitions[0].ErrorCode)
		}
		return kerr.ErrorForCode(r.ErrorCode)
	}
	t.Run("clients have the rights of those they are relayed as", func(t *testing.T) {
		for _, name := range []string{"eve", "operator", "broker"} {
			cl := client(t, proxy, name)
			harness.AwaitT(t, patience, name, func(ctx context.Context) error {
				return cl.ProduceSync(ctx, &kgo.Record{Topic: open, Value: []byte(name)}).FirstErr()
			})
			resp, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "made")
			if err == nil {
				err = resp.Err
			}
			if !errors.Is(err, kerr.TopicAuthorizationFailed) && !errors.Is(err, kerr.ClusterAuthorizationFailed) {
				t.Errorf("%s creates topics: %v", name, err)
			}
		}
	})
	t.Run("who has no certificate is not let in", func(t *testing.T) {
		// The server says so after the client's handshake. What is written meanwhile may make its
		// answer be lost, so nothing is.
		dialer := tls.Dialer{Config: &tls.Config{RootCAs: e.ca.Pool(), MinVersion: tls.VersionTLS13}}
		for _, at := range []string{proxy, virtual} {
			c, err := dialer.DialContext(t.Context(), "tcp", at)
			if err != nil {
				t.Errorf("%s: %v", at, err)
				continue
			}
			if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Error(err)
			}
			if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "tls: certificate required") {
				t.Errorf("%s: %v", at, err)
			}
			_ = c.Close()
		}
	})
	t.Run("only brokers follow", func(t *testing.T) {
		if err := follow(t.Context(), client(t, virtual, "eve")); !errors.Is(err, kerr.TopicAuthorizationFailed) && !errors.Is(err, kerr.ClusterAuthorizationFailed) {
			t.Errorf("eve: %v", err)
		}
		// What it is answered of an ordinary partition is no matter.
		err := follow(t.Context(), client(t, virtual, "broker"))
		_, answered := errors.AsType[*kerr.Error](err)
		if err != nil && !answered || errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
			t.Errorf("broker: %v", err)
		}
	})
	t.Run("mirror", func(t *testing.T) {
		operator := propertiesFile(t, dir, "operator", map[string]string{
			"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": e.trust, "ssl.keystore.location": files["operator"],
		})
		if _, err := e.dst.CLIAt(t.Context(), proxy, "--list", "--command-config", operator); err == nil || !strings.Contains(err.Error(), "the caller lacks") {
			t.Errorf("an operator at a client listener is more than a client: %v", err)
		}
		e.mirror(t, virtual, operator, client(t, proxy, "eve", fromStart()...))
	})
}

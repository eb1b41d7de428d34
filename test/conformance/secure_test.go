package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// The users of the secured cluster; a password is the name with this ending.
const (
	userBroker   = "broker"
	userSidecar  = "sidecar"
	userAdmin    = "admin"
	passwordTail = "-canary-secret"
)

// otherUsers have the rights that rows give them, each row its own.
func otherUsers() []string {
	return []string{"creator", "operator", "viewer", "configurer", "peer", "reader", "nobody", "source", "tail", "auditor"}
}

// secured is a cluster of one broker with a sidecar that lets in by SASL and asks the
// StandardAuthorizer. It refuses writes with READ_ONLY_TOPIC.
type secured struct {
	stack *stack.Stack
}

func jaas(user string) string {
	return fmt.Sprintf(`org.apache.kafka.common.security.plain.PlainLoginModule required username="%s" password="%s";`, user, user+passwordTail)
}

func login(user string) kgo.Opt {
	return kgo.SASL(plain.Auth{User: user, Pass: user + passwordTail}.AsMechanism())
}

func startSecured(ctx context.Context, version, bin string, plugins map[string]string, log *slog.Logger) (*secured, error) {
	var module strings.Builder
	fmt.Fprintf(&module, `org.apache.kafka.common.security.plain.PlainLoginModule required username="%s" password="%s"`, userBroker, userBroker+passwordTail)
	for _, u := range append(otherUsers(), userBroker, userSidecar, userAdmin) {
		fmt.Fprintf(&module, ` user_%s="%s"`, u, u+passwordTail)
	}
	module.WriteString(";")
	in, err := harness.Install(ctx, version)
	if err != nil {
		return nil, err
	}
	properties, err := in.NoTier(ctx, map[string]string{
		"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas(userBroker),
	})
	if err != nil {
		return nil, err
	}
	maps.Copy(properties, map[string]string{
		"listener.security.protocol.map":                "INTERNAL:SASL_PLAINTEXT,CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
		"sasl.enabled.mechanisms":                       "PLAIN",
		"sasl.mechanism.inter.broker.protocol":          "PLAIN",
		"listener.name.internal.plain.sasl.jaas.config": module.String(),
		"listener.name.client.plain.sasl.jaas.config":   module.String(),
		"authorizer.class.name":                         "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		// Controllers do not log in.
		"super.users": "User:ANONYMOUS;User:" + userBroker + ";User:" + userSidecar + ";User:" + userAdmin,
	})
	sidecar := map[string]string{
		"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas(userSidecar),
		"controller.security.protocol": "PLAINTEXT", "controller.sasl.jaas.config": "",
		"read.only.error":                     "read-only-topic",
		"mirror.metadata.refresh.interval.ms": "2000",
	}
	maps.Copy(sidecar, plugins)
	s, err := stack.Start(ctx, stack.Config{
		Bin: bin, Log: log,
		Kafka: harness.Config{
			Name: "secured", Version: version, Brokers: 1, FirstID: 21, Log: log,
			Properties: properties,
			ClientOpts: []kgo.Opt{login(userAdmin)},
		},
		Sidecar: sidecar,
	})
	if err != nil {
		return nil, err
	}
	return &secured{s}, nil
}

// secured returns the secured cluster, or fails the row if it did not start.
func (e *env) secured(t *testing.T) *secured {
	t.Helper()
	if e.sec == nil {
		t.Fatalf("the secured cluster did not start: %v", e.secErr)
	}
	return e.sec
}

func (s *secured) as(user string) kgo.Opt { return login(user) }

func (s *secured) addr() string { return s.stack.Sidecars[0].Proxy }

// client is one around the proxy.
func (s *secured) client(t *testing.T, user string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return newClient(t, s.stack.Direct(), append(opts, login(user))...)
}

func (s *secured) admin(t *testing.T) *kadm.Client {
	t.Helper()
	return kadm.NewClient(s.client(t, userAdmin))
}

// allow gives a user rights on the cluster.
func (s *secured) allow(t *testing.T, user string, ops ...kadm.ACLOperation) {
	t.Helper()
	s.acl(t, kadm.NewACLs().Allow("User:"+user).AllowHosts().Clusters().Operations(ops...))
}

// allowTopics gives a user rights on topics with a prefix.
func (s *secured) allowTopics(t *testing.T, user, prefix string, ops ...kadm.ACLOperation) {
	t.Helper()
	s.acl(t, kadm.NewACLs().Allow("User:"+user).AllowHosts().Topics(prefix).ResourcePatternType(kadm.ACLPatternPrefixed).Operations(ops...))
}

func (s *secured) acl(t *testing.T, b *kadm.ACLBuilder) {
	t.Helper()
	r, err := s.admin(t).CreateACLs(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r {
		if x.Err != nil {
			t.Fatal(x.Err)
		}
	}
	// The controller answers before the broker, which decides, has read it from the metadata log. There
	// is one broker.
	adm := s.admin(t)
	eventually(t, "the broker knows the rights", func(ctx context.Context) error {
		d, err := adm.DescribeACLs(ctx, b)
		if err != nil {
			return err
		}
		for _, x := range d {
			if x.Err != nil {
				return x.Err
			}
			if len(x.Described) == 0 {
				return fmt.Errorf("not yet %v", x)
			}
		}
		return nil
	})
}

// commandConfig is a --command-config file.
func commandConfig(t *testing.T, user string) string {
	t.Helper()
	return propertiesFile(t, map[string]string{
		"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas(user),
	})
}

// sourceSecured is the configuration of a mirror that reads from the secured cluster.
func (e *env) sourceSecured(t *testing.T, login string) map[string]string {
	t.Helper()
	return map[string]string{
		"bootstrap.servers": e.secured(t).stack.Direct()[0], "request.timeout.ms": "5000",
		"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login,
	}
}

func secretFile(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

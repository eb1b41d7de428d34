package plugins

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// Policy is a plugin: what it is called, and the kinds that it decides on. Those that are nil it
// does not serve.
type Policy struct {
	// Name and Version are for people.
	Name, Version string
	// CheckConfig says what is wrong with plugin.<name>.config.<key> of the sidecar, if it is asked to.
	CheckConfig func(config map[string]string) error

	Topics  TopicPolicy
	Configs ConfigPolicy
	ACLs    ACLPolicy
	Groups  GroupPolicy
	Quotas  QuotaPolicy
	Events  EventSink
}

// The kinds, each an interface of its own. A page is decided on by itself: one decision for each
// item, in the order of the items. ctx ends when the host no longer waits for the answer.
type (
	// TopicPolicy selects topics.
	TopicPolicy interface {
		SelectTopics(ctx context.Context, r *policyv1.SelectTopicsRequest) (*policyv1.SelectTopicsResponse, error)
	}
	// ConfigPolicy selects configs of topics.
	ConfigPolicy interface {
		SelectConfigs(ctx context.Context, r *policyv1.SelectConfigsRequest) (*policyv1.SelectConfigsResponse, error)
	}
	// ACLPolicy selects ACLs, and maps them.
	ACLPolicy interface {
		SelectAcls(ctx context.Context, r *policyv1.SelectAclsRequest) (*policyv1.SelectAclsResponse, error)
	}
	// GroupPolicy selects consumer groups.
	GroupPolicy interface {
		SelectGroups(ctx context.Context, r *policyv1.SelectGroupsRequest) (*policyv1.SelectGroupsResponse, error)
	}
	// QuotaPolicy selects client quotas.
	QuotaPolicy interface {
		SelectQuotas(ctx context.Context, r *policyv1.SelectQuotasRequest) (*policyv1.SelectQuotasResponse, error)
	}
	// EventSink is told of changes.
	EventSink interface {
		Notify(ctx context.Context, r *policyv1.NotifyRequest) (*policyv1.NotifyResponse, error)
	}
)

// Kinds are those that a policy decides on.
func (p Policy) Kinds() []string {
	var out []string
	for _, k := range []struct {
		name   string
		served bool
	}{
		{"topics", p.Topics != nil},
		{"configs", p.Configs != nil},
		{"acls", p.ACLs != nil},
		{"groups", p.Groups != nil},
		{"quotas", p.Quotas != nil},
		{"events", p.Events != nil},
	} {
		if k.served {
			out = append(out, k.name)
		}
	}
	return out
}

// Serve makes this process the plugin, and returns when the sidecar no longer needs it. It is all
// that main does. What is written to the standard output and error, and to slog, ends up in the
// sidecar's log.
func Serve(p Policy) {
	// go-plugin replaces the standard error by a stream to the host, in which the last words of a
	// process that ends are lost. The original one is read as well.
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	served := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		ticks := time.NewTicker(time.Second)
		defer ticks.Stop()
		if orphaned(ticks.C, os.Getppid, served) {
			os.Exit(1)
		}
	})
	defer watch.Wait()
	defer close(served)
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: Handshake(),
		Plugins:         goplugin.PluginSet{Name: server{policy: p}},
		Logger:          hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr}),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(MaxMessageBytes), grpc.UnaryInterceptor(recovered))...)
		},
	})
}

// orphaned returns once the process that has started this one is gone, or with false when this one
// has ended by itself. Linux can kill the children of a sidecar that was killed, but not those whose
// program has capabilities of its own, and other systems cannot.
func orphaned(ticks <-chan time.Time, parent func() int, served <-chan struct{}) bool {
	first := parent()
	for {
		select {
		case <-ticks:
			if parent() != first {
				return true
			}
		case <-served:
			return false
		}
	}
}

// recovered makes errors of panics: a mistake in one decision must not cost the process, whose next
// start others wait for.
func recovered(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if r := recover(); r != nil {
			slog.Error("the policy panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			resp, err = nil, status.Errorf(codes.Internal, "the policy panicked: %v", r)
		}
	}()
	return handler(ctx, req)
}

// server registers a policy's services.
type server struct {
	Connection
	policy Policy
}

// GRPCServer implements go-plugin's interface.
func (s server) GRPCServer(_ *goplugin.GRPCBroker, g *grpc.Server) error {
	s.policy.Register(g)
	return nil
}

// Register adds the policy's services to a server, for whoever serves it in another way than Serve.
func (p Policy) Register(g grpc.ServiceRegistrar) {
	policyv1.RegisterPluginInfoServer(g, info{policy: p})
	if p.Topics != nil {
		policyv1.RegisterTopicPolicyServer(g, topics{TopicPolicy: p.Topics})
	}
	if p.Configs != nil {
		policyv1.RegisterConfigPolicyServer(g, configs{ConfigPolicy: p.Configs})
	}
	if p.ACLs != nil {
		policyv1.RegisterAclPolicyServer(g, acls{ACLPolicy: p.ACLs})
	}
	if p.Groups != nil {
		policyv1.RegisterGroupPolicyServer(g, groups{GroupPolicy: p.Groups})
	}
	if p.Quotas != nil {
		policyv1.RegisterQuotaPolicyServer(g, quotas{QuotaPolicy: p.Quotas})
	}
	if p.Events != nil {
		policyv1.RegisterEventSinkServer(g, events{EventSink: p.Events})
	}
}

type info struct {
	policyv1.UnimplementedPluginInfoServer
	policy Policy
}

// Describe implements the service.
func (i info) Describe(_ context.Context, r *policyv1.DescribeRequest) (*policyv1.DescribeResponse, error) {
	out := &policyv1.DescribeResponse{Name: i.policy.Name, Version: cmp.Or(i.policy.Version, "unknown"), Kinds: i.policy.Kinds()}
	if i.policy.CheckConfig != nil {
		if err := i.policy.CheckConfig(r.GetConfig()); err != nil {
			out.ConfigError = err.Error()
		}
	}
	return out, nil
}

// The services: a policy's interfaces have no word of gRPC, which wants its own embedded.
type (
	topics struct {
		policyv1.UnimplementedTopicPolicyServer
		TopicPolicy
	}
	configs struct {
		policyv1.UnimplementedConfigPolicyServer
		ConfigPolicy
	}
	acls struct {
		policyv1.UnimplementedAclPolicyServer
		ACLPolicy
	}
	groups struct {
		policyv1.UnimplementedGroupPolicyServer
		GroupPolicy
	}
	quotas struct {
		policyv1.UnimplementedQuotaPolicyServer
		QuotaPolicy
	}
	events struct {
		policyv1.UnimplementedEventSinkServer
		EventSink
	}
)

// SelectTopics implements the service.
func (s topics) SelectTopics(ctx context.Context, r *policyv1.SelectTopicsRequest) (*policyv1.SelectTopicsResponse, error) {
	return s.TopicPolicy.SelectTopics(ctx, r)
}

// SelectConfigs implements the service.
func (s configs) SelectConfigs(ctx context.Context, r *policyv1.SelectConfigsRequest) (*policyv1.SelectConfigsResponse, error) {
	return s.ConfigPolicy.SelectConfigs(ctx, r)
}

// SelectAcls implements the service.
func (s acls) SelectAcls(ctx context.Context, r *policyv1.SelectAclsRequest) (*policyv1.SelectAclsResponse, error) {
	return s.ACLPolicy.SelectAcls(ctx, r)
}

// SelectGroups implements the service.
func (s groups) SelectGroups(ctx context.Context, r *policyv1.SelectGroupsRequest) (*policyv1.SelectGroupsResponse, error) {
	return s.GroupPolicy.SelectGroups(ctx, r)
}

// SelectQuotas implements the service.
func (s quotas) SelectQuotas(ctx context.Context, r *policyv1.SelectQuotasRequest) (*policyv1.SelectQuotasResponse, error) {
	return s.QuotaPolicy.SelectQuotas(ctx, r)
}

// Notify implements the service.
func (s events) Notify(ctx context.Context, r *policyv1.NotifyRequest) (*policyv1.NotifyResponse, error) {
	return s.EventSink.Notify(ctx, r)
}

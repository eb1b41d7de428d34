package hostrules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker answers as a broker with the given rules would.
type broker struct {
	aclCode int16
	hosts   []string
	ips     []string
	configs map[string]string
	// configsCode is the error that is answered for configs.
	configsCode int16
	down        error
}

func (b *broker) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	if b.down != nil {
		return nil, b.down
	}
	switch req.(type) {
	case *kmsg.DescribeACLsRequest:
		resp := kmsg.NewPtrDescribeACLsResponse()
		resp.ErrorCode = b.aclCode
		r := kmsg.NewDescribeACLsResponseResource()
		r.ResourceType, r.ResourceName = kmsg.ACLResourceTypeTopic, "orders"
		for _, h := range b.hosts {
			a := kmsg.NewDescribeACLsResponseResourceACL()
			a.Principal, a.Host, a.Operation, a.PermissionType = "User:app", h, kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
			r.ACLs = append(r.ACLs, a)
		}
		resp.Resources = append(resp.Resources, r)
		return resp, nil
	case *kmsg.DescribeClientQuotasRequest:
		resp := kmsg.NewPtrDescribeClientQuotasResponse()
		for _, ip := range b.ips {
			e := kmsg.NewDescribeClientQuotasResponseEntry()
			entity := kmsg.NewDescribeClientQuotasResponseEntryEntity()
			entity.Type = "ip"
			if ip != "" {
				entity.Name = &ip
			}
			v := kmsg.NewDescribeClientQuotasResponseEntryValue()
			v.Key, v.Value = "connection_creation_rate", 5
			e.Entity, e.Values = append(e.Entity, entity), append(e.Values, v)
			resp.Entries = append(resp.Entries, e)
		}
		return resp, nil
	case *kmsg.DescribeConfigsRequest:
		resp := kmsg.NewPtrDescribeConfigsResponse()
		r := kmsg.NewDescribeConfigsResponseResource()
		r.ErrorCode = b.configsCode
		for k, v := range b.configs {
			c := kmsg.NewDescribeConfigsResponseResourceConfig()
			c.Name, c.Value = k, &v
			r.Configs = append(r.Configs, c)
		}
		resp.Resources = append(resp.Resources, r)
		return resp, nil
	}
	return nil, fmt.Errorf("request %T", req)
}

func TestFind(t *testing.T) {
	for name, tc := range map[string]struct {
		broker broker
		want   []string
	}{
		"nothing":              {broker{hosts: []string{"*"}, configs: map[string]string{keyPerIP: "2147483647", keyOverrides: ""}}, nil},
		"no authorizer":        {broker{aclCode: kerr.SecurityDisabled.Code}, nil},
		"an ACL":               {broker{hosts: []string{"*", "10.0.0.1"}}, []string{"ACL: ALLOW User:app READ on topic orders from host 10.0.0.1"}},
		"a quota":              {broker{ips: []string{"10.0.0.1"}}, []string{"quota: connection_creation_rate of ip 10.0.0.1 is 5"}},
		"a quota of all":       {broker{ips: []string{""}}, []string{"quota: connection_creation_rate of the default ip is 5"}},
		"a limit":              {broker{configs: map[string]string{keyPerIP: "10"}}, []string{"broker 1: max.connections.per.ip=10"}},
		"a limit of listeners": {broker{configs: map[string]string{"listener.name.client." + keyPerIP: "10", "listener.name.internal." + keyPerIP: "9"}}, []string{"broker 1: listener.name.client.max.connections.per.ip=10"}},
		"overrides":            {broker{configs: map[string]string{keyOverrides: "h:1"}}, []string{"broker 1: max.connections.per.ip.overrides=h:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Find(t.Context(), &tc.broker, 1, []string{"CLIENT"})
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("%q, %v, want %q", got, err, tc.want)
			}
		})
	}
	b := broker{aclCode: kerr.ClusterAuthorizationFailed.Code, ips: []string{"10.0.0.1"}}
	if got, err := Find(t.Context(), &b, 1, nil); len(got) != 1 || err == nil || !strings.Contains(err.Error(), "DESCRIBE on the cluster") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWatch(t *testing.T) {
	b := &broker{hosts: []string{"10.0.0.1"}}
	w := NewWatch(Config{Home: b, Broker: 1, Every: time.Hour}, slog.New(slog.DiscardHandler))
	if w.Ready() == nil {
		t.Error("ready before the first look")
	}
	w.look(t.Context())
	if err := w.Ready(); err == nil || !strings.Contains(err.Error(), "10.0.0.1") {
		t.Errorf("with a rule: %v", err)
	}
	b.down = errors.New("down")
	w.look(t.Context())
	if err := w.Ready(); err == nil || !strings.Contains(err.Error(), "10.0.0.1") {
		t.Errorf("a rule that nobody could be asked for: %v", err)
	}
	if w.Warn() == nil {
		t.Error("no word of a broker that is down")
	}
	// It is gone, and another question fails for ever.
	b.down, b.hosts, b.ips, b.configsCode = nil, nil, []string{"10.0.0.9"}, kerr.ClusterAuthorizationFailed.Code
	w.look(t.Context())
	if err := w.Ready(); err == nil || strings.Contains(err.Error(), "10.0.0.1") || !strings.Contains(err.Error(), "10.0.0.9") {
		t.Errorf("a rule is gone, another is there: %v", err)
	}
	b.ips = nil
	w.look(t.Context())
	if err := w.Ready(); err != nil || w.Warn() == nil {
		t.Errorf("no rule is there: %v; what cannot be asked: %v", err, w.Warn())
	}
	b.configsCode = 0
	w.look(t.Context())
	if err := errors.Join(w.Ready(), w.Warn()); err != nil {
		t.Error(err)
	}

	b.hosts = slices.Repeat([]string{"10.0.0.1", "10.0.0.2"}, 20)
	w = NewWatch(Config{Home: b, Broker: 1, Every: time.Hour, Ignored: true}, slog.New(slog.DiscardHandler))
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for w.Warn() == nil && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := w.Ready(); err != nil {
		t.Errorf("ignored: %v", err)
	}
	if err := w.Warn(); !strings.Contains(err.Error(), "and 20 more") {
		t.Errorf("the warning is %v", err)
	}
	if err := w.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

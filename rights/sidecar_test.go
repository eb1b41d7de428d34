package rights

import (
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

// granting answers as a cluster does whose authorizer has allowed everything but some rights.
type granting struct {
	t      *testing.T
	denied map[string]bool // as Need.String
	topics []string        // that exist
	down   error
}

func (g granting) may(n Need) bool { return !g.denied[n.String()] }

func (g granting) code(n Need, denied, allowed *kerr.Error) int16 {
	if g.may(n) {
		return allowed.Code
	}
	return denied.Code
}

func (g granting) operations(of func(o Operation) Need) (s int32) {
	for o := Read; o <= AlterConfigs; o++ {
		if g.may(of(o)) {
			s |= 1 << o
		}
	}
	if !g.may(of(Describe)) {
		return -1 << 31
	}
	return s
}

func (g granting) broker(req kmsg.Request) (kmsg.Response, error) {
	if g.down != nil {
		return nil, g.down
	}
	cluster := func(o Operation) Need { return OfCluster(o, "") }
	switch r := req.(type) {
	case *kmsg.DescribeClusterRequest:
		resp := kmsg.NewPtrDescribeClusterResponse()
		resp.ClusterAuthorizedOperations = g.operations(cluster)
		return resp, nil
	case *kmsg.FetchRequest:
		resp := kmsg.NewPtrFetchResponse()
		rt, rp := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		rp.ErrorCode = g.code(cluster(ClusterAction), kerr.TopicAuthorizationFailed, kerr.UnknownTopicID)
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil
	case *kmsg.DescribeConfigsRequest:
		resp := kmsg.NewPtrDescribeConfigsResponse()
		resp.Resources = []kmsg.DescribeConfigsResponseResource{{ErrorCode: g.code(cluster(DescribeConfigs), kerr.ClusterAuthorizationFailed, kerr.InvalidConfig)}}
		return resp, nil
	case *kmsg.MetadataRequest:
		resp := kmsg.NewPtrMetadataResponse()
		for _, t := range r.Topics {
			rt := kmsg.NewMetadataResponseTopic()
			rt.Topic = t.Topic
			of := func(o Operation) Need { return OfTopic(o, *t.Topic, "") }
			switch rt.AuthorizedOperations = g.operations(of); {
			case !g.may(of(Describe)):
				rt.ErrorCode = kerr.TopicAuthorizationFailed.Code
			case !slices.Contains(g.topics, *t.Topic):
				rt.ErrorCode = kerr.UnknownTopicOrPartition.Code
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil
	case *kmsg.CreateTopicsRequest:
		if !r.ValidateOnly {
			g.t.Error("something would change")
		}
		resp := kmsg.NewPtrCreateTopicsResponse()
		resp.Topics = []kmsg.CreateTopicsResponseTopic{{ErrorCode: g.code(OfTopic(Create, r.Topics[0].Topic, ""), kerr.TopicAuthorizationFailed, kerr.InvalidReplicationFactor)}}
		return resp, nil
	case *kmsg.FindCoordinatorRequest:
		g.t.Error("__transaction_state would be created")
	case *kmsg.DescribeTransactionsRequest:
		resp := kmsg.NewPtrDescribeTransactionsResponse()
		resp.TransactionStates = []kmsg.DescribeTransactionsResponseTransactionState{{ErrorCode: g.code(OfTransaction(Describe, r.TransactionalIDs[0], ""), kerr.TransactionalIDAuthorizationFailed, kerr.NotCoordinator)}}
		return resp, nil
	case *kmsg.EndTxnRequest:
		resp := kmsg.NewPtrEndTxnResponse()
		resp.ErrorCode = g.code(OfTransaction(Write, r.TransactionalID, ""), kerr.TransactionalIDAuthorizationFailed, kerr.InvalidProducerIDMapping)
		return resp, nil
	case *kmsg.HeartbeatRequest:
		resp := kmsg.NewPtrHeartbeatResponse()
		resp.ErrorCode = g.code(OfGroup(Read, "*", ""), kerr.GroupAuthorizationFailed, kerr.UnknownMemberID)
		return resp, nil
	}
	return nil, fmt.Errorf("unexpected %T", req)
}

func destination() Destination {
	return Destination{Broker: 1, State: "state", Transactions: "txn-0", Topics: []string{"orders", "gone"}, Group: "any"}
}

// TestMissing takes each right away, alone, and is told of that one and no other.
func TestMissing(t *testing.T) {
	d := destination()
	needs := slices.Concat(d.needsOnCluster(), needsOnTopic("orders"), []Need{
		OfTopic(Read, "state", ""), OfTopic(Write, "state", ""), OfTransaction(Write, "txn-0", ""), OfTransaction(Describe, "txn-0", ""), OfGroup(Read, "*", ""),
	})
	for _, n := range needs {
		g := granting{t: t, denied: map[string]bool{n.String(): true}, topics: []string{"state", "orders"}}
		want := []string{n.String()}
		switch n.String() {
		case "DESCRIBE on the cluster":
			want = []string{n.String(), "ALTER on the cluster"} // which includes it, so that it cannot be there
		case "DESCRIBE on topic orders":
			want = nil // nothing is told of the topic then
			for _, m := range needsOnTopic("orders") {
				want = append(want, m.String())
			}
		}
		missing, err := d.Missing(t.Context(), broker(g.broker))
		if err != nil {
			t.Errorf("%s: %v", n, err)
		}
		var got []string
		for _, m := range missing {
			got = append(got, m.String())
			if m.For == "" {
				t.Errorf("%s: no word of what it is for", m)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("without %s: %q, want %q", n, got, want)
		}
	}
	g := granting{t: t, denied: map[string]bool{"CREATE on topic state": true}}
	if missing, err := d.Missing(t.Context(), broker(g.broker)); err != nil || len(missing) != 1 || missing[0].String() != "CREATE on topic state" {
		t.Errorf("before the first mirror: %v, %v", missing, err)
	}
	g = granting{t: t, denied: map[string]bool{"DESCRIBE on the cluster": true, "CLUSTER_ACTION on the cluster": true, "DESCRIBE_CONFIGS on the cluster": true}, topics: []string{"state"}}
	if missing, err := d.Missing(t.Context(), broker(g.broker)); err != nil || len(missing) != 4 {
		t.Errorf("without any on the cluster: %v, %v", missing, err)
	}
	g = granting{t: t, topics: []string{"state", "orders"}}
	if missing, err := d.Missing(t.Context(), broker(g.broker)); err != nil || len(missing) > 0 {
		t.Errorf("with all of them: %v, %v", missing, err)
	}
	d.Quotas = true
	g.denied = map[string]bool{"ALTER_CONFIGS on the cluster": true}
	if missing, err := d.Missing(t.Context(), broker(g.broker)); err != nil || len(missing) != 1 {
		t.Errorf("quotas: %v, %v", missing, err)
	}
}

func TestGrant(t *testing.T) {
	for want, n := range map[string]Need{
		"--operation ClusterAction --cluster":                      OfCluster(ClusterAction, ""),
		"--operation DescribeConfigs --topic orders":               OfTopic(DescribeConfigs, "orders", ""),
		"--operation Read --group '*'":                             OfGroup(Read, "*", ""),
		"--operation Write --transactional-id 'it'\\''s'":          OfTransaction(Write, "it's", ""),
		"--add --allow-principal 'User:CN=a b' --operation Create": OfTopic(Create, "t", ""),
	} {
		if got := n.Grant("User:CN=a b"); !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	err := Lacking(fmt.Errorf("create: %w", kerr.TopicAuthorizationFailed), Sidecars, OfTopic(Create, "t", ""))
	if !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "lacks CREATE on topic t") || !strings.Contains(err.Error(), "--operation Create --topic t") {
		t.Errorf("%v", err)
	}
	if err := Lacking(kerr.InvalidConfig, Sidecars, OfTopic(Create, "t", "")); !errors.Is(err, kerr.InvalidConfig) || strings.Contains(err.Error(), "lacks") {
		t.Errorf("another error: %v", err)
	}
	if err := Lacking(nil, Sidecars, Need{}); err != nil {
		t.Error(err)
	}
}

func TestWatch(t *testing.T) {
	g := &granting{t: t, denied: map[string]bool{"WRITE on topic state": true}, topics: []string{"state"}}
	w := NewWatch(WatchConfig{
		Asker: broker(func(req kmsg.Request) (kmsg.Response, error) { return g.broker(req) }), Principal: "User:sidecar", What: destination, Every: time.Hour,
	}, slog.New(slog.DiscardHandler))
	if err := w.Warn(); err != nil {
		t.Errorf("before it has looked: %v", err)
	}
	w.look(t.Context())
	if err := w.Warn(); err == nil || !strings.Contains(err.Error(), "WRITE on topic state") || !strings.Contains(err.Error(), "--allow-principal User:sidecar") {
		t.Errorf("%v", err)
	}
	g.down = errors.New("down")
	w.look(t.Context())
	if err := w.Warn(); err == nil || !strings.Contains(err.Error(), "WRITE on topic state") {
		t.Errorf("nobody could be asked: %v", err)
	}
	g.down, g.denied = nil, nil
	w.look(t.Context())
	if err := w.Warn(); err != nil {
		t.Error(err)
	}
	g.denied = map[string]bool{"DESCRIBE on topic orders": true}
	g.topics = append(g.topics, "orders")
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for w.Warn() == nil && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := w.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

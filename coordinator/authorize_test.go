package coordinator

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

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
	"github.com/cluster-mirroring/mirror-sidecar/rights"
)

// allowed is a caller whom the cluster allows these operations, and ALTER_CONFIGS on all
// topics but some.
type allowed struct {
	ops    []rights.Operation
	denied []string // topics
}

func can(ops ...rights.Operation) allowed { return allowed{ops: ops} }

func (a allowed) but(topics ...string) allowed { a.denied = topics; return a }

func (a allowed) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	code := func(op rights.Operation) int16 {
		if slices.Contains(a.ops, op) {
			return 0
		}
		return 31
	}
	switch r := req.(type) {
	case *kmsg.DescribeClusterRequest:
		resp := kmsg.NewPtrDescribeClusterResponse()
		resp.ClusterAuthorizedOperations = 0
		// Kafka says nothing to who may not DESCRIBE, which ALTER implies.
		if slices.Contains(a.ops, rights.Describe) || slices.Contains(a.ops, rights.Alter) {
			for _, op := range a.ops {
				resp.ClusterAuthorizedOperations |= 1 << op
			}
		}
		return resp, nil
	case *kmsg.DescribeConfigsRequest:
		resp := kmsg.NewPtrDescribeConfigsResponse()
		resp.Resources = []kmsg.DescribeConfigsResponseResource{{ErrorCode: code(rights.DescribeConfigs)}}
		return resp, nil
	case *kmsg.IncrementalAlterConfigsRequest:
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		for _, res := range r.Resources {
			out := kmsg.NewIncrementalAlterConfigsResponseResource()
			out.ResourceName = res.ResourceName
			switch {
			case res.ResourceType == kmsg.ConfigResourceTypeBroker:
				out.ErrorCode = code(rights.AlterConfigs)
			case slices.Contains(a.denied, res.ResourceName):
				out.ErrorCode = 29
			}
			resp.Resources = append(resp.Resources, out)
		}
		return resp, nil
	}
	return nil, errors.New("not what was expected")
}

// barred is a coordinator without a state topic: what is let through to it finds no
// mirror.
func barred(t *testing.T, who Caller) *Coordinator {
	t.Helper()
	img := metadata.NewImage(10000)
	return &Coordinator{
		cfg: Config{Self: 10001, Virtual: 10000}, img: img, view: NewView(), log: slog.New(slog.DiscardHandler),
		store: &Store{img: img},
		deps:  Deps{Caller: func(context.Context) (Caller, bool) { return who, who != nil }, Fences: fences{}},
	}
}

// fences remembers what was fenced.
type fences map[string]time.Duration

func (f fences) Fence(topics []string, lease time.Duration) (anew []string, err error) {
	for _, t := range topics {
		if _, ok := f[t]; !ok {
			anew = append(anew, t)
		}
		f[t] = lease
	}
	return anew, nil
}

func codeIn(resp kmsg.Response) int16 {
	switch r := resp.(type) {
	case *protocol.ListClusterMirrorsResponse:
		return r.ErrorCode
	case *protocol.DescribeClusterMirrorsResponse:
		return r.ErrorCode
	case *protocol.ReadMirrorStatesResponse:
		return r.ErrorCode
	case *protocol.WriteMirrorStatesResponse:
		return r.ErrorCode
	case *protocol.UncordonVirtualBrokerResponse:
		return r.ErrorCode
	case *protocol.ExplainClusterMirrorResponse:
		return r.ErrorCode
	case *protocol.FenceTopicWritesResponse:
		return r.ErrorCode
	}
	code, _ := topLevel(resp)
	return code
}

func TestRightsOnTheCluster(t *testing.T) {
	create, alter, describe, action := rights.Create, rights.Alter, rights.Describe, rights.ClusterAction
	for name, c := range map[string]struct {
		req  kmsg.Request
		have allowed
		ok   bool
	}{
		"create without ALTER":     {&protocol.CreateClusterMirrorRequest{MirrorName: "m"}, can(create, describe), false},
		"create without CREATE":    {&protocol.CreateClusterMirrorRequest{MirrorName: "m"}, can(alter, describe), false},
		"start":                    {&protocol.StartMirrorTopicsRequest{MirrorName: "m"}, can(alter), true},
		"start without":            {&protocol.StartMirrorTopicsRequest{MirrorName: "m"}, can(create, describe), false},
		"stop without":             {&protocol.StopMirrorTopicsRequest{}, can(describe), false},
		"pause without":            {&protocol.PauseMirrorTopicsRequest{}, can(describe), false},
		"resume without":           {&protocol.ResumeMirrorTopicsRequest{}, can(describe), false},
		"recover without":          {&protocol.RecoverMirrorTopicsRequest{}, can(describe), false},
		"delete without":           {&protocol.DeleteClusterMirrorRequest{}, can(describe), false},
		"fence without":            {&protocol.FenceTopicWritesRequest{}, can(describe), false},
		"fence":                    {&protocol.FenceTopicWritesRequest{}, can(alter), true},
		"describe":                 {&protocol.DescribeClusterMirrorsRequest{MirrorNames: []string{}, LocalOnly: true}, can(describe), true},
		"describe without":         {&protocol.DescribeClusterMirrorsRequest{}, can(create, action), false},
		"explain without":          {&protocol.ExplainClusterMirrorRequest{}, can(create), false},
		"explain":                  {&protocol.ExplainClusterMirrorRequest{Kind: "acl"}, can(describe), true},
		"explain a quota without":  {&protocol.ExplainClusterMirrorRequest{Kind: "quota"}, can(describe), false},
		"explain a quota":          {&protocol.ExplainClusterMirrorRequest{Kind: "quota"}, can(describe, rights.DescribeConfigs), true},
		"list":                     {&protocol.ListClusterMirrorsRequest{}, can(describe), true},
		"list without":             {&protocol.ListClusterMirrorsRequest{}, can(create), false},
		"states between sidecars":  {&protocol.WriteMirrorStatesRequest{}, can(action, describe), true},
		"states from somebody":     {&protocol.WriteMirrorStatesRequest{}, can(alter, create, describe), false},
		"reading states":           {&protocol.ReadMirrorStatesRequest{}, can(describe), false},
		"un-cordoning by somebody": {&protocol.UncordonVirtualBrokerRequest{}, can(alter), false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, client := range []string{"somebody", peerClientID + "10002"} {
				code := codeIn(barred(t, c.have).admit(t.Context(), client, c.req))
				if got := code != protocol.ClusterMirrorAuthorizationFailed; got != c.ok {
					t.Errorf("%s: code %d", client, code)
				}
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		if codeIn(barred(t, nil).admit(t.Context(), "somebody", &protocol.ListClusterMirrorsRequest{})) != protocol.ClusterMirrorAuthorizationFailed {
			t.Error("allowed")
		}
	})
}

// TestQuotasAreNotDescribedToAll: what describe says of quotas that are left out has their values in it.
func TestQuotasAreNotDescribedToAll(t *testing.T) {
	t.Parallel()
	why := func() *string { s := "7 of 9"; return &s }
	resp := &protocol.DescribeClusterMirrorsResponse{Mirrors: []protocol.DescribedMirror{{Policies: []protocol.DescribedPolicy{
		{Kind: "groups", LastError: why(), Warnings: []string{*why()}, Skipped: []protocol.PolicySkip{{Name: "g", Reason: *why()}}},
		{Kind: "quotas", LastError: why(), Warnings: []string{*why()}, Skipped: []protocol.PolicySkip{{Name: "q", Reason: *why()}}},
	}}}}
	withoutQuotas(resp)
	for i, hidden := range []bool{false, true} {
		p := resp.Mirrors[0].Policies[i]
		for _, said := range []string{*p.LastError, p.Warnings[0], p.Skipped[0].Reason} {
			if (said != *why()) != hidden {
				t.Errorf("%s: %q", p.Kind, said)
			}
		}
	}
}

// Calling oneself a sidecar gains nothing, being one does: it passes on what it has asked
// for on behalf of its own caller.
func TestPeerClientID(t *testing.T) {
	req := &protocol.CreateClusterMirrorRequest{MirrorName: "m"}
	co := barred(t, can(rights.ClusterAction, rights.Alter, rights.Describe).but("t"))
	if code := codeIn(co.admit(t.Context(), peerClientID+"10002", req)); code == protocol.ClusterMirrorAuthorizationFailed {
		t.Error("a sidecar is refused what it passes on")
	}
	if code := codeIn(co.admit(t.Context(), "other", req)); code != protocol.ClusterMirrorAuthorizationFailed {
		t.Errorf("code %d for the same rights under another client id", code)
	}
	// Without the right the request is an ordinary client's, who is told that there is no such
	// mirror, and not to ask again as a sidecar is.
	for _, c := range []struct {
		have allowed
		want int16
	}{
		{can(rights.Alter), protocol.UnknownClusterMirror},
		{can(rights.Alter, rights.ClusterAction), kerr.CoordinatorNotAvailable.Code},
	} {
		resp := barred(t, c.have).admit(t.Context(), peerClientID+"10002", &protocol.DeleteClusterMirrorRequest{MirrorName: "m"})
		if code := codeIn(resp); code != c.want {
			t.Errorf("with %v: code %d, want %d", c.have.ops, code, c.want)
		}
	}
}

func TestRightsOnTopics(t *testing.T) {
	co := barred(t, nil)
	have := can(rights.Alter).but("no", "no.1")
	for name, c := range map[string]struct {
		req    kmsg.Request
		rest   kmsg.Request
		denied []string
	}{
		"all allowed": {
			&protocol.StartMirrorTopicsRequest{MirrorName: "m", Topics: []string{"a", "b"}},
			&protocol.StartMirrorTopicsRequest{MirrorName: "m", Topics: []string{"a", "b"}},
			nil,
		},
		"one denied": {
			&protocol.StartMirrorTopicsRequest{MirrorName: "m", Topics: []string{"a", "no"}, AllowTruncate: true},
			&protocol.StartMirrorTopicsRequest{MirrorName: "m", Topics: []string{"a"}, AllowTruncate: true},
			[]string{"no"},
		},
		"twice": {
			&protocol.StopMirrorTopicsRequest{MirrorName: "m", Topics: []string{"a", "no", "a", "no"}},
			&protocol.StopMirrorTopicsRequest{MirrorName: "m", Topics: []string{"a"}},
			[]string{"no"},
		},
		"none left": {&protocol.StopMirrorTopicsRequest{MirrorName: "m", Topics: []string{"no"}}, nil, []string{"no"}},
		"pause":     {&protocol.PauseMirrorTopicsRequest{Topics: []string{"a", "no"}}, &protocol.PauseMirrorTopicsRequest{Topics: []string{"a"}}, []string{"no"}},
		"resume":    {&protocol.ResumeMirrorTopicsRequest{Topics: []string{"no", "a"}}, &protocol.ResumeMirrorTopicsRequest{Topics: []string{"a"}}, []string{"no"}},
		"recover":   {&protocol.RecoverMirrorTopicsRequest{Topics: []string{"no", "a"}}, &protocol.RecoverMirrorTopicsRequest{Topics: []string{"a"}}, []string{"no"}},
		"fence":     {&protocol.FenceTopicWritesRequest{Topics: []string{"no", "a"}, LeaseMs: 5}, &protocol.FenceTopicWritesRequest{Topics: []string{"a"}, LeaseMs: 5}, []string{"no"}},
		"list":      {&protocol.ListClusterMirrorsRequest{}, &protocol.ListClusterMirrorsRequest{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			rest, denied, err := co.permitted(t.Context(), have, "", c.req)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, d := range denied {
				if d.Err.Code != 29 {
					t.Errorf("%s: %v", d.Name, d.Err)
				}
				names = append(names, d.Name)
			}
			if !slices.Equal(names, c.denied) {
				t.Errorf("denied %q, want %q", names, c.denied)
			}
			if c.rest == nil || rest == nil {
				if rest != c.rest {
					t.Errorf("rest %+v, want %+v", rest, c.rest)
				}
				return
			}
			if got, want := rest.AppendTo(nil), c.rest.AppendTo(nil); !slices.Equal(got, want) {
				t.Errorf("rest %+v, want %+v", rest, c.rest)
			}
		})
	}
}

// A question that is not answered is no verdict, and nothing is done either.
func TestNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code int16
	}{
		"connection": {errors.New("broken"), kerr.CoordinatorNotAvailable.Code},
		"controller": {kerr.NotController, kerr.NotController.Code},
	} {
		t.Run(name, func(t *testing.T) {
			co := barred(t, mute{c.err})
			if code := codeIn(co.admit(t.Context(), "me", &protocol.StopMirrorTopicsRequest{Topics: []string{"t"}})); code != c.code {
				t.Errorf("code %d, want %d", code, c.code)
			}
			if _, err := co.AuthorizeConfigs(t.Context(), mute{c.err}, "me", true); codeOf(err) != c.code {
				t.Errorf("configs: %v", err)
			}
		})
	}
}

type mute struct{ err error }

func (m mute) Request(context.Context, kmsg.Request) (kmsg.Response, error) { return nil, m.err }

// A pattern speaks for every topic that it matches, also for those to come.
func TestPatternsOfDeniedTopics(t *testing.T) {
	r := &protocol.StartMirrorTopicsRequest{Topics: []string{"x"}, IncludePatterns: []string{"n.*", "orders-.*", "["}}
	rights, ok := rightsOnTopics(r)
	if !ok || !rights.open {
		t.Fatal("patterns mean no more than the names")
	}
	if s := rights.start; s == nil || !slices.Equal(s.topics, r.Topics) || !slices.Equal(s.include, r.IncludePatterns) {
		t.Errorf("what is started is %+v", s)
	}
	rest := rights.without([]string{"news", "orders-1", "x"}, []string{"no"}).(*protocol.StartMirrorTopicsRequest)
	if want := []string{"orders-.*"}; !slices.Equal(rest.IncludePatterns, want) {
		t.Errorf("patterns %q, want %q", rest.IncludePatterns, want)
	}
	if want := []string{"news", "orders-1", "x"}; !slices.Equal(rest.Topics, want) {
		t.Errorf("topics %q, want %q", rest.Topics, want)
	}
	for text, want := range map[string]bool{"orders": false, "orders_1-a": false, "a.b": true, "a.*": true, "a|b": true} {
		if patterned([]string{text}) != want {
			t.Errorf("patterned(%q) is %t", text, !want)
		}
	}
}

// A stop by patterns stops also what was excluded before; not what the caller may not stop.
func TestAStopByPatternsStopsNothingDenied(t *testing.T) {
	r := newRig(t)
	r.put(record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "source", Configs: config.Properties{
		"bootstrap.servers": "east:9092", config.TopicsIncludeKey: ".*", config.TopicsExcludeKey: "__.*,no.*",
	}}})
	for _, n := range []string{"a1", "a2", "b", "no", "no2"} {
		r.mirrorTopic(n, Mirroring, Mirroring)
	}
	who := can(rights.Alter).but("no", "a2")
	r.deps.Caller = func(context.Context) (Caller, bool) { return who, true }
	req := protocol.NewStopMirrorTopicsRequest()
	req.MirrorName, req.Topics, req.Patterns = "m", []string{"b", "b"}, []string{"a.*", "x.*"}
	for _, dry := range []bool{true, false} {
		req.ValidateOnly = dry
		resp := r.admit(t.Context(), "somebody", &req).(*protocol.StopMirrorTopicsResponse)
		var got []string
		for _, topic := range resp.Topics {
			got = append(got, fmt.Sprint(topic.Name, " ", topic.ErrorCode))
		}
		if want := []string{"a1 0", "a2 29", "b 0", "no 29", "no2 0"}; resp.ErrorCode != 0 || !slices.Equal(got, want) {
			t.Errorf("validateOnly %v: %d, %q, want %q", dry, resp.ErrorCode, got, want)
		}
	}
	for n, want := range map[string]State{"a1": Stopped, "a2": Mirroring, "b": Stopped, "no": Mirroring, "no2": Stopped} {
		if got := r.topicT(n).Desired; got != want {
			t.Errorf("%s is wanted %s, want %s", n, got, want)
		}
	}
	m, _ := r.view.Mirror("m")
	if got := m.Configs[config.TopicsExcludeKey]; strings.Contains(got, "a.*") || !strings.Contains(got, "a1") {
		t.Errorf("excluded %s", got)
	}
}

func TestDeniedTopicsAreNamed(t *testing.T) {
	resp := topicsAnswer(&protocol.StopMirrorTopicsRequest{}, []TopicResult{{Name: "a"}, {Name: "z"}}, nil)
	withDenied(resp, []TopicResult{{Name: "m", Err: refuse(29, "no")}})
	topics := *topicResults(resp)
	if len(topics) != 3 || topics[1].Name != "m" || topics[1].ErrorCode != 29 || topics[2].Name != "z" {
		t.Errorf("%+v", topics)
	}
}

func TestAuthorizedOperations(t *testing.T) {
	resp := &protocol.DescribeClusterMirrorsResponse{Mirrors: make([]protocol.DescribedMirror, 2)}
	authorizedOperations(resp, 1<<rights.Alter|1<<rights.Describe|1<<rights.ClusterAction)
	want := int32(1<<rights.Alter | 1<<rights.Describe | 1<<rights.Delete)
	for _, m := range resp.Mirrors {
		if m.AuthorizedOperations != want {
			t.Errorf("got %b, want %b", m.AuthorizedOperations, want)
		}
	}
}

func TestAuthorizeConfigs(t *testing.T) {
	peer := peerClientID + "10002"
	for name, c := range map[string]struct {
		have     allowed
		clientID string
		alter    bool
		as       string
		ok       bool
	}{
		"describe":              {can(rights.DescribeConfigs), "me", false, "me", true},
		"describe without":      {can(rights.Alter, rights.AlterConfigs), "me", false, "", false},
		"alter":                 {can(rights.AlterConfigs), "me", true, "me", true},
		"alter without":         {can(rights.Alter, rights.DescribeConfigs), "me", true, "", false},
		"a sidecar":             {can(rights.ClusterAction, rights.Describe), peer, true, peer, true},
		"somebody as a sidecar": {can(rights.Describe), peer, true, "", false},
		"allowed as a sidecar":  {can(rights.Describe, rights.AlterConfigs), peer, true, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			as, err := barred(t, nil).AuthorizeConfigs(t.Context(), c.have, c.clientID, c.alter)
			if (err == nil) != c.ok || as != c.as {
				t.Fatalf("as %q, %v", as, err)
			}
			if err != nil {
				if code, _ := protocol.CodeOf(err); code != protocol.ClusterMirrorAuthorizationFailed {
					t.Errorf("code %d", code)
				}
			}
		})
	}
}

func TestFindCoordinator(t *testing.T) {
	co := barred(t, nil)
	co.view.apply([]record{{kind: kindMirror, mirror: "m", value: Mirror{Name: "m"}}}, nil)
	for key, want := range map[string]int16{
		"m": 0, "m:" + ids.UUID{1}.String() + ":3": 0, "other": protocol.UnknownClusterMirror, "": protocol.UnknownClusterMirror,
	} {
		home, err := co.FindCoordinator(key)
		if code := codeOf(err); code != want || err == nil && home != 1 {
			t.Errorf("%q: broker %d, %v", key, home, err)
		}
	}
}

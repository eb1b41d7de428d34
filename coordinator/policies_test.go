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
	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/builtin"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// policies gives the rig's mirror these properties, and its coordinator these policies beside the
// built-in one.
func (r *rig) policies(p config.Properties, own map[string]plugins.Policy) {
	r.t.Helper()
	all := policy.InProcess{policy.BuiltIn: builtin.Policy("test")}
	for name, one := range own {
		all[name] = one
	}
	r.deps.Policies = policy.NewEngine(all, slog.New(slog.NewTextHandler(r.t.Output(), nil)))
	p["bootstrap.servers"] = "east:9092"
	r.put(record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "source", Configs: p}})
}

// naming refuses topics that do not begin as they should.
func naming(prefix string) plugins.Policy {
	return plugins.Policy{Name: "naming", Topics: plugins.TopicFunc(func(_ context.Context, _ *policyv1.Round, t *policyv1.TopicFacts) (*policyv1.Decision, error) {
		if strings.HasPrefix(t.GetName(), prefix) {
			return plugins.Accept("prefix", "it is named as it should be"), nil
		}
		return plugins.Refuse("prefix", "names begin with "+prefix), nil
	})}
}

func (r *rig) sourceTopics(names ...string) {
	r.src.set(func(s *fakeSource) {
		for _, n := range names {
			s.topics[n] = SourceTopic{Name: n, ID: idOf(n), Partitions: 2}
		}
	})
}

func (r *rig) explainOne(kind, name string) protocol.MirrorExplanation {
	r.t.Helper()
	req := protocol.NewExplainClusterMirrorRequest()
	req.Kind, req.Name = kind, name
	a := call[*protocol.ExplainClusterMirrorResponse](r.t, &side{Coordinator: r.Coordinator}, &req)
	if a.ErrorCode != 0 || len(a.Explanations) != 1 {
		r.t.Fatalf("%s %s: %s, %+v", kind, name, message(a.ErrorCode, a.ErrorMessage), a.Explanations)
	}
	return a.Explanations[0]
}

// TestDiscoveryByPolicies: every policy must accept a topic, the first refusal is what everybody is
// told, and no policy widens what the mirror may have.
func TestDiscoveryByPolicies(t *testing.T) {
	r := newRig(t)
	r.policies(config.Properties{config.TopicsIncludeKey: ".*", config.TopicsExcludeKey: "team-secret", "mirror.policy.topics": "built-in,naming"},
		map[string]plugins.Policy{"naming": naming("team-")})
	r.mirrorTopic("team-was", Stopped, Stopped)
	r.mirrorTopic("odd", Mirroring, Mirroring)
	r.sourceTopics("team-a", "other", "team-secret", "__consumer_offsets")
	if _, err := r.refresh(); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.view.Topic("m", "team-a"); !ok {
		t.Error("what both accept is not mirrored")
	}
	for name, why := range map[string]string{
		"other": "refused by policy naming: names begin with team-", "team-secret": "excluded by the pattern",
		"team-was": "stopped here", "__consumer_offsets": "internal",
	} {
		if got := r.look.skipped[name]; !strings.Contains(got, why) {
			t.Errorf("%s is left out since %q, want %q", name, got, why)
		}
		if topic, ok := r.view.Topic("m", name); ok && topic.Desired != Stopped {
			t.Errorf("%s is mirrored", name)
		}
	}
	// What is mirrored stays so, and whoever asks is told.
	e := r.explainOne("topic", "odd")
	if !e.Mirrored || len(e.Steps) != 2 || e.Steps[1].Passed || e.Steps[1].Plugin != "naming" || e.Steps[1].SinceMs <= 0 || !strings.Contains(e.Steps[1].Reason, "stays so until it is stopped") {
		t.Errorf("explained: %+v", e)
	}
	if _, skipped := r.look.skipped["odd"]; skipped {
		t.Error("what is mirrored is left out")
	}
	if e := r.explainOne("topic", "other"); e.Mirrored || len(e.Steps) != 1 || e.Steps[0].Plugin != "naming" || e.Steps[0].Reason != "names begin with team-" {
		t.Errorf("explained: %+v", e)
	}
}

// TestOwnTopicPolicyAlone: without the built-in one, patterns pick nothing.
func TestOwnTopicPolicyAlone(t *testing.T) {
	r := newRig(t)
	r.policies(config.Properties{"mirror.policy.topics": "naming"}, map[string]plugins.Policy{"naming": naming("team-")})
	r.sourceTopics("team-a", "other")
	if _, err := r.refresh(); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.view.Topic("m", "team-a"); !ok || r.look.skipped["other"] == "" {
		t.Errorf("mirrored %t, skipped %v", ok, r.look.skipped)
	}
}

// TestManyAreLeftOut: what is logged and kept of topics that are left out is bounded, and a mirror
// whose topics no policy selects leaves nothing out.
func TestManyAreLeftOut(t *testing.T) {
	r := newRig(t)
	var logged strings.Builder
	r.ref.log = slog.New(slog.NewTextHandler(&logged, nil))
	r.policies(config.Properties{"mirror.policy.topics": "naming"}, map[string]plugins.Policy{"naming": naming("team-")})
	for i := range maxLeftOut + 5 {
		r.sourceTopics(fmt.Sprintf("t%d", i))
	}
	for range 2 {
		if _, err := r.refresh(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.look.skipped); n != maxLeftOut {
		t.Errorf("%d are kept", n)
	}
	if n := strings.Count(logged.String(), "topic is not mirrored"); n != maxLeftOutLn || strings.Count(logged.String(), "topics=9985") != 1 {
		t.Errorf("%d lines", n)
	}
	r.policies(config.Properties{"mirror.policy.topics": ""}, nil)
	if _, err := r.refresh(); err != nil || r.look.src != nil {
		t.Errorf("a source is connected to for nothing: %v", err)
	}
	r.mirrorTopic("running", Mirroring, Mirroring)
	if _, err := r.refresh(); err != nil || len(r.look.skipped) > 0 {
		t.Errorf("left out %d, %v", len(r.look.skipped), err)
	}
}

// TestStartAsksPolicies: patterns do not stand against what an operator names, a policy of somebody
// else does.
func TestStartAsksPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		policies, topic, refused string
	}{
		"patterns":  {"built-in", "other", ""},
		"naming":    {"built-in,naming", "other", "refused by policy naming: names begin with team-"},
		"named so":  {"built-in,naming", "team-x", ""},
		"nobody":    {"", "other", ""},
		"undecided": {"crashed", "other", "policy crashed has not decided on it yet"},
		// Whoever stands before it in the list does not keep it from being asked.
		"built-in down": {"built-in,naming", "down", "refused by policy naming: names begin with team-"},
		"both down":     {"built-in,crashed", "down", "policy crashed has not decided on it yet"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			own := map[string]plugins.Policy{"naming": naming("team-")}
			if c.topic == "down" {
				own[policy.BuiltIn] = plugins.Policy{Name: policy.BuiltIn, Topics: plugins.TopicFunc(func(context.Context, *policyv1.Round, *policyv1.TopicFacts) (*policyv1.Decision, error) {
					return nil, errors.New("it crashed")
				})}
			}
			r.policies(config.Properties{"mirror.policy.topics": c.policies}, own)
			r.sourceTopics(c.topic)
			for _, dry := range []bool{true, false} {
				results, err := r.startTopics(t.Context(), startRequest{mirror: "m", topics: []string{c.topic}, validateOnly: dry})
				if err != nil || len(results) != 1 {
					t.Fatalf("%+v, %v", results, err)
				}
				_, started := r.view.Topic("m", c.topic)
				if c.refused != "" {
					if e := results[0].Err; e == nil || e.Code != kerr.PolicyViolation.Code || !strings.Contains(e.Message, c.refused) || started {
						t.Errorf("dry %t: %+v, started %t", dry, results[0], started)
					}
					continue
				}
				if results[0].Err != nil || started == dry {
					t.Errorf("dry %t: %+v, started %t", dry, results[0], started)
				}
				if dry && !strings.Contains(results[0].Note, "would be created with 2 partitions") {
					t.Errorf("a dry run says %q", results[0].Note)
				}
				if _, known := r.deps.Policies.Ledger().Get("m", policy.Topics, c.topic); known && dry {
					t.Error("a dry run is remembered")
				}
			}
		})
	}
}

// TestConfigLists: what is always copied, what is copied where it is set, and what never is; a policy
// may set another value than the source's, and none brings tiered storage here.
func TestConfigLists(t *testing.T) {
	r := newRig(t)
	ten := "10"
	r.policies(config.Properties{
		config.PropertiesAlwaysKey: "compression.type", config.PropertiesIncludeKey: "retention.*,cleanup.policy", config.PropertiesExcludeKey: "retention.bytes",
		"mirror.policy.configs": "built-in,mine",
	}, map[string]plugins.Policy{"mine": {Name: "mine", Configs: plugins.ConfigFunc(func(_ context.Context, _ *policyv1.Round, _ string, c *policyv1.ConfigFacts) (*policyv1.Decision, *string, error) {
		if c.GetName() == "retention.ms" {
			return plugins.Accept("short", "kept shorter here"), &ten, nil
		}
		return plugins.Accept("rest", "as it is"), nil, nil
	})}})
	c := r.mirrorTopic("c", Mirroring, Mirroring)
	r.src.set(func(s *fakeSource) {
		s.topics["c"] = SourceTopic{
			ID: c.SourceTopicID, Partitions: 1,
			Configs:  map[string]string{"retention.ms": "5000", "retention.bytes": "7", "segment.ms": "8", "cleanup.policy": "compact"},
			Defaults: map[string]string{"compression.type": "producer", "flush.ms": "9"},
		}
	})
	if _, err := r.refresh(); err != nil {
		t.Fatal(err)
	}
	have := r.img.TopicConfig("c")
	if want := map[string]string{"retention.ms": "10", "cleanup.policy": "compact", "compression.type": "producer"}; len(have) != len(want) || have["retention.ms"] != "10" || have["cleanup.policy"] != "compact" || have["compression.type"] != "producer" {
		t.Errorf("configs %v, want %v", have, want)
	}
	for item, want := range map[string]struct {
		mirrored bool
		rule     string
	}{
		"c/retention.ms":     {true, "short"},
		"c/retention.bytes":  {false, config.PropertiesExcludeKey},
		"c/segment.ms":       {false, config.PropertiesIncludeKey},
		"c/compression.type": {true, "rest"},
		"c/flush.ms":         {false, "source"},
		"c/nonsense":         {false, "source"},
		"nowhere/flush.ms":   {false, config.TopicsIncludeKey},
	} {
		e := r.explainOne("config", item)
		if e.Mirrored != want.mirrored || e.Steps[0].Rule != want.rule {
			t.Errorf("%s: %+v, want %+v", item, e, want)
		}
		if e.Mirrored && (e.Steps[0].LastAppliedMs <= 0 || e.Steps[0].SinceMs <= 0) {
			t.Errorf("%s: %+v says neither since when nor when it was applied", item, e.Steps[0])
		}
	}
}

// TestNoPolicyWidensWhatIsCopied: a policy that accepts everything.
func TestNoPolicyWidensWhatIsCopied(t *testing.T) {
	r := newRig(t)
	r.policies(config.Properties{"mirror.policy.configs": "all"}, map[string]plugins.Policy{"all": {Name: "all", Configs: plugins.ConfigFunc(func(context.Context, *policyv1.Round, string, *policyv1.ConfigFacts) (*policyv1.Decision, *string, error) {
		return plugins.Accept("all", "everything"), nil, nil
	})}})
	c := r.mirrorTopic("c", Mirroring, Mirroring)
	r.configs["c"] = map[string]string{configMaxMessageBytes: "0"}
	r.topic("x", idOf("x"), []int32{1}) // shows the configs
	r.src.set(func(s *fakeSource) {
		s.topics["c"] = SourceTopic{ID: c.SourceTopicID, Partitions: 1, Configs: map[string]string{configRemoteStorage: "true", "local.retention.ms": "5", configMaxMessageBytes: "77", "some.day": "x"}}
	})
	if _, err := r.refresh(); err != nil {
		t.Fatal(err)
	}
	if have := r.img.TopicConfig("c"); len(have) != 1 || have[configMaxMessageBytes] != "0" {
		t.Errorf("configs %v", have)
	}
	wanted := r.topicT("c").Wanted
	if v := wanted[configMaxMessageBytes]; v == nil || *v != "77" || wanted[configRemoteStorage] != nil {
		t.Errorf("wanted %v", wanted)
	}
	for item, words := range map[string]string{"c/local.retention.ms": "whatever a policy says", "c/some.day": "does not know it", "c/" + configMaxMessageBytes: "when it is stopped"} {
		e := r.explainOne("config", item)
		if e.Mirrored != (item == "c/"+configMaxMessageBytes) || !strings.Contains(e.Steps[len(e.Steps)-1].Reason, words) {
			t.Errorf("%s: %+v, want %q", item, e, words)
		}
	}
}

// TestOneRefusedConfigKeepsNoOther: this cluster refuses one of several.
func TestOneRefusedConfigKeepsNoOther(t *testing.T) {
	r := newRig(t)
	c := r.mirrorTopic("c", Mirroring, Mirroring)
	r.policy = []string{"segment.ms"}
	r.src.set(func(s *fakeSource) {
		s.topics["c"] = SourceTopic{ID: c.SourceTopicID, Partitions: 1, Configs: map[string]string{"retention.ms": "5", "segment.ms": "6", "cleanup.policy": "compact"}}
	})
	if _, err := r.refresh(); err == nil || !strings.Contains(err.Error(), "POLICY_VIOLATION") {
		t.Errorf("nobody is told: %v", err)
	}
	if have := r.img.TopicConfig("c"); have["retention.ms"] != "5" || have["cleanup.policy"] != "compact" || len(have) != 2 {
		t.Errorf("configs %v", have)
	}
	if e := r.explainOne("config", "c/segment.ms"); e.Mirrored || e.Steps[0].LastError == nil {
		t.Errorf("explained: %+v", e)
	}
	d := protocol.NewDescribeClusterMirrorsRequest()
	r.ref.mirrors["m"] = &refreshed{lastRun: time.UnixMilli(5)}
	a := call[*protocol.DescribeClusterMirrorsResponse](t, &side{Coordinator: r.Coordinator}, &d)
	i := slices.IndexFunc(a.Mirrors[0].Policies, func(p protocol.DescribedPolicy) bool { return p.Kind == "configs" })
	if i < 0 {
		t.Fatalf("described: %+v", a.Mirrors[0].Policies)
	}
	p := a.Mirrors[0].Policies[i]
	if p.Plugin != policy.BuiltIn || p.LastRunMs <= 0 || p.LastError == nil || len(p.Skipped) != 1 || p.Skipped[0].Name != "c/segment.ms" {
		t.Errorf("described: %+v", p)
	}
}

// TestUndecidedConfigs: a topic is not created before it is decided which configs it gets, and is as
// soon as it is.
func TestUndecidedConfigs(t *testing.T) {
	r := newRig(t)
	down := errors.New("it crashed")
	own := map[string]plugins.Policy{"mine": {Name: "mine", Configs: plugins.ConfigFunc(func(context.Context, *policyv1.Round, string, *policyv1.ConfigFacts) (*policyv1.Decision, *string, error) {
		return plugins.Accept("all", "everything"), nil, down
	})}}
	r.policies(config.Properties{"mirror.policy.configs": "mine"}, own)
	r.deps.Destination.defaults, r.deps.Destination.asked = map[string]string{configMinISR: "1", "default.replication.factor": "1"}, time.Now()
	r.src.set(func(s *fakeSource) {
		s.topics["c"] = SourceTopic{Name: "c", ID: idOf("c"), Partitions: 1, Configs: map[string]string{"retention.ms": "-1"}}
	})
	if _, err := r.startTopics(t.Context(), startRequest{mirror: "m", topics: []string{"c"}}); err != nil {
		t.Fatal(err)
	}
	m, _ := r.view.Mirror("m")
	if _, err := r.rec.step(t.Context(), m, r.topicT("c")); err == nil || !strings.Contains(err.Error(), "is not decided") || !strings.Contains(err.Error(), "it crashed") {
		t.Errorf("undecided: %v", err)
	}
	if n := r.asked(kmsg.NewPtrCreateTopicsRequest().Key()); n > 0 {
		t.Errorf("created %d times", n)
	}
	down = nil
	if _, err := r.rec.step(t.Context(), m, r.topicT("c")); err != nil {
		t.Fatal(err)
	}
	if have := r.img.TopicConfig("c"); have["retention.ms"] != "-1" {
		t.Errorf("created with %v", have)
	}
}

// TestHangingPolicyHoldsUpNothing: while a policy does not answer, partitions grow and what is gone
// at the source is noticed.
func TestHangingPolicyHoldsUpNothing(t *testing.T) {
	r := newRig(t)
	asked, answer := make(chan struct{}, 10), make(chan struct{})
	hangs := func(ctx context.Context) error {
		asked <- struct{}{}
		select {
		case <-answer:
		case <-ctx.Done():
		}
		return errors.New("no answer in time")
	}
	r.policies(config.Properties{config.TopicsIncludeKey: ".*", "mirror.policy.topics": "hangs", "mirror.policy.configs": "hangs"}, map[string]plugins.Policy{"hangs": {
		Name: "hangs",
		Topics: plugins.TopicFunc(func(ctx context.Context, _ *policyv1.Round, _ *policyv1.TopicFacts) (*policyv1.Decision, error) {
			return nil, hangs(ctx)
		}),
		Configs: plugins.ConfigFunc(func(ctx context.Context, _ *policyv1.Round, _ string, _ *policyv1.ConfigFacts) (*policyv1.Decision, *string, error) {
			return nil, nil, hangs(ctx)
		}),
	}})
	grows := r.mirrorTopic("grows", Mirroring, Mirroring)
	gone := r.mirrorTopic("gone", Mirroring, Mirroring)
	r.src.set(func(s *fakeSource) {
		s.topics["grows"] = SourceTopic{ID: grows.SourceTopicID, Partitions: 3, Configs: map[string]string{"retention.ms": "5"}}
		delete(s.topics, "gone")
	})
	r.look.suspect = map[string]string{"gone": faultOf(Mirror{Name: "m"}, gone, SourceTopic{}, false, 1)} // seen once
	done := make(chan error, 1)
	go func() {
		_, err := r.refresh()
		done <- err
	}()
	select {
	case <-asked:
	case <-time.After(30 * time.Second):
		t.Fatal("the policy is not asked")
	}
	if n := len(r.img.TopicPartitions(grows.TopicID)); n != 3 {
		t.Errorf("%d partitions while a policy hangs", n)
	}
	if s := r.stateOf(gone, 0); s.State != Failed {
		t.Errorf("%s while a policy hangs", s.State)
	}
	close(answer)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if r.look.undecided != 1 {
		t.Errorf("looks with something undecided: %d", r.look.undecided)
	}
}

// TestPoliciesAreCheckedAtAlter: what is not there, or decides on something else, is not taken.
func TestPoliciesAreCheckedAtAlter(t *testing.T) {
	r := newRig(t)
	r.policies(config.Properties{}, map[string]plugins.Policy{"naming": naming("team-")})
	alter := func(key, value string) error {
		return r.AlterConfigs(t.Context(), "test", "m", []ConfigOp{{Name: key, Op: opSet, Value: &value}}, false)
	}
	if err := alter("mirror.policy.topics", "built-in,naming"); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ key, value, want string }{
		{"mirror.policy.topics", "nobody", `there is no plugin "nobody"`},
		{"mirror.policy.groups", "naming", "does not decide on groups"},
		{"mirror.policy.groups", "a/b", "no name of a plugin"},
	} {
		if err := alter(c.key, c.value); err == nil || !strings.Contains(err.Error(), c.want) || asError(err, 0).Code != kerr.InvalidConfig.Code {
			t.Errorf("%s=%s: %v, want %q", c.key, c.value, err, c.want)
		}
	}
	if m, _ := r.view.Mirror("m"); m.Configs["mirror.policy.topics"] != "built-in,naming" || m.Configs["mirror.policy.groups"] != "" {
		t.Errorf("configured is %v", m.Configs)
	}
	if err := r.createMirror(t.Context(), "n", config.Properties{"bootstrap.servers": "east:9092", "mirror.policy.acls": "nobody"}, true); err == nil || !strings.Contains(err.Error(), `there is no plugin "nobody"`) {
		t.Errorf("create: %v", err)
	}
}

// TestDryRunOfAPattern: what a pattern matches is said to be created, refused or left out.
func TestDryRunOfAPattern(t *testing.T) {
	r := newRig(t)
	r.policies(config.Properties{"mirror.policy.topics": "built-in,naming", config.TopicsExcludeKey: ".*tmp"}, map[string]plugins.Policy{"naming": naming("team-")})
	r.sourceTopics("team-a", "team-tmp", "stray", "__transaction_state")
	results, err := r.startTopics(t.Context(), startRequest{mirror: "m", include: []string{".*"}, validateOnly: true})
	if err != nil || len(results) != 4 {
		t.Fatalf("%+v, %v", results, err)
	}
	for i, want := range []struct {
		name, note, refused string
		skipped             bool
	}{
		{"__transaction_state", "internal to Kafka", "", true},
		{"stray", "", "names begin with team-", false},
		{"team-a", "would be created with 2 partitions", "", false},
		{"team-tmp", `excluded by the pattern ".*tmp"`, "", true},
	} {
		got := results[i]
		if got.Name != want.name || got.Skipped != want.skipped || !strings.Contains(got.Note, want.note) || (got.Err != nil) != (want.refused != "") || got.Err != nil && !strings.Contains(got.Err.Message, want.refused) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if len(r.view.Topics("m")) > 0 {
		t.Error("a dry run has started something")
	}
}

// TestRightsAreAskedWithoutPolicies: to know whose rights a start by patterns needs takes the names of
// topics, and nobody's opinion of them, wherever the mirror is coordinated.
func TestRightsAreAskedWithoutPolicies(t *testing.T) {
	r := newRig(t)
	asked := 0
	r.policies(config.Properties{"mirror.policy.topics": "mine"}, map[string]plugins.Policy{"mine": {
		Name: "mine", Topics: plugins.TopicFunc(func(context.Context, *policyv1.Round, *policyv1.TopicFacts) (*policyv1.Decision, error) {
			asked++
			return plugins.Accept("all", "everything"), nil
		}),
	}})
	r.sourceTopics("a", "b", "__consumer_offsets")
	req := protocol.NewStartMirrorTopicsRequest()
	req.MirrorName, req.IncludePatterns = "m", []string{".*"}
	for _, coordinator := range []int32{1, 2} { // 2 answers nothing
		r.mu.Lock()
		p := *r.parts[0]
		p.Leader = coordinator
		r.parts[0] = &p
		r.showLocked()
		r.mu.Unlock()
		rest, denied, err := r.permitted(t.Context(), can().but("b"), "", &req)
		if err != nil || len(denied) != 1 || denied[0].Name != "b" || asked > 0 {
			t.Fatalf("coordinated by %d: denied %+v, %v; policies were asked about %d topics", coordinator, denied, err, asked)
		}
		if left, ok := rest.(*protocol.StartMirrorTopicsRequest); !ok || !slices.Equal(left.Topics, []string{"a"}) || len(left.IncludePatterns) > 0 {
			t.Errorf("left is %+v", rest)
		}
	}
	r.src.set(func(s *fakeSource) {
		if s.described > 0 || s.open > 0 {
			t.Errorf("%d topics were described, %d sources are open", s.described, s.open)
		}
	})
}

// TestLedgerOfWhoCoordinates: a mirror that another sidecar coordinates now is forgotten, and its
// ledger made anew when it comes back.
func TestLedgerOfWhoCoordinates(t *testing.T) {
	r := newRig(t)
	r.policies(config.Properties{config.TopicsIncludeKey: "a", "mirror.policy.topics": "built-in,naming"}, map[string]plugins.Policy{"naming": naming("team-")})
	r.sourceTopics("a")
	known := func() bool { _, ok := r.deps.Policies.Ledger().Get("m", policy.Topics, "a"); return ok }
	look := func() {
		t.Helper()
		var next time.Duration
		for name, m := range r.ref.dueNow(&next) {
			if _, err := r.ref.refresh(t.Context(), name, m); err != nil {
				t.Fatal(err)
			}
			m.running = false
		}
	}
	lead := func(broker int32) {
		r.mu.Lock()
		defer r.mu.Unlock()
		p := *r.parts[0]
		p.Leader, p.LeaderEpoch = broker, p.LeaderEpoch+1
		r.parts[0] = &p
		r.showLocked()
	}
	t.Cleanup(func() {
		for _, m := range r.ref.mirrors {
			m.close()
		}
	})
	look()
	if !known() {
		t.Fatal("nothing is known of what was decided")
	}
	lead(2)
	look()
	if known() {
		t.Error("what another sidecar decides on now is still known")
	}
	lead(1)
	look()
	if !known() {
		t.Error("what is decided here again is not known")
	}
}

func TestConfigPreview(t *testing.T) {
	for want, c := range map[string]struct {
		here map[string]string
		copies
	}{
		"; no config would change":                                  {map[string]string{"a": "1"}, copies{values: map[string]string{"a": "1"}}},
		"; configs: a=2 (now 1), b=3; not known to this cluster: z": {map[string]string{"a": "1", "c": "4"}, copies{values: map[string]string{"a": "2", "b": "3"}, unknown: []string{"z"}}},
	} {
		if got := configPreview(c.here, c.copies); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestConfigFacts(t *testing.T) {
	two := "2"
	topic := sourced{
		Topic{Name: "t", Wanted: map[string]*string{configMinISR: &two, configMaxMessageBytes: nil}},
		SourceTopic{Configs: map[string]string{configMinISR: "3", configMaxMessageBytes: "9"}, Defaults: map[string]string{"flush.ms": "1", configMinISR: "1"}},
	}
	f := configFacts(topic, map[string]string{configMinISR: "5", configMaxMessageBytes: "0"}, map[string]string{configMaxMessageBytes: "1048588"}, true)
	got := fmt.Sprint(f.GetConfigs())
	if len(f.GetConfigs()) != 3 || f.GetConfigs()[0].GetName() != "flush.ms" || f.GetConfigs()[0].GetSourceSet() ||
		f.GetConfigs()[1].ValueHere != nil || f.GetConfigs()[1].GetEffectiveHere() != "1048588" ||
		f.GetConfigs()[2].GetValueHere() != "2" || f.GetConfigs()[2].GetSourceValue() != "3" {
		t.Error(got)
	}
}

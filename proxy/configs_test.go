package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/readonly"
)

// fakeConfigs has the mirror dr, whose topic m is locked and has min.insync.replicas=2 of its
// own, its topic s, which is stopped, and its topic w, which can be written to although
// what it had of its own is remembered.
type fakeConfigs struct {
	denied error

	mu  sync.Mutex // guards the following
	got []string   // what was altered
}

func (f *fakeConfigs) altered() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

func (f *fakeConfigs) Authorize(ctx context.Context, who Caller, _ bool) (string, error) {
	if _, err := who.Request(ctx, kmsg.NewPtrDescribeClusterRequest()); err != nil {
		return "", err
	}
	return "as-" + who.ClientID(), f.denied
}

func (f *fakeConfigs) known(mirror string) error {
	if mirror != "dr" {
		return protocol.Errorf(protocol.UnknownClusterMirror, "there is no mirror %q", mirror)
	}
	return nil
}

func (f *fakeConfigs) Describe(_ context.Context, mirror string, keys []string) ([]ConfigEntry, error) {
	if err := f.known(mirror); err != nil {
		return nil, err
	}
	value := "east:9092"
	all := []ConfigEntry{
		{Name: "bootstrap.servers", Value: &value},
		{Name: "sasl.jaas.config", Value: &value, Sensitive: true},
		{Name: "request.timeout.ms", Value: &value, Default: true, Doc: "how long"},
	}
	return slices.DeleteFunc(all, func(e ConfigEntry) bool { return keys != nil && !slices.Contains(keys, e.Name) }), nil
}

func (f *fakeConfigs) Alter(_ context.Context, clientID, mirror string, ops []ConfigOp, validateOnly bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, op := range ops {
		f.got = append(f.got, fmt.Sprintf("%s %s %s %d %s %t", clientID, mirror, op.Name, op.Op, deref(op.Value), validateOnly))
	}
	return f.known(mirror)
}

func (f *fakeConfigs) TopicMirror(topic string) (string, bool) {
	v, ok := map[string]string{"m": "dr", "s": "dr.stopped", "w": "dr"}[topic]
	return v, ok
}

func (f *fakeConfigs) Wanted(topic string) (map[string]*string, bool) {
	two := "2"
	return map[string]*string{"min.insync.replicas": &two, "max.message.bytes": nil, "unclean.leader.election.enable": nil}, topic == "m" || topic == "w"
}

func deref(s *string) string {
	if s == nil {
		return "<nil>"
	}
	return *s
}

// configBroker describes every topic as locked, in an order of its own.
func configBroker(t *testing.T) *fakeBroker {
	return startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind()
		switch r := req.(type) {
		case *kmsg.DescribeConfigsRequest:
			out := resp.(*kmsg.DescribeConfigsResponse)
			for _, res := range slices.Backward(r.Resources) {
				if res.ResourceType == readonly.MirrorResource {
					t.Error("the broker was asked for a mirror")
				}
				out.Resources = append(out.Resources, describedByBroker(res, r.IncludeSynonyms))
			}
		case *kmsg.IncrementalAlterConfigsRequest:
			out := resp.(*kmsg.IncrementalAlterConfigsResponse)
			for _, res := range slices.Backward(r.Resources) {
				if res.ResourceType == readonly.MirrorResource {
					t.Error("the broker was asked for a mirror")
				}
				out.Resources = append(out.Resources, kmsg.IncrementalAlterConfigsResponseResource{ResourceType: res.ResourceType, ResourceName: res.ResourceName})
			}
		}
		return resp
	}))
}

func describedByBroker(res kmsg.DescribeConfigsRequestResource, synonyms bool) kmsg.DescribeConfigsResponseResource {
	o := kmsg.NewDescribeConfigsResponseResource()
	o.ResourceType, o.ResourceName = res.ResourceType, res.ResourceName
	if res.ResourceName == "denied" {
		o.ErrorCode = errTopicAuthorization
		return o
	}
	add := func(name, value, server string, source kmsg.ConfigSource) {
		if len(res.ConfigNames) > 0 && !slices.Contains(res.ConfigNames, name) {
			return
		}
		e := kmsg.NewDescribeConfigsResponseResourceConfig()
		e.Name, e.Value, e.Source = name, &value, source
		if synonyms {
			s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			s.Name, s.Value, s.Source = name, &value, source
			e.ConfigSynonyms = append(e.ConfigSynonyms, s)
			if server != "" {
				s.Value, s.Source = &server, kmsg.ConfigSourceStaticBrokerConfig
				e.ConfigSynonyms = append(e.ConfigSynonyms, s)
			}
		}
		o.Configs = append(o.Configs, e)
	}
	add("min.insync.replicas", "4", "1", kmsg.ConfigSourceDynamicTopicConfig)
	add("max.message.bytes", "0", "2000000", kmsg.ConfigSourceDynamicTopicConfig)
	add("unclean.leader.election.enable", "false", "", kmsg.ConfigSourceDynamicTopicConfig)
	add("retention.ms", "77", "", kmsg.ConfigSourceDynamicTopicConfig)
	add("segment.ms", "88", "", kmsg.ConfigSourceDefaultConfig)
	return o
}

func shownConfigs(res kmsg.DescribeConfigsResponseResource, version int16) []string {
	var out []string
	for _, e := range res.Configs {
		s := fmt.Sprintf("%s=%s", e.Name, deref(e.Value))
		if e.ReadOnly {
			s += " ro"
		}
		if e.IsSensitive {
			s += " secret"
		}
		if version == 0 {
			if e.IsDefault {
				s += " default"
			}
		} else {
			s += fmt.Sprintf(" %d", e.Source)
		}
		for _, syn := range e.ConfigSynonyms {
			s += fmt.Sprintf(" (%s %d)", deref(syn.Value), syn.Source)
		}
		out = append(out, s)
	}
	return out
}

func TestDescribeConfigs(t *testing.T) {
	topic, mirror := kmsg.ConfigResourceTypeTopic, readonly.MirrorResource
	type ask struct {
		kind kmsg.ConfigResourceType
		name string
		keys []string
	}
	locked := []string{"min.insync.replicas=2 1", "max.message.bytes=2000000 4", "unclean.leader.election.enable=false 5", "retention.ms=77 1", "segment.ms=88 5", "mirror.name=dr ro 4"}
	plain := []string{"min.insync.replicas=4 1", "max.message.bytes=0 1", "unclean.leader.election.enable=false 1", "retention.ms=77 1", "segment.ms=88 5"}
	dr := []string{"bootstrap.servers=east:9092 64", "sasl.jaas.config=<nil> secret 64", "request.timeout.ms=east:9092 5"}
	for name, tc := range map[string]struct {
		ask      []ask
		synonyms bool
		want     [][]string
		codes    []int16
	}{
		"ordinary":       {[]ask{{topic, "o", nil}}, false, [][]string{plain}, nil},
		"mirror topic":   {[]ask{{topic, "m", nil}}, false, [][]string{locked}, nil},
		"stopped":        {[]ask{{topic, "s", nil}}, false, [][]string{append(slices.Clone(plain), "mirror.name=dr.stopped ro 4")}, nil},
		"writable":       {[]ask{{topic, "w", nil}}, false, [][]string{append(slices.Clone(plain), "mirror.name=dr ro 4")}, nil},
		"some keys":      {[]ask{{topic, "m", []string{"mirror.name", "max.message.bytes"}}}, false, [][]string{{"max.message.bytes=2000000 4", "mirror.name=dr ro 4"}}, nil},
		"only its name":  {[]ask{{topic, "m", []string{"mirror.name"}}}, false, [][]string{{"mirror.name=dr ro 4"}}, nil},
		"other keys":     {[]ask{{topic, "m", []string{"retention.ms"}}}, false, [][]string{{"retention.ms=77 1"}}, nil},
		"not allowed":    {[]ask{{topic, "denied", nil}, {topic, "m", nil}}, false, [][]string{nil, locked}, []int16{29, 0}},
		"mirror":         {[]ask{{mirror, "dr", nil}}, false, [][]string{dr}, nil},
		"key of mirror":  {[]ask{{mirror, "dr", []string{"request.timeout.ms"}}}, false, [][]string{dr[2:]}, nil},
		"no such mirror": {[]ask{{mirror, "other", nil}}, false, [][]string{nil}, []int16{12837}},
		"mixed": {
			[]ask{{mirror, "dr", nil}, {topic, "o", nil}, {topic, "m", nil}, {mirror, "other", nil}, {topic, "o", nil}},
			false,
			[][]string{dr, plain, locked, nil, plain},
			[]int16{0, 0, 0, 12837, 0},
		},
		"synonyms": {[]ask{{topic, "m", []string{"min.insync.replicas", "max.message.bytes", "unclean.leader.election.enable", "mirror.name"}}}, true, [][]string{{
			"min.insync.replicas=2 1 (2 1) (1 4)", "max.message.bytes=2000000 4 (2000000 4)", "unclean.leader.election.enable=false 5", "mirror.name=dr ro 4 (dr 4)",
		}}, nil},
	} {
		for version := int16(0); version <= 4; version++ {
			if tc.synonyms && version == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s v%d", name, version), func(t *testing.T) {
				b := configBroker(t)
				s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("w", topicID(3), 0))}
				s.deps.Configs = &fakeConfigs{}
				_, addr := s.start(t, b)
				req := kmsg.NewPtrDescribeConfigsRequest()
				req.Version, req.IncludeSynonyms, req.IncludeDocumentation = version, tc.synonyms, true
				for _, a := range tc.ask {
					req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: a.kind, ResourceName: a.name, ConfigNames: a.keys})
				}
				resp := dial(t, addr).ask(req).(*kmsg.DescribeConfigsResponse)
				if len(resp.Resources) != len(tc.ask) {
					t.Fatalf("%+v", resp)
				}
				for i, res := range resp.Resources {
					want := slices.Clone(tc.want[i])
					if version == 0 {
						for j := range want {
							fields := strings.Fields(want[j])
							source := fields[len(fields)-1]
							want[j] = strings.TrimSuffix(want[j], " "+source)
							if source == "5" {
								want[j] += " default"
							}
						}
					}
					code := int16(0)
					if tc.codes != nil {
						code = tc.codes[i]
					}
					if res.ResourceType != tc.ask[i].kind || res.ResourceName != tc.ask[i].name || res.ErrorCode != code {
						t.Errorf("resource %d is %d %s, error %d", i, res.ResourceType, res.ResourceName, res.ErrorCode)
					}
					// A broker's own answer is not touched, so that its default flag is not ours.
					got := shownConfigs(res, version)
					if version == 0 && name == "ordinary" {
						want[4] = strings.TrimSuffix(want[4], " default")
					}
					if !slices.Equal(got, want) {
						t.Errorf("%s: got\n%q, want\n%q", tc.ask[i].name, got, want)
					}
				}
			})
		}
	}
}

func TestDescribeConfigsIsDenied(t *testing.T) {
	s := setup{}
	s.deps.Configs = &fakeConfigs{denied: protocol.Errorf(protocol.ClusterMirrorAuthorizationFailed, "lacks DESCRIBE_CONFIGS")}
	_, addr := s.start(t, configBroker(t))
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version = 4
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: readonly.MirrorResource, ResourceName: "dr"}, {ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "o"}}
	got := dial(t, addr).ask(req).(*kmsg.DescribeConfigsResponse).Resources
	if len(got) != 2 || got[0].ErrorCode != 12844 || len(got[0].Configs) > 0 || got[1].ErrorCode != 0 || len(got[1].Configs) != 5 {
		t.Errorf("%+v", got)
	}
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	alter.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: readonly.MirrorResource, ResourceName: "dr"}}
	if got := dial(t, addr).ask(alter).(*kmsg.IncrementalAlterConfigsResponse).Resources; len(got) != 1 || got[0].ErrorCode != 12844 {
		t.Errorf("%+v", got)
	}
}

func TestAlterMirrorConfigs(t *testing.T) {
	topic, mirror := kmsg.ConfigResourceTypeTopic, readonly.MirrorResource
	value := "v"
	type ask struct {
		kind kmsg.ConfigResourceType
		name string
		key  string
	}
	for name, tc := range map[string]struct {
		ask   []ask
		codes []int16
		done  []string
		sent  int // resources that reach the broker
	}{
		"a mirror":      {[]ask{{mirror, "dr", "k"}}, []int16{0}, []string{"as-tester dr k 2 v true"}, 0},
		"no such":       {[]ask{{mirror, "x", "k"}}, []int16{12837}, []string{"as-tester x k 2 v true"}, 0},
		"twice":         {[]ask{{mirror, "dr", "k"}, {mirror, "dr", "l"}, {topic, "o", "k"}}, []int16{42, 42, 0}, nil, 1},
		"mixed":         {[]ask{{topic, "o", "a"}, {mirror, "dr", "k"}, {topic, "p", "b"}}, []int16{0, 0, 0}, []string{"as-tester dr k 2 v true"}, 2},
		"with refusals": {[]ask{{mirror, "x", "k"}, {topic, "m", "min.insync.replicas"}, {topic, "o", "mirror.name"}, {topic, "m", "retention.ms"}}, []int16{12837, 44, 42, 0}, []string{"as-tester x k 2 v true"}, 1},
		"all refused":   {[]ask{{topic, "m", "max.message.bytes"}, {mirror, "dr", "k"}}, []int16{44, 0}, []string{"as-tester dr k 2 v true"}, 0},
		"no mirrors":    {[]ask{{topic, "o", "a"}, {topic, "p", "a"}}, []int16{0, 0}, nil, 2},
		"no own name":   {[]ask{{topic, "o", "mirror.name"}}, []int16{42}, nil, 0},
	} {
		for version := int16(0); version <= 1; version++ {
			t.Run(fmt.Sprintf("%s v%d", name, version), func(t *testing.T) {
				b := configBroker(t)
				f := &fakeConfigs{}
				s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0))}
				s.deps.Configs = f
				_, addr := s.start(t, b)
				req := kmsg.NewPtrIncrementalAlterConfigsRequest()
				req.Version, req.ValidateOnly = version, true
				for _, a := range tc.ask {
					req.Resources = append(req.Resources, kmsg.IncrementalAlterConfigsRequestResource{
						ResourceType: a.kind, ResourceName: a.name, Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: a.key, Op: 2, Value: &value}},
					})
				}
				resp := dial(t, addr).ask(req).(*kmsg.IncrementalAlterConfigsResponse)
				var codes []int16
				for i, res := range resp.Resources {
					codes = append(codes, res.ErrorCode)
					if len(resp.Resources) == len(tc.ask) && name != "no mirrors" && (res.ResourceName != tc.ask[i].name || res.ResourceType != tc.ask[i].kind) {
						t.Errorf("resource %d is %q", i, res.ResourceName)
					}
					if (res.ErrorMessage == nil) != (res.ErrorCode == 0) {
						t.Errorf("%s: message %v", res.ResourceName, deref(res.ErrorMessage))
					}
				}
				if !slices.Equal(codes, tc.codes) {
					t.Errorf("codes %v, want %v", codes, tc.codes)
				}
				if got := f.altered(); !slices.Equal(got, tc.done) {
					t.Errorf("altered %q, want %q", got, tc.done)
				}
				sent := 0
				for _, r := range b.requests() {
					if r.key == int16(kmsg.IncrementalAlterConfigs) {
						got := kmsg.NewPtrIncrementalAlterConfigsRequest()
						got.Version = version
						if err := got.ReadFrom(r.frame[r.size:]); err != nil {
							t.Fatal(err)
						}
						sent += len(got.Resources)
					}
				}
				if sent != tc.sent {
					t.Errorf("%d resources reach the broker, want %d", sent, tc.sent)
				}
			})
		}
	}
}

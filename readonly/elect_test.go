package readonly

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestElectLeaders(t *testing.T) {
	topic := func(name string, partitions ...int32) kmsg.ElectLeadersRequestTopic {
		return kmsg.ElectLeadersRequestTopic{Topic: name, Partitions: partitions}
	}
	type leaderless = func() ([]kmsg.ElectLeadersRequestTopic, bool)
	are := func(topics ...kmsg.ElectLeadersRequestTopic) leaderless {
		return func() ([]kmsg.ElectLeadersRequestTopic, bool) { return topics, true }
	}
	for name, tc := range map[string]struct {
		kind       int8
		topics     []kmsg.ElectLeadersRequestTopic // nil: all
		leaderless leaderless
		rest       string // of the request; "": nothing is refused
		want       string // the answer, where the broker says 84 to everything
	}{
		"preferred":          {0, []kmsg.ElectLeadersRequestTopic{topic("m", 0)}, nil, "", ""},
		"ordinary":           {1, []kmsg.ElectLeadersRequestTopic{topic("o", 0)}, nil, "", ""},
		"mirror":             {1, []kmsg.ElectLeadersRequestTopic{topic("m", 0, 1)}, nil, "nothing", "m-0 44, m-1 44"},
		"mixed":              {1, []kmsg.ElectLeadersRequestTopic{topic("m", 1, 7), topic("o", 2, 1)}, nil, "m-7 o-2 o-1", "m-1 44, m-7 84, o-2 84, o-1 84"},
		"all, none refused":  {1, nil, are(topic("o", 3)), "o-3", "o-3 84"},
		"all, none there":    {1, nil, are(), "empty", ""},
		"all":                {1, nil, are(topic("m", 0, 5), topic("o", 3)), "m-5 o-3", "o-3 84, m-5 84"},
		"all refused of all": {1, nil, are(topic("m", 0)), "empty", ""},
		"the state":          {1, []kmsg.ElectLeadersRequestTopic{topic(stateTopic, 0)}, nil, "", ""},
		"the state and more": {1, []kmsg.ElectLeadersRequestTopic{topic(stateTopic, 0), topic("m", 0)}, nil, stateTopic + "-0", stateTopic + "-0 84, m-0 44"},
		"all, the state too": {1, nil, are(topic("o", 3), topic(stateTopic, 0)), "o-3", "o-3 84"},
	} {
		for version := int16(0); version <= 2; version++ {
			t.Run(fmt.Sprintf("%s v%d", name, version), func(t *testing.T) {
				req := kmsg.NewPtrElectLeadersRequest()
				req.Version, req.ElectionType, req.Topics = version, tc.kind, tc.topics
				s := rules().ElectLeaders(req, tc.leaderless)
				if tc.rest == "" || version == 0 {
					if s != nil {
						t.Fatalf("refused %+v", s.Refused)
					}
					return
				}
				if s == nil {
					t.Fatal("nothing refused")
				}
				resp := kmsg.NewPtrElectLeadersResponse()
				rest := "nothing"
				if s.Rest != nil {
					var names []string
					for _, rt := range s.Rest.Topics {
						at := kmsg.NewElectLeadersResponseTopic()
						at.Topic = rt.Topic
						for _, p := range rt.Partitions {
							names = append(names, fmt.Sprintf("%s-%d", rt.Topic, p))
							at.Partitions = append(at.Partitions, kmsg.ElectLeadersResponseTopicPartition{Partition: p, ErrorCode: 84})
						}
						resp.Topics = slices.Insert(resp.Topics, 0, at)
					}
					rest = strings.Join(names, " ")
					if rest == "" {
						rest = "empty"
					}
					wire := kmsg.NewPtrElectLeadersRequest()
					wire.Version = version
					if err := wire.ReadFrom(s.Rest.AppendTo(nil)); err != nil || wire.Topics == nil {
						t.Errorf("the rest is %+v on the wire: null is all (%v)", wire, err)
					}
				}
				if rest != tc.rest {
					t.Errorf("rest %q, want %q", rest, tc.rest)
				}
				if s.Rest == nil {
					resp = nil
				}
				var got []string
				for _, rt := range s.Merge(resp).Topics {
					for _, p := range rt.Partitions {
						got = append(got, fmt.Sprintf("%s-%d %d", rt.Topic, p.Partition, p.ErrorCode))
						if p.ErrorCode == 44 && (p.ErrorMessage == nil || !strings.Contains(*p.ErrorMessage, "--allow-truncate")) {
							t.Errorf("message %v", p.ErrorMessage)
						}
					}
				}
				if got := strings.Join(got, ", "); got != tc.want {
					t.Errorf("answer %q, want %q", got, tc.want)
				}
			})
		}
	}
}

// TestElectLeadersOfUnknown: what is leaderless is not known yet, so that nobody can say which of
// all may be elected.
func TestElectLeadersOfUnknown(t *testing.T) {
	unknown := func() ([]kmsg.ElectLeadersRequestTopic, bool) { return nil, false }
	for version := int16(1); version <= 2; version++ {
		req := kmsg.NewPtrElectLeadersRequest()
		req.Version, req.ElectionType = version, 1
		s := rules().ElectLeaders(req, unknown)
		if s == nil || s.Rest != nil {
			t.Fatalf("v%d: something goes to the broker: %+v", version, s)
		}
		if resp := s.Merge(nil); resp.ErrorCode != int16(notController) || len(resp.Topics) > 0 || resp.Version != version {
			t.Errorf("v%d: %+v", version, resp)
		}
		req.ElectionType = 0
		if s := rules().ElectLeaders(req, unknown); s != nil {
			t.Errorf("v%d: preferred leaders: %+v", version, s)
		}
	}
}

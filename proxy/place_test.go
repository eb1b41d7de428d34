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
)

// fakePlacement has brokers 1, 2 and 3.
type fakePlacement struct{ unneeded bool }

func (p fakePlacement) Needed() bool { return !p.unneeded }

func (fakePlacement) Defaults(context.Context) (int, int, error) { return 2, 1, nil }

func (fakePlacement) Place(_ string, from, partitions, replicas int) ([][]int32, error) {
	if replicas > 3 {
		return nil, protocol.Errorf(38, "only 3 broker(s) are registered")
	}
	var out [][]int32
	for p := range partitions {
		var list []int32
		for r := range replicas {
			list = append(list, int32(1+(from+p+r)%3))
		}
		out = append(out, list)
	}
	return out, nil
}

// cordonless is a controller that would place what nobody has placed on anybody. It has
// topics o (one partition) and "taken", and refuses the first manual assignment of "gone".
type cordonless struct {
	secret bool // tells nobody the numbers

	mu  sync.Mutex // guards the following
	got []string
}

func (f *cordonless) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

func (f *cordonless) answer(req kmsg.Request) kmsg.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r := req.(type) {
	case *kmsg.CreateTopicsRequest:
		resp := kmsg.NewPtrCreateTopicsResponse()
		for _, t := range r.Topics {
			a := kmsg.NewCreateTopicsResponseTopic()
			a.Topic, a.NumPartitions, a.ReplicationFactor = t.Topic, t.NumPartitions, t.ReplicationFactor
			if a.NumPartitions < 0 {
				a.NumPartitions = 1
			}
			if a.ReplicationFactor < 0 {
				a.ReplicationFactor = 2
			}
			if n := len(t.ReplicaAssignment); n > 0 {
				a.NumPartitions, a.ReplicationFactor = int32(n), int16(len(t.ReplicaAssignment[0].Replicas))
			}
			if f.secret {
				a.NumPartitions, a.ReplicationFactor = -1, -1
			}
			switch {
			case t.Topic == "taken":
				a.ErrorCode = 36
			case t.Topic == "gone" && len(t.ReplicaAssignment) > 0:
				a.ErrorCode = errInvalidReplicaAssignment
			case !r.ValidateOnly:
				text := fmt.Sprintf("%s %d %d", t.Topic, t.NumPartitions, t.ReplicationFactor)
				for _, x := range t.ReplicaAssignment {
					text += fmt.Sprint(" ", x.Replicas)
				}
				for _, c := range t.Configs {
					text += " " + c.Name + "=" + *c.Value
				}
				f.got = append(f.got, text)
			}
			resp.Topics = append(resp.Topics, a)
		}
		return resp
	case *kmsg.CreatePartitionsRequest:
		resp := kmsg.NewPtrCreatePartitionsResponse()
		for _, t := range r.Topics {
			a := kmsg.NewCreatePartitionsResponseTopic()
			a.Topic = t.Topic
			text := fmt.Sprintf("%s to %d", t.Topic, t.Count)
			for _, x := range t.Assignment {
				text += fmt.Sprint(" ", x.Replicas)
			}
			if t.Topic == "gone" && len(t.Assignment) > 0 {
				a.ErrorCode = errInvalidReplicaAssignment
			} else {
				f.got = append(f.got, text)
			}
			resp.Topics = append(resp.Topics, a)
		}
		return resp
	}
	return req.ResponseKind()
}

func TestCreateTopicsIsPlaced(t *testing.T) {
	value := "compact"
	topic := func(name string, partitions int32, rf int16, assigned ...int32) kmsg.CreateTopicsRequestTopic {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, rf
		for i, b := range assigned {
			rt.ReplicaAssignment = append(rt.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: []int32{b}})
		}
		return rt
	}
	configured := topic("t", 2, 2)
	configured.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "cleanup.policy", Value: &value}}
	for name, c := range map[string]struct {
		version      int16
		topics       []kmsg.CreateTopicsRequestTopic
		validateOnly bool
		secret       bool
		needless     bool
		got          []string
		answers      []string // name, code, partitions, replicas
	}{
		"placed, with its configs": {
			topics: []kmsg.CreateTopicsRequestTopic{configured}, got: []string{"t -1 -1 [1 2] [2 3] cleanup.policy=compact"}, answers: []string{"t 0 2 2"},
		},
		"an old client": {
			version: 2, topics: []kmsg.CreateTopicsRequestTopic{configured}, got: []string{"t -1 -1 [1 2] [2 3] cleanup.policy=compact"}, answers: []string{"t 0 -1 -1"},
		},
		"the controller's defaults": {
			topics: []kmsg.CreateTopicsRequestTopic{topic("t", -1, -1)}, got: []string{"t -1 -1 [1 2]"}, answers: []string{"t 0 1 2"},
		},
		"that are not told": {
			topics: []kmsg.CreateTopicsRequestTopic{topic("t", -1, -1)}, secret: true, got: []string{"t -1 -1 [1] [2]"}, answers: []string{"t 0 -1 -1"},
		},
		"placed by the client": {
			topics: []kmsg.CreateTopicsRequestTopic{topic("t", -1, -1, 3, 1), topic("u", 1, 1)}, got: []string{"t -1 -1 [3] [1]", "u -1 -1 [1]"}, answers: []string{"t 0 2 1", "u 0 1 1"},
		},
		"not created": {
			topics: []kmsg.CreateTopicsRequestTopic{topic("t", 3, 1), topic("u", 1, 4)}, validateOnly: true, answers: []string{"t 0 3 1", "u 38 -1 -1"},
		},
		"refused": {
			topics: []kmsg.CreateTopicsRequestTopic{topic("taken", 1, 1), topic("t", 1, 4), topic(stateTopic, 1, 1), topic("u", 1, 1)},
			got:    []string{"u -1 -1 [1]"}, answers: []string{"taken 36 1 1", "t 38 -1 -1", stateTopic + " 44 -1 -1", "u 0 1 1"},
		},
		"a broker has gone meanwhile": {
			topics: []kmsg.CreateTopicsRequestTopic{topic("gone", 1, 1), topic("t", 1, 1)}, got: []string{"t -1 -1 [1]", "gone 1 1"}, answers: []string{"gone 0 1 1", "t 0 1 1"},
		},
		"named twice": {
			topics: []kmsg.CreateTopicsRequestTopic{topic("taken", 1, 1), topic("taken", 1, 1)}, answers: []string{"taken 36 1 1"},
		},
		"virtual brokers are cordoned": {
			topics: []kmsg.CreateTopicsRequestTopic{topic("t", 2, 2)}, needless: true, got: []string{"t 2 2"}, answers: []string{"t 0 2 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &cordonless{secret: c.secret}
			s := setup{}
			s.deps.Placement = fakePlacement{c.needless}
			_, addr := s.start(t, startBroker(t, answers(t, f.answer)))
			req := kmsg.NewPtrCreateTopicsRequest()
			req.Version, req.Topics, req.ValidateOnly = 7, c.topics, c.validateOnly
			if c.version > 0 {
				req.Version = c.version
			}
			resp := dial(t, addr).ask(req).(*kmsg.CreateTopicsResponse)
			var got []string
			for _, a := range resp.Topics {
				got = append(got, fmt.Sprintf("%s %d %d %d", a.Topic, a.ErrorCode, a.NumPartitions, a.ReplicationFactor))
				if a.ErrorCode == 38 && (a.ErrorMessage == nil || !strings.Contains(*a.ErrorMessage, "only 3 broker(s)")) {
					t.Errorf("message %v", a.ErrorMessage)
				}
			}
			if !slices.Equal(f.asked(), c.got) || !slices.Equal(got, c.answers) {
				t.Errorf("the controller created %q, want %q; answers %q, want %q", f.asked(), c.got, got, c.answers)
			}
		})
	}
}

func TestCreatePartitionsIsPlaced(t *testing.T) {
	ask := func(name string, count int32, assigned ...int32) kmsg.CreatePartitionsRequestTopic {
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = name, count
		for _, b := range assigned {
			rt.Assignment = append(rt.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: []int32{b}})
		}
		return rt
	}
	f := &cordonless{}
	s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0), ordinaryPart("gone", topicID(3), 0), ordinaryPart("p", topicID(4), 0))}
	s.deps.Placement = fakePlacement{}
	_, addr := s.start(t, startBroker(t, answers(t, f.answer)))
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version = 3
	req.Topics = []kmsg.CreatePartitionsRequestTopic{ask("o", 3), ask("m", 2), ask("unknown", 4), ask("gone", 2), ask("p", 2, 3)}
	resp := dial(t, addr).ask(req).(*kmsg.CreatePartitionsResponse)
	var codes []int16
	for i, a := range resp.Topics {
		if a.Topic != req.Topics[i].Topic {
			t.Errorf("answer %d is for %s", i, a.Topic)
		}
		codes = append(codes, a.ErrorCode)
	}
	if want := []string{"o to 3 [2 3] [3 1]", "unknown to 4", "p to 2 [3]", "gone to 2"}; !slices.Equal(f.asked(), want) {
		t.Errorf("the controller got %q, want %q", f.asked(), want)
	}
	if !slices.Equal(codes, []int16{0, 44, 0, 0, 0}) {
		t.Errorf("codes %v", codes)
	}
}

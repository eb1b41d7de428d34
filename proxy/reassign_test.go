package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// fakeAssignments keeps both virtual replicas of topic 1, and takes note of its windows.
type fakeAssignments struct {
	kept   error // for topic 1
	opened error

	mu   sync.Mutex // guards the following
	open []int32
	log  []string
}

func (a *fakeAssignments) Kept(tp ids.TopicPartition) ([]int32, bool, error) {
	if tp.TopicID != topicID(1) {
		return nil, false, nil
	}
	return []int32{10001, 10002}, a.kept == nil, a.kept
}

func (a *fakeAssignments) Open(_ context.Context, virtual []int32) (func(), error) {
	if a.opened != nil {
		return nil, a.opened
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = virtual
	a.log = append(a.log, fmt.Sprint("open ", virtual))
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.open = nil
		a.log = append(a.log, "close")
	}, nil
}

func (a *fakeAssignments) logged() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.log)
}

func (a *fakeAssignments) isOpen() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open != nil
}

// controller does as a controller with cordoned virtual brokers does.
type controller struct {
	rights  int32
	failing int16 // code of the answer about rights
	granted bool  // since the rights were asked for
	a       *fakeAssignments

	mu  sync.Mutex // guards the following
	got []string
}

func (f *controller) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

func (f *controller) answer(req kmsg.Request) kmsg.Response {
	switch r := req.(type) {
	case *kmsg.DescribeClusterRequest:
		resp := kmsg.NewPtrDescribeClusterResponse()
		resp.ClusterAuthorizedOperations, resp.ErrorCode = f.rights, f.failing
		return resp
	case *kmsg.AlterPartitionAssignmentsRequest:
		resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
		resp.AllowReplicationFactorChange = r.AllowReplicationFactorChange
		if f.rights&(1<<7) == 0 && !f.granted {
			resp.ErrorCode = errClusterAuthorization
			return resp
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, t := range r.Topics {
			rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				f.got = append(f.got, fmt.Sprintf("%s-%d %v", t.Topic, p.Partition, p.Replicas))
				if p.Replicas == nil {
					f.got[len(f.got)-1] = fmt.Sprintf("%s-%d cancel", t.Topic, p.Partition)
				}
				a := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
				a.Partition = p.Partition
				if slices.ContainsFunc(p.Replicas, testVirtual.Is) && !f.a.isOpen() || p.Replicas != nil && len(p.Replicas) == 0 {
					a.ErrorCode = 39
				}
				rt.Partitions = append(rt.Partitions, a)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	}
	return req.ResponseKind()
}

func TestReassignments(t *testing.T) {
	const all = int32(1<<7 | 1<<8)
	type ask struct {
		topic     string
		partition int32
		replicas  []int32
	}
	for name, c := range map[string]struct {
		asked   []ask
		keepRF  bool // AllowReplicationFactorChange=false
		a       *fakeAssignments
		rights  int32
		failing int16
		granted bool
		got     []string // by the controller
		log     []string // windows
		codes   []int16  // by partition, in the order asked
		top     int16
		message string
	}{
		"ordinary ones pass": {
			asked: []ask{{"o", 0, []int32{2, 3}}}, rights: all,
			got: []string{"o-0 [2 3]"}, codes: []int16{0},
		},
		"virtual replicas stay in front": {
			asked: []ask{{"m", 0, []int32{3, 1}}}, rights: all,
			got: []string{"m-0 [10001 10002 3 1]"}, log: []string{"open [10001 10002]", "close"}, codes: []int16{0},
		},
		"those that a client names are not his": {
			asked: []ask{{"m", 0, []int32{3, 10003, 1}}}, rights: all,
			got: []string{"m-0 [10001 10002 3 1]"}, log: []string{"open [10001 10002]", "close"}, codes: []int16{0},
		},
		"mixed: ordinary ones are not asked for while anything is open": {
			asked: []ask{{"m", 0, []int32{3, 1}}, {"o", 0, []int32{10001, 1}}, {"m", 7, []int32{1}}}, rights: all,
			got: []string{"o-0 [10001 1]", "m-7 [1]", "m-0 [10001 10002 3 1]"}, log: []string{"open [10001 10002]", "close"}, codes: []int16{0, 39, 0},
		},
		"cancelled": {
			asked: []ask{{"m", 0, nil}, {"m", 1, nil}, {"o", 0, nil}}, rights: all,
			got: []string{"m-0 cancel", "o-0 cancel"}, codes: []int16{0, 85, 0},
		},
		"no replicas at all": {
			asked: []ask{{"m", 0, []int32{}}}, rights: all, got: []string{"m-0 []"}, codes: []int16{39},
		},
		"the replication factor is the real ones'": {
			asked: []ask{{"m", 0, []int32{3, 1}}, {"m", 1, []int32{3}}}, keepRF: true, rights: all,
			got: []string{"m-0 [10001 10002 3 1]"}, log: []string{"open [10001 10002]", "close"}, codes: []int16{0, 38}, message: "from 2 to 1",
		},
		"not while it is stopped": {
			asked: []ask{{"m", 0, []int32{3, 1}}, {"o", 0, []int32{2}}}, rights: all,
			a:   &fakeAssignments{kept: protocol.Errorf(60, "is being stopped")},
			got: []string{"o-0 [2]"}, codes: []int16{60, 0}, message: "is being stopped",
		},
		"virtual brokers that do not open": {
			asked: []ask{{"m", 0, []int32{3, 1}}, {"o", 0, []int32{2}}}, rights: all, a: &fakeAssignments{opened: errors.New("fenced")},
			got: []string{"o-0 [2]"}, codes: []int16{8, 0}, message: "ask again: fenced",
		},
		"nothing is opened for who may not": {
			asked: []ask{{"m", 0, []int32{3, 1}}, {"o", 0, []int32{2}}}, rights: 1 << 8, top: errClusterAuthorization,
		},
		"who may not is told so, and nothing else": {
			asked: []ask{{"m", 1, nil}}, rights: 1 << 8, top: errClusterAuthorization,
		},
		"nothing is sent when it is not known who may": {
			asked: []ask{{"m", 0, []int32{3, 1}}, {"o", 0, []int32{2, 3}}}, rights: all, failing: 7, top: 7,
		},
		"nothing is opened for who may only now, and the answers are all there": {
			asked: []ask{{"m", 0, []int32{3, 1}}, {"m", 1, nil}, {"o", 0, nil}}, rights: 1 << 8, granted: true,
			got: []string{"o-0 cancel", "m-0 [10001 10002 3 1]"}, codes: []int16{39, 85, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.a == nil {
				c.a = &fakeAssignments{}
			}
			pending := mirrorPart("m", topicID(1), 1)
			pending.Adding = []int32{10002}
			view := newFakeView(mirrorPart("m", topicID(1), 0), pending, ordinaryPart("o", topicID(2), 0))
			f := &controller{rights: c.rights, failing: c.failing, granted: c.granted, a: c.a}
			s := setup{view: view}
			s.deps.Assignments = c.a
			_, addr := s.start(t, startBroker(t, answers(t, f.answer)))
			req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
			req.Version, req.AllowReplicationFactorChange = 1, !c.keepRF
			for _, a := range c.asked {
				rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
				rt.Topic = a.topic
				rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
				rp.Partition, rp.Replicas = a.partition, a.replicas
				rt.Partitions = append(rt.Partitions, rp)
				req.Topics = append(req.Topics, rt)
			}
			resp := dial(t, addr).ask(req).(*kmsg.AlterPartitionAssignmentsResponse)
			if resp.ErrorCode != c.top {
				t.Errorf("code %d, want %d", resp.ErrorCode, c.top)
			}
			var codes []int16
			messages := ""
			for i, rt := range resp.Topics {
				if rt.Topic != c.asked[i].topic || len(rt.Partitions) != 1 || rt.Partitions[0].Partition != c.asked[i].partition {
					t.Errorf("answer %d is %+v", i, rt)
				}
				for _, p := range rt.Partitions {
					codes = append(codes, p.ErrorCode)
					if p.ErrorMessage != nil {
						messages += *p.ErrorMessage
					}
				}
			}
			if !slices.Equal(codes, c.codes) || !slices.Equal(f.asked(), c.got) || !slices.Equal(c.a.logged(), c.log) || !strings.Contains(messages, c.message) {
				t.Errorf("codes %v, want %v; the controller got %q, want %q; windows %q, want %q; told %q, want %q",
					codes, c.codes, f.asked(), c.got, c.a.logged(), c.log, messages, c.message)
			}
		})
	}
}

func TestListReassignmentsHidesVirtualReplicas(t *testing.T) {
	part := func(n int32, replicas, adding, removing []int32) kmsg.ListPartitionReassignmentsResponseTopicPartition {
		return kmsg.ListPartitionReassignmentsResponseTopicPartition{Partition: n, Replicas: replicas, AddingReplicas: adding, RemovingReplicas: removing}
	}
	b := startBroker(t, answers(t, func(kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrListPartitionReassignmentsResponse()
		resp.Topics = []kmsg.ListPartitionReassignmentsResponseTopic{
			{Topic: "m", Partitions: []kmsg.ListPartitionReassignmentsResponseTopicPartition{
				part(0, []int32{10001, 10002, 3, 1, 2}, []int32{3}, []int32{2}),
				part(1, []int32{10001, 10002, 1, 2}, []int32{10001}, []int32{}),
				part(2, []int32{10001, 10003, 3, 1}, []int32{3}, []int32{10003}),
			}},
			{Topic: "n", Partitions: []kmsg.ListPartitionReassignmentsResponseTopicPartition{part(0, []int32{10001, 1}, []int32{}, []int32{10001})}},
		}
		return resp
	}))
	s := setup{}
	_, addr := s.start(t, b)
	got := dial(t, addr).ask(kmsg.NewPtrListPartitionReassignmentsRequest()).(*kmsg.ListPartitionReassignmentsResponse)
	if len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 2 {
		t.Fatalf("%+v", got.Topics)
	}
	for i, want := range []kmsg.ListPartitionReassignmentsResponseTopicPartition{
		part(0, []int32{3, 1, 2}, []int32{3}, []int32{2}), part(2, []int32{3, 1}, []int32{3}, []int32{}),
	} {
		p := got.Topics[0].Partitions[i]
		if p.Partition != want.Partition || !slices.Equal(p.Replicas, want.Replicas) || !slices.Equal(p.AddingReplicas, want.AddingReplicas) || !slices.Equal(p.RemovingReplicas, want.RemovingReplicas) {
			t.Errorf("%+v, want %+v", p, want)
		}
	}
}

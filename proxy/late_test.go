package proxy

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// Before the other parts are there, and after they have gone, ordinary topics are served as
// always, and everything about mirrors is asked for again.
func TestLate(t *testing.T) {
	const (
		retry    = errNotLeaderOrFollower
		refused  = int16(44) // POLICY_VIOLATION
		accepted = errNone
	)
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		switch r := req.(type) {
		case *kmsg.ProduceRequest:
			resp := kmsg.NewPtrProduceResponse()
			for _, topic := range r.Topics {
				rt := kmsg.NewProduceResponseTopic()
				rt.Topic = topic.Topic
				rt.Partitions = append(rt.Partitions, kmsg.NewProduceResponseTopicPartition())
				resp.Topics = append(resp.Topics, rt)
			}
			return resp
		case *kmsg.MetadataRequest:
			return kmsg.NewPtrMetadataResponse()
		case *kmsg.DescribeClusterRequest:
			resp := kmsg.NewPtrDescribeClusterResponse()
			resp.ClusterAuthorizedOperations = -1
			return resp
		}
		t.Errorf("a request of key %d went to the broker", req.Key())
		return nil
	}))
	view := newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0), ordinaryPart("held", topicID(3), 0))
	asked := 0
	notYet := func(_, _ int16, _ []byte, err error) ([]byte, error) {
		asked++
		if err == nil {
			return nil, errors.New("no error to answer with")
		}
		return []byte("later"), nil
	}
	serve := func(late *Late) (check func(when string, want map[string]int16)) {
		s := setup{view: view}
		s.deps = late.Deps(s.deps)
		_, addr := s.start(t, b)
		c := dial(t, addr)
		return func(when string, want map[string]int16) {
			t.Helper()
			for topic, code := range want {
				resp := c.ask(produceRequest(9, 1, topic, 0)).(*kmsg.ProduceResponse)
				if got := resp.Topics[0].Partitions[0].ErrorCode; got != code {
					t.Errorf("%s: a write to %q gets %d, want %d", when, topic, got, code)
				}
			}
		}
	}
	serve(NewLate([]int16{12794}, notYet))("nothing is known", map[string]int16{"m": retry, "o": retry, "held": retry, "unknown": retry})

	late := NewLate([]int16{12794}, notYet)
	late.Restored, late.Held = true, func(id ids.UUID) bool { return id == topicID(3) }
	check := serve(late)
	dated := map[string]int16{"m": retry, "o": accepted, "held": retry, "unknown": retry}
	check("saved before", dated)
	if got, err := (lateMirror{late}).Handle(t.Context(), 12794, 0, "", nil); err != nil || string(got) != "later" || asked != 1 {
		t.Errorf("a mirror API: %q, %v", got, err)
	}
	if _, err := (lateCoordinators{late}).FindCoordinator("dr"); err == nil {
		t.Error("a coordinator is found")
	}

	late.Bind(Parts{Mirrors: fakeMirrors{of: map[ids.UUID]string{topicID(1): "dr"}}, Lineage: noLineage{}})
	check("all is there", map[string]int16{"m": refused, "o": accepted, "held": accepted, "unknown": accepted})

	// Not what was held when the process began, but what is when its parts go.
	late.Unbind(func(id ids.UUID) bool { return id == topicID(2) })
	check("it ends", map[string]int16{"m": retry, "o": retry, "held": accepted, "unknown": retry})
	if m := (lateMirrors{late}); !m.Recorded(topicID(2)) || !m.ReadOnly(ids.TopicPartition{TopicID: topicID(2)}) {
		t.Error("a topic that was held at the end is nothing to the parts")
	}
}

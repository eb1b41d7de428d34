package proxy

import (
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestFences(t *testing.T) {
	now := time.Unix(1000, 0)
	f := NewFences(func() time.Time { return now })
	left := func(topic string) time.Duration {
		d, ok := f.Left(topic)
		if ok != (d > 0) {
			t.Errorf("%s: %v left, fenced %t", topic, d, ok)
		}
		return max(d, 0)
	}
	if !f.none() || left("a") != 0 {
		t.Error("fenced from the start")
	}
	if anew, err := f.Fence([]string{"a", "b"}, 10*time.Second); err != nil || len(anew) != 2 {
		t.Fatalf("anew %q, %v", anew, err)
	}
	now = now.Add(4 * time.Second)
	if f.none() || left("a") != 6*time.Second || left("c") != 0 {
		t.Errorf("a has %v left", left("a"))
	}
	if anew, _ := f.Fence([]string{"a"}, 10*time.Second); len(anew) > 0 { // renewed
		t.Errorf("anew %q", anew)
	}
	_, _ = f.Fence([]string{"b"}, 0) // ended
	if left("a") != 10*time.Second || left("b") != 0 {
		t.Errorf("a has %v, b %v left", left("a"), left("b"))
	}
	now = now.Add(10 * time.Second)
	if left("a") != 0 {
		t.Errorf("the lease has run out, %v left", left("a"))
	}
	if anew, _ := f.Fence([]string{"a"}, time.Second); len(anew) != 1 {
		t.Error("what has run out counts as fenced until now")
	}
	now = now.Add(time.Second)
	_, _ = f.Fence(nil, 0)
	if !f.none() {
		t.Error("what has run out is kept")
	}
	many := make([]string, maxFences+1)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	if _, err := f.Fence(many, time.Second); err == nil || !f.none() {
		t.Errorf("too many: %v", err)
	}
	full := many[:maxFences]
	if anew, err := f.Fence(full, time.Minute); err != nil || len(anew) != maxFences {
		t.Errorf("as many as can be: %d anew, %v", len(anew), err)
	}
	if anew, err := f.Fence(append(full, full...), time.Minute); err != nil || len(anew) != 0 {
		t.Errorf("renewed: %d anew, %v", len(anew), err)
	}
	if _, err := f.Fence(many[maxFences:], time.Minute); err == nil {
		t.Error("one too many")
	}
}

// A fence holds writers back whether anything is mirrored here or not, and lets them
// go on when it ends.
func TestFencedProduce(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, view := range map[string]*fakeView{
		"no mirrors": newFakeView(ordinaryPart("o", topicID(2), 0), ordinaryPart("p", topicID(3), 0)),
		"mirrors":    newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0), ordinaryPart("p", topicID(3), 0)),
	} {
		t.Run(name, func(t *testing.T) {
			b := brokerForWrites(t)
			s := setup{view: view}
			s.deps.Fences = NewFences(func() time.Time { return now })
			_, addr := s.start(t, b)
			c := dial(t, addr)
			codes := func(version int16) (o, p int16) {
				req := produceRequest(version, -1, "o", 0)
				req.Topics = append(req.Topics, produceRequest(version, -1, "p", 0).Topics...)
				for i := range req.Topics {
					req.Topics[i].TopicID, _ = view.Topic(req.Topics[i].Topic)
				}
				resp := c.ask(req).(*kmsg.ProduceResponse)
				return resp.Topics[0].Partitions[0].ErrorCode, resp.Topics[1].Partitions[0].ErrorCode
			}
			for _, version := range []int16{3, 9, 13} {
				_, _ = s.deps.Fences.Fence([]string{"o"}, time.Minute)
				if o, p := codes(version); o != 19 || p != 0 {
					t.Errorf("v%d, fenced: codes %d and %d", version, o, p)
				}
				_, _ = s.deps.Fences.Fence([]string{"o"}, 0)
				if o, p := codes(version); o != 0 || p != 0 {
					t.Errorf("v%d, after the fence: codes %d and %d", version, o, p)
				}
			}
			_, _ = s.deps.Fences.Fence([]string{"o"}, time.Minute)
			c.send(produceRequest(9, 0, "o", 0), 1)
			c.wantClosed()
		})
	}
}

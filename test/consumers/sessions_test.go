package consumers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// sessionVersions are, for CI, the last of those that are raised, by name and by id.
func sessionVersions() []int16 {
	if !harness.Full() {
		return []int16{10, 12, maxFetch}
	}
	var out []int16
	for v := int16(7); v <= maxFetch; v++ {
		out = append(out, v)
	}
	return out
}

// session is a fetch session with a mirror topic and an ordinary one in it.
type session struct {
	side
	version   int16
	id, epoch int32
	next      map[string]int64
	lost      bool // a replica is behind: nothing of it counts any more
}

// testSessions goes through a session of each version: what is named once is remembered, what is
// forgotten is not answered any more, and what does not fit is refused.
func (e *env) testSessions(t *testing.T) {
	src, dst := e.srcClient(t), client(t, e.dst.Proxies(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	write := func(topic string) {
		t.Helper()
		cl := src
		if topic == ordinary {
			cl = dst
		}
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	// Only its leader answers for the ordinary topic, in each version.
	topics, err := e.dstAdmin.ListTopics(t.Context(), ordinary)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(e.dst.Sidecars, func(c *stack.Sidecar) bool { return c.Broker == topics[ordinary].Partitions[0].Leader })
	if at < 0 {
		t.Fatalf("%s is led by %d", ordinary, topics[ordinary].Partitions[0].Leader)
	}
	for _, version := range sessionVersions() {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			through := func() (lost bool) {
				s := &session{side: e.proxies(t)[at], version: version, next: map[string]int64{}}
				for _, topic := range []string{growing, ordinary} {
					end, err := listOffset(e.dst.Sidecars[at].Proxy, topic, 0, 0)
					if err != nil {
						t.Fatal(err)
					}
					s.next[topic] = end
				}
				if got := s.fetch(t, growing, ordinary); !s.lost && (len(got) != 2 || s.id == 0) {
					t.Fatalf("begun as session %d with %v", s.id, got)
				}
				if got := s.fetch(t); len(got) != 0 {
					t.Errorf("nothing is new: %v", got)
				}
				for _, step := range []func(){
					func() { write(growing); s.until(t, growing) },
					func() { write(ordinary); s.until(t, ordinary) },
					func() { s.forget(t, growing) },
					func() { write(growing); write(ordinary); s.until(t, ordinary) },
					func() { s.refused(t) },
				} {
					if s.lost {
						return true
					}
					step()
				}
				return s.lost
			}
			// A machine that stops for longer than lagTime makes a replica fall behind, of which the
			// session is told, or which ends it.
			if through() {
				e.whole(t, growing)
				e.mirrored(t, growing)
				if through() {
					t.Error("the session was lost twice")
				}
			}
		})
	}
}

func (s *session) request(named ...string) *kmsg.FetchRequest {
	req := fetchRequest(s.version, s.id, s.epoch, 0)
	req.MaxWaitMillis, req.MinBytes = 300, 1
	for _, topic := range named {
		addFetch(req, s.side, topic, 0, s.next[topic])
	}
	return req
}

// fetch names some of the topics, and gives those that the answer is about.
func (s *session) fetch(t *testing.T, named ...string) []string {
	t.Helper()
	return s.take(t, s.request(named...))
}

func (s *session) take(t *testing.T, req *kmsg.FetchRequest) []string {
	t.Helper()
	if s.lost {
		return nil
	}
	resp := s.ask(t, req).(*kmsg.FetchResponse)
	if resp.ErrorCode == kerr.FetchSessionIDNotFound.Code {
		s.lost = true
		return nil
	}
	if resp.ErrorCode != 0 || s.id != 0 && resp.SessionID != s.id {
		t.Fatalf("epoch %d of session %d: error %d, session %d", s.epoch, s.id, resp.ErrorCode, resp.SessionID)
	}
	s.id = resp.SessionID
	s.epoch++
	var out []string
	for _, rt := range resp.Topics {
		topic := rt.Topic
		for name, id := range s.ids {
			if s.version >= 13 && id == rt.TopicID {
				topic = name
			}
		}
		for _, p := range rt.Partitions {
			if p.ErrorCode == kerr.NotLeaderForPartition.Code && topic == growing {
				s.lost = true
				return nil
			}
			if p.ErrorCode != 0 {
				t.Fatalf("%s: error %d", topic, p.ErrorCode)
			}
			all, err := batches(p.RecordBatches)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range all {
				if b.FirstOffset != s.next[topic] {
					t.Errorf("%s: got offset %d, want %d", topic, b.FirstOffset, s.next[topic])
				}
				s.next[topic] = b.FirstOffset + int64(b.LastOffsetDelta) + 1
			}
			if len(all) > 0 || s.epoch == 1 {
				out = append(out, topic) // else its high watermark has moved, or its log start
			}
		}
	}
	return out
}

// until fetches on until records of a topic come, and nothing of any other.
func (s *session) until(t *testing.T, topic string) {
	t.Helper()
	var named []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		got := s.fetch(t, named...)
		named = nil
		if s.lost {
			return
		}
		if slices.Contains(got, topic) {
			if len(got) > 1 {
				t.Errorf("got %v", got)
			}
			if again := s.fetch(t, topic); len(again) > 0 { // it names its new offset
				t.Errorf("got %v twice", again)
			}
			return
		}
		if len(got) > 0 {
			t.Errorf("got %v", got)
			named = got
		}
	}
	t.Fatalf("no records of %s", topic)
}

func (s *session) forget(t *testing.T, topic string) {
	t.Helper()
	req := s.request()
	f := kmsg.NewFetchRequestForgottenTopic()
	f.Topic, f.TopicID, f.Partitions = topic, s.ids[topic], []int32{0}
	req.ForgottenTopics = append(req.ForgottenTopics, f)
	if got := s.take(t, req); len(got) > 0 {
		t.Errorf("forgotten %s, got %v", topic, got)
	}
	delete(s.next, topic)
}

// refused sends what does not fit the session.
func (s *session) refused(t *testing.T) {
	t.Helper()
	for _, tc := range []struct {
		id, epoch int32
		want      *kerr.Error
	}{
		{s.id, s.epoch + 5, kerr.InvalidFetchSessionEpoch},
		{s.id + 1, 1, kerr.FetchSessionIDNotFound},
	} {
		resp := s.ask(t, fetchRequest(s.version, tc.id, tc.epoch, 0)).(*kmsg.FetchResponse)
		if tc.id == s.id && resp.ErrorCode == kerr.FetchSessionIDNotFound.Code {
			s.lost = true
			return
		}
		if resp.ErrorCode != tc.want.Code {
			t.Errorf("session %d, epoch %d: error %d, want %v", tc.id, tc.epoch, resp.ErrorCode, tc.want)
		}
	}
	// It is ended, and there is no such session any more.
	if resp := s.ask(t, fetchRequest(s.version, s.id, -1, 0)).(*kmsg.FetchResponse); resp.ErrorCode != 0 {
		t.Errorf("end of the session: error %d", resp.ErrorCode)
	}
	if resp := s.ask(t, s.request()).(*kmsg.FetchResponse); resp.ErrorCode != kerr.FetchSessionIDNotFound.Code {
		t.Errorf("after its end: error %d", resp.ErrorCode)
	}
}

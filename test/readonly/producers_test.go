package readonly

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// producer is a client library, and how it words the refusals.
type producer struct {
	name string
	play player
	// usual is for the errors that every client knows, own for READ_ONLY_TOPIC, which none does.
	usual, own wording
}

// wording is how refused records are told of: outside of transactions and in one, where clients older than
// transactions of version 2 (KIP-890) ask before they write. Without words there is no going on.
type wording struct{ alone, inTransaction string }

func producers(t *testing.T) []producer {
	out := []producer{
		{
			"java", playJava(harness.Version44),
			wording{"PolicyViolationException", "PolicyViolationException"},
			wording{"UnknownServerException", "UnknownServerException"},
		},
		{"franz-go", playGo(openFranz), wording{"POLICY_VIOLATION", "POLICY_VIOLATION"}, wording{"UNKNOWN_SERVER_ERROR", "UNKNOWN_SERVER_ERROR"}},
		{
			"sarama", playGo(openSarama),
			wording{"policy", "not authorized|not attempt"},
			wording{"12834", ""}, // which in a transaction is the end of the producer
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if python, err := harness.Librdkafka(ctx); err != nil {
		t.Logf("without librdkafka: %v", err)
	} else {
		// In a transaction it is the transaction that has the error.
		out = append(out, producer{"librdkafka", playLibrdkafka(python), wording{"POLICY_VIOLATION", "Purged"}, wording{"12834", "Purged"}})
	}
	if harness.Full() {
		out = append(out, producer{
			"java-3.9", playJava(harness.Version39),
			wording{"PolicyViolationException", "TopicAuthorizationException"},
			wording{"UnknownServerException", "KafkaException"},
		})
	}
	return out
}

// limit bounds a script: a client that tries a refused record again and again, or waits for what
// does not come, is over it.
const limit = 3 * time.Minute

// produced lets each client write to a mirror topic and to an ordinary one with one producer, in transactions
// first, then without. All wait for the end of the mirror, and go on where it was.
func produced(t *testing.T, e *env, words func(producer) wording) {
	dir := t.TempDir()
	all := producers(t)
	stopped := filepath.Join(dir, "stopped")
	var group sync.WaitGroup
	for _, p := range all {
		topic := "ordinary-" + p.name
		createTopic(t, e.client, topic, []int32{1}, []int32{2})
		createTopic(t, e.client, "unanswered-"+p.name, []int32{1}, []int32{2})
		ready := filepath.Join(dir, "ready-"+p.name)
		group.Go(func() {
			defer func() { _ = os.WriteFile(ready, nil, 0o600) }() // whatever happened
			if harness.Full() {
				withoutAcks(t, e, p)
			}
			want := map[int32][]string{}
			if refused := words(p).inTransaction; refused != "" {
				want = transactions(t, e, p, refused, topic)
			}
			want = idempotent(t, e, p, words(p).alone, topic, ready, stopped, want)
			e.holds(t, p, topic, want)
		})
	}
	func() {
		defer func() { _ = os.WriteFile(stopped, nil, 0o600) }()
		for _, p := range all {
			ready := filepath.Join(dir, "ready-"+p.name)
			if err := harness.Await(t.Context(), limit, func(context.Context) error {
				_, err := os.Stat(ready)
				return err
			}); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
		e.untouched(t)
		e.cli(t, "--stop", "--mirror", mirror, "--topics", mirrored, "--wait")
	}()
	group.Wait()
}

// holds fails the test unless a topic's partitions have what was committed, in order and once.
func (e *env) holds(t *testing.T, p producer, topic string, want map[int32][]string) {
	ends, err := e.admin.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Error(p.name, err)
		return
	}
	at := map[string]map[int32]kgo.Offset{topic: {}}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		at[topic][o.Partition] = kgo.NewOffset().At(0)
		left[o.Partition] = o.Offset
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(e.dst.Direct()...), kgo.ConsumePartitions(at), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		t.Error(p.name, err)
		return
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := map[int32][]string{}
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Errorf("%s: read %s: %v; left %v", p.name, topic, err, left)
			return
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				got[r.Partition] = append(got[r.Partition], string(r.Value))
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	for _, part := range slices.Sorted(maps.Keys(want)) {
		if !slices.Equal(got[part], want[part]) {
			t.Errorf("%s: %s-%d holds\n%q, want\n%q", p.name, topic, part, got[part], want[part])
		}
	}
}

// scripted is a script with what must become of each step: "ok", or a part of what the client says,
// which may be one of several.
type scripted struct {
	script
	want map[int]string
	next int
}

func (s *scripted) step(want, format string, args ...any) {
	n := s.add(format, args...)
	if s.want == nil {
		s.want = map[int]string{}
	}
	if want != "" {
		s.want[n] = want
	}
}

// sends writes a record to each partition of a topic. Those that must get through are in held.
func (s *scripted) sends(want, topic string, held map[int32][]string) {
	for p := range int32(partitions) {
		value := fmt.Sprintf("v%d", s.next)
		s.next++
		s.step(want, "send %s %d %s", topic, p, value)
		if held != nil {
			held[p] = append(held[p], value)
		}
	}
}

// play fails the test unless each step ends as it must, and all of them in time.
func (s *scripted) play(t *testing.T, e *env, p producer, kind producerKind) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	got, err := p.play(ctx, e.dst.Proxies(), kind, s.script)
	if err != nil {
		t.Errorf("%s %+v: %v", p.name, kind, err)
	}
	for n, want := range s.want {
		if got[n] != "ok" && want == "ok" || !slices.ContainsFunc(strings.Split(want, "|"), func(w string) bool { return strings.Contains(got[n], w) }) {
			t.Errorf("%s %+v: step %d, %q: %q, want %q", p.name, kind, n, s.script[n], got[n], want)
		}
	}
	t.Logf("%s %+v: %d steps in %v", p.name, kind, len(s.script), time.Since(began).Round(time.Millisecond))
}

// transactions: after a refusal a transaction is aborted, and the next one commits.
func transactions(t *testing.T, e *env, p producer, refused, topic string) map[int32][]string {
	var s scripted
	held := map[int32][]string{}
	for range 2 {
		s.step("ok", "begin") // both kinds of topic, told before the end
		s.sends("", topic, nil)
		s.sends(refused, mirrored, nil)
		s.step("ok", "flush")
		s.step("ok", "abort")

		s.step("ok", "begin")
		s.sends("ok", topic, held)
		s.sends("ok", topic, held)
		s.step("ok", "flush")
		s.step("ok", "commit")

		s.step("ok", "begin") // nothing that the broker ever hears of
		s.sends(refused, mirrored, nil)
		s.step("ok", "flush")
		s.step("ok", "abort")

		s.step("ok", "begin") // aborted while it is being written
		s.sends("", topic, nil)
		s.sends("", mirrored, nil)
		s.step("ok", "abort")

		s.step("ok", "begin")
		s.sends("ok", topic, held)
		s.step("ok", "flush")
		s.step("ok", "commit")
	}
	s.play(t, e, p, producerKind{transactionalID: "readonly-" + p.name})
	return held
}

// idempotent: what is refused takes no sequence number from what is not.
func idempotent(t *testing.T, e *env, p producer, refused, topic, ready, stopped string, held map[int32][]string) map[int32][]string {
	s := scripted{next: 1000}
	for range 4 {
		s.sends("ok", topic, held)
		s.sends(refused, mirrored, nil)
		s.sends("ok", topic, held)
		s.step("ok", "flush")
	}
	for range 20 { // as fast as they are taken
		s.sends(refused, mirrored, nil)
		s.sends("ok", topic, held)
	}
	s.step("ok", "flush")
	s.step("ok", "touch %s", ready)
	s.step("ok", "await %s", stopped)
	for range 3 {
		s.sends("ok", mirrored, nil)
		s.sends("ok", topic, held)
		s.step("ok", "flush")
	}
	s.play(t, e, p, producerKind{})
	return held
}

// withoutAcks: the connection is closed, which tells the client of nothing. What it had under way may be lost; what
// it writes then is not.
func withoutAcks(t *testing.T, e *env, p producer) {
	topic := "unanswered-" + p.name
	s := scripted{next: 2000}
	for range 3 {
		s.sends("", mirrored, nil)
		s.step("ok", "flush")
		s.step("ok", "pause 1000")
	}
	for range 5 {
		s.sends("ok", topic, nil)
		s.step("ok", "flush")
		s.step("ok", "pause 500")
	}
	s.play(t, e, p, producerKind{noAcks: true})
	for part := range int32(partitions) {
		if end := e.end(t, topic, part); end < 3 {
			t.Errorf("%s: %s-%d has %d records of 5", p.name, topic, part, end)
		}
	}
}

package workload

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// lab is a checker with records made by hand: ten committed ones, numbers 3 and 4 aborted.
func lab(t *testing.T, kind Kind, cfg CheckConfig) (*checker, []*kgo.Record) {
	t.Helper()
	l, err := New(Config{Bootstrap: []string{"localhost:1"}, Kinds: []Kind{kind}})
	if err != nil {
		t.Fatal(err)
	}
	topic := l.topics[0]
	var records []*kgo.Record
	for n := range int64(10) {
		r := l.filler.record(topic.name, kind, 0, topic.ledger.take(0), 100)
		r.Offset = n * 2
		hidden := kind == Transactional && (n == 3 || n == 4)
		topic.ledger.acked(0, n, !hidden)
		if hidden {
			topic.ledger.end(map[int32]*spans{0: {{n, n + 1}}}, aborted)
		} else if kind.compacted() {
			topic.ledger.key(0, string(r.Key), n, r.Value == nil)
		}
		records = append(records, r)
	}
	c := &checker{
		load: l, topic: topic, cfg: cfg, want: topic.ledger.snapshot()[0], report: &TopicReport{},
		newest: -1, keys: make(map[string]int64),
	}
	return c, records
}

func without(records []*kgo.Record, i ...int) []*kgo.Record {
	var out []*kgo.Record
next:
	for j, r := range records {
		for _, k := range i {
			if j == k {
				continue next
			}
		}
		out = append(out, r)
	}
	return out
}

func TestCheckerFindsWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name   string
		kind   Kind
		cfg    CheckConfig
		change func([]*kgo.Record) []*kgo.Record
		want   string // part of the problem, "" for none
	}{
		{name: "all", kind: Idempotent},
		{name: "all shapes", kind: Shapes},
		{
			name: "lost", kind: Idempotent, want: "1 acknowledged records are missing: 5",
			change: func(r []*kgo.Record) []*kgo.Record { return without(r, 5) },
		},
		{
			name: "lost at the end", kind: Idempotent, want: "missing: 8-9",
			change: func(r []*kgo.Record) []*kgo.Record { return without(r, 8, 9) },
		},
		{
			name: "lost at the end of a prefix", kind: Idempotent, cfg: CheckConfig{Prefix: true},
			change: func(r []*kgo.Record) []*kgo.Record { return without(r, 8, 9) },
		},
		{
			name: "hole in a prefix", kind: Idempotent, cfg: CheckConfig{Prefix: true}, want: "missing: 2",
			change: func(r []*kgo.Record) []*kgo.Record { return without(r, 2, 9) },
		},
		{
			name: "doubled", kind: Idempotent, want: "number 4 comes after 4",
			change: func(r []*kgo.Record) []*kgo.Record { return append(r[:5:5], r[4:]...) },
		},
		{
			name: "doubled by a plain producer", kind: Plain,
			change: func(r []*kgo.Record) []*kgo.Record { return append(r[:5:5], r[4:]...) },
		},
		{
			name: "swapped", kind: Idempotent, want: "number 6 comes after 7",
			change: func(r []*kgo.Record) []*kgo.Record { r[6], r[7] = r[7], r[6]; return r },
		},
		{
			name: "damaged", kind: Idempotent, want: "not what was produced",
			change: func(r []*kgo.Record) []*kgo.Record { r[1].Value[50] ^= 1; return r },
		},
		{
			name: "longer", kind: Idempotent, want: "not what was produced",
			change: func(r []*kgo.Record) []*kgo.Record {
				r[1].Value = append(r[1].Value, make([]byte, 1<<20)...)
				return r
			},
		},
		{
			name: "foreign", kind: Idempotent, want: "carries no number",
			change: func(r []*kgo.Record) []*kgo.Record { return append(r, &kgo.Record{Value: []byte("rogue")}) },
		},
		{name: "aborted, seen uncommitted", kind: Transactional},
		{name: "aborted, visible", kind: Transactional, cfg: CheckConfig{Committed: true}, want: "number 3 is of an aborted"},
		{
			name: "aborted, hidden", kind: Transactional, cfg: CheckConfig{Committed: true},
			change: func(r []*kgo.Record) []*kgo.Record { return without(r, 3, 4) },
		},
		{name: "compacted", kind: Compacted},
		{
			name: "compacted, key lost", kind: Compacted, want: "key k07 is missing",
			change: func(r []*kgo.Record) []*kgo.Record { return without(r, 7) },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, records := lab(t, tt.kind, tt.cfg)
			if tt.change != nil {
				records = tt.change(records)
			}
			for _, r := range records {
				c.record(r)
			}
			c.complete()
			got := errors.Join(c.problems...)
			switch {
			case tt.want == "" && got != nil:
				t.Fatalf("found %v", got)
			case tt.want != "" && (got == nil || !strings.Contains(got.Error(), tt.want)):
				t.Fatalf("found %v, want %q", got, tt.want)
			}
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no bootstrap": {},
		"unknown kind": {Bootstrap: []string{"a:1"}, Kinds: []Kind{99}},
		"kind twice":   {Bootstrap: []string{"a:1"}, Kinds: []Kind{Plain, Plain}},
		"negative":     {Bootstrap: []string{"a:1"}, Rate: -1},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	l, err := New(Config{Bootstrap: []string{"a:1"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(l.Topics()); got != 12 {
		t.Errorf("%d topics, want 12: seven kinds and five codecs", got)
	}
}

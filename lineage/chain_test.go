package lineage

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// cache is an independent model of Kafka's LeaderEpochFileCache: a sorted map of epochs.
type cache map[int32]int64

func (c cache) epochs() []int32 { return slices.Sorted(maps.Keys(c)) }

func (c cache) latest() int32 {
	if len(c) == 0 {
		return Undefined
	}
	return slices.Max(c.epochs())
}

func (c cache) assign(epoch int32, start int64) {
	if l := c.latest(); l == epoch && start >= c[l] {
		return
	}
	maps.DeleteFunc(c, func(e int32, s int64) bool { return e >= epoch || s >= start })
	c[epoch] = start
}

func (c cache) truncateFromEnd(end int64) {
	maps.DeleteFunc(c, func(_ int32, s int64) bool { return s >= end })
}

func (c cache) truncateFromStart(start int64) {
	last := int32(Undefined)
	for _, e := range c.epochs() {
		if c[e] <= start {
			delete(c, e)
			last = e
		}
	}
	if last != Undefined {
		c[last] = start
	}
}

func (c cache) endOffsetFor(epoch int32, logEnd int64) (int32, int64) {
	if epoch == Undefined {
		return Undefined, Undefined
	}
	if len(c) > 0 && c.latest() == epoch {
		return epoch, logEnd
	}
	floor, higher := int32(Undefined), int32(Undefined)
	for _, e := range c.epochs() {
		if e <= epoch {
			floor = e
		} else if higher == Undefined {
			higher = e
		}
	}
	switch {
	case higher == Undefined:
		return Undefined, Undefined
	case floor == Undefined:
		return epoch, c[higher]
	}
	return floor, c[higher]
}

func TestEndOffsetForIsLeaderEpochFileCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var chain Chain
		model := cache{}
		epoch, end := int32(0), int64(0)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0, 1:
				epoch += int32(rapid.IntRange(0, 2).Draw(t, "epochs"))
				chain = chain.Append(Entry{epoch, int32(rapid.IntRange(0, 3).Draw(t, "source")), end})
				model.assign(epoch, end)
			case 2:
				end += int64(rapid.IntRange(0, 5).Draw(t, "append"))
			case 3:
				end = int64(rapid.IntRange(0, int(end)).Draw(t, "end"))
				chain = chain.Cut(end)
				model.truncateFromEnd(end)
			case 4:
				start := int64(rapid.IntRange(0, int(end)).Draw(t, "start"))
				chain = chain.Trim(start)
				model.truncateFromStart(start)
			}
			for e := int32(-1); e <= epoch+1; e++ {
				ge, gotEnd := chain.EndOffsetFor(e, end)
				we, wo := model.endOffsetFor(e, end)
				if ge != we || gotEnd != wo {
					t.Fatalf("%v: EndOffsetFor(%d, %d) = %d, %d; the cache %v says %d, %d", chain, e, end, ge, gotEnd, model, we, wo)
				}
			}
		}
	})
}

func TestEndOffsetFor(t *testing.T) {
	c := Chain{{2, 0, 10}, {2, 1, 15}, {5, 1, 20}, {7, 3, 30}}
	for _, tt := range []struct {
		name  string
		chain Chain
		epoch int32
		e     int32
		o     int64
	}{
		{"undefined", c, Undefined, Undefined, Undefined},
		{"no entries", nil, 3, Undefined, Undefined},
		{"newest ends at the log end", c, 7, 7, 99},
		{"known", c, 5, 5, 30},
		{"several source epochs are one epoch", c, 2, 2, 20},
		{"between known ones", c, 3, 2, 20},
		{"below all", c, 1, 1, 10},
		{"above all", c, 8, Undefined, Undefined},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if e, o := tt.chain.EndOffsetFor(tt.epoch, 99); e != tt.e || o != tt.o {
				t.Errorf("got %d, %d, want %d, %d", e, o, tt.e, tt.o)
			}
		})
	}
}

func TestChain(t *testing.T) {
	c := Chain{{2, 0, 10}, {2, 1, 15}, {5, 1, 20}, {7, NoSource, 30}}
	if e, ok := c.At(9); ok {
		t.Errorf("At below the first entry: %v", e)
	}
	if e, _ := c.At(20); e.Epoch != 5 {
		t.Errorf("At(20) = %v", e)
	}
	for o, want := range map[int64]int32{0: NoSource, 10: NoSource, 11: 0, 15: 0, 16: 1, 30: 1, 31: NoSource} {
		if got := c.SourceEpochBefore(o); got != want {
			t.Errorf("SourceEpochBefore(%d) = %d, want %d", o, got, want)
		}
	}
	if got := c.CutEpoch(4); len(got) != 2 {
		t.Errorf("CutEpoch(4) = %v", got)
	}
	if o, ok := c.FirstLocal(); !ok || o != 30 {
		t.Errorf("FirstLocal = %d, %v", o, ok)
	}
	if _, ok := c[:3].FirstLocal(); ok {
		t.Error("FirstLocal found something in a chain without local entries")
	}
	if !c.WrittenBehind() || c[:3].WrittenBehind() || c[3:].WrittenBehind() || (Chain{}).WrittenBehind() {
		t.Error("WrittenBehind")
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []Chain{{{2, 0, 10}, {1, 0, 20}}, {{2, 0, 10}, {3, 0, 10}}, {{2, 0, 10}, {2, 0, 20}}} {
		if bad.Validate() == nil {
			t.Errorf("%v is valid", bad)
		}
	}
	if c.Append(Entry{7, NoSource, 40}).String() != c.String() {
		t.Error("Append of the same epochs changed the chain")
	}
	if got := c.Append(Entry{8, 1, 15}); len(got) != 2 || got[1].Epoch != 8 {
		t.Errorf("Append in the middle = %v", got)
	}
	if c[3].Epoch != 7 {
		t.Error("Append changed its receiver")
	}
}

// The chains of safety-rules.md and model-findings.md, by their names there.
func TestCommonPrefix(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ca     Chain
		ea     int64
		cb     Chain
		eb     int64
		prefix int64
	}{
		{"R5 one log is a part of the other", Chain{{1, 0, 0}}, 10, Chain{{1, 0, 0}, {2, 0, 8}}, 20, 8},
		{"R5 equal logs", Chain{{1, 0, 0}, {2, 0, 8}}, 20, Chain{{1, 0, 0}, {2, 0, 8}}, 20, 20},
		{"C4 the minimum of the ends is no agreed point", Chain{{5, 0, 0}}, 150, Chain{{5, 0, 0}, {6, 0, 120}}, 130, 120},
		{"C3 replaced lineage", Chain{{1, 0, 0}}, 2, Chain{{2, 0, 0}}, 1, 0},
		{"C11 a gap where the epoch begins", Chain{{1, 0, 0}, {2, 0, 1}}, 5, Chain{{1, 0, 0}, {2, 0, 2}}, 4, 4},
		{"C11 a gap as long as what the other holds", Chain{{1, 0, 0}, {2, 0, 10}}, 20, Chain{{1, 0, 0}, {2, 0, 25}}, 30, 20},
		{"an empty epoch at the end counts for nothing", Chain{{1, 0, 0}, {3, -1, 10}}, 10, Chain{{1, 0, 0}, {2, 0, 10}, {3, 0, 20}}, 30, 10},
		{"a log without records", nil, 200, Chain{{1, 0, 0}}, 150, 150},
		{"trimmed chains without a common epoch", Chain{{5, 0, 100}}, 200, Chain{{1, 0, 0}, {3, 0, 80}}, 150, 100},
		{"one ends before the other begins", Chain{{5, 0, 100}}, 200, Chain{{1, 0, 0}}, 50, 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := CommonPrefix(tt.ca, tt.ea, tt.cb, tt.eb); got != tt.prefix {
				t.Errorf("got %d, want %d", got, tt.prefix)
			}
			if got := CommonPrefix(tt.cb, tt.eb, tt.ca, tt.ea); got != tt.prefix {
				t.Errorf("the other way round: got %d, want %d", got, tt.prefix)
			}
		})
	}
}

func TestSourceTruncation(t *testing.T) {
	c := Chain{{1, 2, 10}, {2, 2, 20}, {2, 4, 30}, {3, 7, 50}}
	for _, tt := range []struct {
		name  string
		epoch int32
		end   int64
		want  int64
	}{
		{"the epoch is known and longer here", 4, 40, 40},
		{"the epoch is known and longer there", 4, 60, 50},
		{"the epoch goes over several of ours", 2, 25, 25},
		{"the epoch is not known here: ask again", 5, 45, 50},
		{"the newest epoch", 7, 55, 55},
		{"all that is here is newer", 1, 15, 10},
		{"all that is here is newer, and the source is shorter", 1, 5, 5},
		{"no answer at all", -1, Undefined, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := c.SourceTruncation(tt.epoch, tt.end, 70); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// ---- simulated logs

type rec struct {
	id    int
	epoch int32
}

type log struct {
	recs []rec // by offset; id 0 is a hole
}

func (l log) end() int64 { return int64(len(l.recs)) }

func (l log) last() int32 {
	for i := len(l.recs) - 1; i >= 0; i-- {
		if l.recs[i].id != 0 {
			return l.recs[i].epoch
		}
	}
	return Undefined
}

// agreed is the longest part in which two logs hold the same; strict counts holes too.
func agreed(a, b log, strict bool) int64 {
	n := min(len(a.recs), len(b.recs))
	for i := range n {
		x, y := a.recs[i], b.recs[i]
		if x.id != y.id && (strict || x.id != 0 && y.id != 0) {
			return int64(i)
		}
	}
	return int64(n)
}

// replicas plays appends, elections of real and virtual leaders and truncations, as Kafka's
// protocol would leave the logs of a few replicas, and returns them with what the state
// topic keeps. With gaps, leaders see the source compacted and leave holes.
func replicas(t *rapid.T, gaps bool) ([]log, Record) {
	logs := make([]log, rapid.IntRange(2, 3).Draw(t, "replicas"))
	state := NewRecord()
	next, epoch, source := 0, int32(0), int32(0)
	var lead log
	var chain Chain
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		switch rapid.IntRange(0, 5).Draw(t, "op") {
		case 0: // an election: somebody's log is what the leader goes on from
			who := rapid.IntRange(0, len(logs)-1).Draw(t, "who")
			old, _, known := state.ChainOf(Log{End: logs[who].end(), LastEpoch: logs[who].last()})
			if !known {
				t.Fatal("unknown log")
			}
			epoch++
			lead = log{slices.Clone(logs[who].recs)}
			chain = old
			if rapid.Bool().Draw(t, "source epoch") {
				source++
			}
			if gaps && rapid.Bool().Draw(t, "gap") { // compacted since
				lead.recs = append(lead.recs, rec{})
			}
			chain = chain.Append(Entry{epoch, source, lead.end()})
			state = state.With(epoch, chain)
		case 1, 2: // the leader appends
			if epoch == 0 {
				continue
			}
			next++
			if gaps && rapid.IntRange(0, 3).Draw(t, "hole") == 0 {
				lead.recs = append(lead.recs, rec{})
			}
			lead.recs = append(lead.recs, rec{next, epoch})
		default: // a follower truncates and copies some
			if epoch == 0 {
				continue
			}
			who := rapid.IntRange(0, len(logs)-1).Draw(t, "who")
			p := agreed(logs[who], lead, true)
			n := int(min(lead.end(), p+int64(rapid.IntRange(0, 4).Draw(t, "copied"))))
			for n > 0 && n > int(p) && lead.recs[n-1].id == 0 {
				n-- // a log ends behind a record
			}
			logs[who].recs = slices.Clone(lead.recs[:n])
			for k := len(logs[who].recs); k > 0 && logs[who].recs[k-1].id == 0; k-- {
				logs[who].recs = logs[who].recs[:k-1]
			}
		}
	}
	return logs, state
}

func TestCommonPrefixOfSimulatedLogs(t *testing.T) {
	for _, gaps := range []bool{false, true} {
		t.Run(map[bool]string{false: "maximal without gaps", true: "agreed with gaps"}[gaps], func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				logs, state := replicas(t, gaps)
				for _, a := range logs {
					for _, b := range logs {
						ca, ea, ok1 := state.ChainOf(Log{End: a.end(), LastEpoch: a.last()})
						cb, eb, ok2 := state.ChainOf(Log{End: b.end(), LastEpoch: b.last()})
						if !ok1 || !ok2 {
							t.Fatalf("unknown: %v %v", a, b)
						}
						got, want := CommonPrefix(ca, ea, cb, eb), agreed(a, b, false)
						if got > want || !gaps && got < want {
							t.Fatalf("%v and %v agree up to %d, CommonPrefix(%v, %v) says %d", a, b, want, ca, cb, got)
						}
					}
				}
			})
		})
	}
}

func TestAgreeOnSimulatedLogs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logs, state := replicas(t, false)
		in := make([]Log, len(logs))
		want := logs[0].end()
		for i, l := range logs {
			in[i] = Log{End: l.end(), LastEpoch: l.last()}
			for _, m := range logs {
				want = min(want, agreed(l, m, false))
			}
		}
		s, chain, ok := state.Agree(in)
		if !ok || s != want {
			t.Fatalf("%v agree up to %d; Agree says %d, %v", logs, want, s, ok)
		}
		if err := chain.Validate(); err != nil {
			t.Fatal(err)
		}
		for o := range s { // the chain describes what is agreed
			if e, ok := chain.At(o); !ok || e.Epoch != logs[0].recs[o].epoch {
				t.Fatalf("offset %d has epoch %d, chain %v", o, logs[0].recs[o].epoch, chain)
			}
		}
	})
}

// TestSourceTruncationConverges: however the source and the mirror came to differ, asking
// and cutting ends, at the longest part that they share.
func TestSourceTruncationConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var source, mirror log
		var scache cache = map[int32]int64{0: 0}
		var chain Chain
		next, sle, dle := 0, int32(0), int32(1)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0, 1:
				next++
				source.recs = append(source.recs, rec{next, sle})
				scache.assign(sle, source.end()-1)
			case 2: // a clean or an unclean election
				source.recs = source.recs[:rapid.IntRange(0, len(source.recs)).Draw(t, "kept")]
				sle++
				scache.truncateFromEnd(source.end())
				scache.assign(sle, source.end())
			case 3: // the mirror copies, as far as it does not see a divergence
				if agreed(source, mirror, true) < mirror.end() {
					continue
				}
				if rapid.Bool().Draw(t, "new epoch here") {
					dle++
				}
				n := min(source.end(), mirror.end()+int64(rapid.IntRange(0, 4).Draw(t, "copied")))
				for _, r := range source.recs[mirror.end():n] {
					chain = chain.Append(Entry{dle, r.epoch, mirror.end()})
					mirror.recs = append(mirror.recs, r)
				}
			}
		}
		s := mirror.end()
		for range 50 {
			last := chain.SourceEpochBefore(s)
			e, o := scache.endOffsetFor(last, source.end())
			if last != NoSource && e == Undefined {
				t.Fatal("the source knows no epoch as high as ours")
			}
			if last == NoSource || e == last && o >= s {
				break
			}
			to := chain.SourceTruncation(e, o, s)
			if to >= s {
				t.Fatalf("no progress at %d: source says %d ends at %d, chain %v", s, e, o, chain)
			}
			s, chain = to, chain.Cut(to)
		}
		if want := agreed(source, mirror, true); s != want {
			t.Fatalf("source %v and mirror %v agree up to %d, found %d", source, mirror, want, s)
		}
	})
}

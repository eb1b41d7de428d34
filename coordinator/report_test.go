package coordinator

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
)

func reportKinds() []replica.ReportKind {
	return []replica.ReportKind{replica.Aligned, replica.Failing, replica.Note, replica.Quiet, replica.Pauses, replica.Rests}
}

// TestReportSteps: what each report does in each state, by what is wanted.
func TestReportSteps(t *testing.T) {
	type row map[State][]State
	one := func(s ...State) []State { return s }
	for _, c := range []struct {
		name    string
		desired State
		kind    replica.ReportKind
		want    row // states that are not named: nothing happens
	}{
		{"aligned", Mirroring, replica.Aligned, row{
			Unknown: one(LogTruncation, Mirroring), Stopped: one(LogTruncation, Mirroring), LogTruncation: one(Mirroring), Mirroring: one(Mirroring),
			Pausing: one(Paused, Mirroring), Paused: one(Mirroring), Failed: one(Mirroring),
		}},
		{"aligned, to be paused", Paused, replica.Aligned, row{
			Unknown: one(LogTruncation, Mirroring, Pausing), Stopped: one(LogTruncation, Mirroring, Pausing), LogTruncation: one(Mirroring, Pausing),
			Mirroring: one(Pausing), Pausing: one(Pausing), Paused: one(Paused), Failed: one(Mirroring, Pausing),
		}},
		{"aligned, to be stopped", Stopped, replica.Aligned, row{}},
		{"pauses", Paused, replica.Pauses, row{Mirroring: one(Pausing), Pausing: one(Pausing), Paused: one(Paused)}},
		{"pauses, resumed meanwhile", Mirroring, replica.Pauses, row{}},
		{"pauses, to be stopped", Stopped, replica.Pauses, row{}},
		{"rests", Paused, replica.Rests, row{
			Unknown: one(LogTruncation, Mirroring, Pausing, Paused), Stopped: one(LogTruncation, Mirroring, Pausing, Paused),
			LogTruncation: one(Mirroring, Pausing, Paused), Mirroring: one(Pausing, Paused), Pausing: one(Paused), Paused: one(Paused),
			Failed: one(Mirroring, Pausing, Paused),
		}},
		{"rests, resumed meanwhile", Mirroring, replica.Rests, row{}},
		{"rests, to be stopped", Stopped, replica.Rests, row{}},
		{"failing", Mirroring, replica.Failing, row{
			Unknown: one(Failed), LogTruncation: one(Failed), Mirroring: one(Failed), Pausing: one(Failed), Paused: one(Failed), Stopped: one(Failed), Failed: one(Failed),
		}},
		{"failing, to be stopped", Stopped, replica.Failing, row{}},
		{"note", Mirroring, replica.Note, row{
			Unknown: one(LogTruncation), Stopped: one(LogTruncation), LogTruncation: one(LogTruncation), Mirroring: one(Mirroring), Pausing: one(Pausing),
			Paused: one(Paused), Failed: one(Failed),
		}},
		{"note, to be stopped", Stopped, replica.Note, row{}},
		{"quiet", Stopped, replica.Quiet, row{
			Unknown: one(Stopping), LogTruncation: one(Stopping), Mirroring: one(Stopping), Pausing: one(Stopping), Paused: one(Stopping),
			Stopping: one(Stopping), Failed: one(Stopping),
		}},
		{"quiet, not to be stopped", Mirroring, replica.Quiet, row{}},
		{"quiet, to be paused", Paused, replica.Quiet, row{}},
	} {
		for _, s := range allStates() {
			if got := reportSteps(s, Topic{Desired: c.desired}, c.kind); !slices.Equal(got, c.want[s]) {
				t.Errorf("%s in %s: %v, want %v", c.name, s, got, c.want[s])
			}
		}
	}
}

// TestReportStepsAreTransitions: each step of a report is one of the state machine.
func TestReportStepsAreTransitions(t *testing.T) {
	for _, s := range allStates() {
		for _, desired := range []State{Mirroring, Paused, Stopped} {
			for _, fault := range []string{"", "the source is another"} {
				for _, kind := range reportKinds() {
					from := s
					for _, to := range reportSteps(s, Topic{Desired: desired, Fault: fault}, kind) {
						if !Transition(from, to) {
							t.Errorf("report %d in %s, wanted %s: %s to %s", kind, s, desired, from, to)
						}
						if fault != "" && kind != replica.Note && kind != replica.Quiet && to != Failed {
							t.Errorf("report %d in %s leads to %s in spite of a fault", kind, s, to)
						}
						from = to
					}
				}
			}
		}
	}
}

// TestConsentByState: what a leader may do (R20).
func TestConsentByState(t *testing.T) {
	may := leading.Consent{Truncate: true}
	runs := leading.Consent{Truncate: true, AllowLoss: true, Runs: true}
	for _, c := range []struct {
		state, previous, desired State
		allow                    bool
		want                     leading.Consent
	}{
		{Unknown, Unknown, Mirroring, false, may},
		{Stopped, Stopping, Mirroring, false, may},
		{LogTruncation, Unknown, Mirroring, false, may},
		{LogTruncation, Unknown, Mirroring, true, leading.Consent{Truncate: true, AllowLoss: true, AllowUnknown: true}},
		{Mirroring, LogTruncation, Mirroring, false, runs},
		{Mirroring, LogTruncation, Paused, false, runs},
		{Pausing, Mirroring, Paused, false, runs},
		{Paused, Pausing, Paused, false, leading.Consent{AsItIs: true}},
		{Paused, Pausing, Paused, true, leading.Consent{AsItIs: true}},
		{Paused, Pausing, Mirroring, false, leading.Consent{}}, // not before MIRRORING is on record
		{Failed, LogTruncation, Mirroring, false, may},
		{Failed, Mirroring, Mirroring, false, runs},
		{Failed, Paused, Paused, false, leading.Consent{AsItIs: true}},
		{Failed, Stopping, Mirroring, false, leading.Consent{}},
		{Mirroring, LogTruncation, Stopped, true, leading.Consent{}}, // truncates nothing
		{Stopping, Mirroring, Stopped, true, leading.Consent{}},
		{Paused, Pausing, Stopped, false, leading.Consent{}},
		{Stopping, Mirroring, Stopped, false, leading.Consent{}},
		{Stopping, Mirroring, Mirroring, false, leading.Consent{}},
		{Stopped, Stopping, Stopped, false, leading.Consent{}},
	} {
		s, topic := PartitionState{State: c.state, Previous: c.previous}, Topic{Desired: c.desired, AllowTruncate: c.allow, GiveUp: map[int32]int64{3: 1}}
		if got := consent(s, topic, 0); got != c.want {
			t.Errorf("%s (before: %s), wanted %s: %+v, want %+v", c.state, c.previous, c.desired, got, c.want)
		}
		// R15: whoever lets records be dropped has given up no replica.
		c.want.GiveUp = !c.want.AsItIs
		if got := consent(s, topic, 3); got != c.want {
			t.Errorf("%s (before: %s), wanted %s, given up: %+v, want %+v", c.state, c.previous, c.desired, got, c.want)
		}
	}
}

// TestFenceState: what a new leader records first.
func TestFenceState(t *testing.T) {
	for _, c := range []struct {
		now     PartitionState
		desired State
		want    State
		ok      bool
	}{
		{PartitionState{State: Unknown, LeaderEpoch: -1}, Mirroring, LogTruncation, true},
		{PartitionState{State: Stopped, LeaderEpoch: 3}, Mirroring, LogTruncation, true},
		{PartitionState{State: Stopped, LeaderEpoch: 3}, Stopped, Stopped, false},
		{PartitionState{State: Unknown, LeaderEpoch: -1}, Stopped, Unknown, false},
		{PartitionState{State: Mirroring, LeaderEpoch: 7}, Mirroring, Mirroring, false},
		{PartitionState{State: Mirroring, LeaderEpoch: 3, Detail: "X"}, Mirroring, Mirroring, true},
		{PartitionState{State: Paused, LeaderEpoch: 3}, Paused, Paused, true},
		{PartitionState{State: Stopping, LeaderEpoch: 3, Detail: DetailQuiesced}, Stopped, Stopping, true},
		{PartitionState{State: Failed, LeaderEpoch: 3, ErrorMessage: "X"}, Mirroring, Failed, true},
	} {
		got, ok := fenceState(c.now, Topic{Desired: c.desired}, 7)
		if ok != c.ok || got.State != c.want {
			t.Errorf("%+v, wanted %s: %+v, %t", c.now, c.desired, got, ok)
		}
		if keeps := c.now.State == Failed; ok && (got.Detail != "" || (got.ErrorMessage != "") != keeps) {
			t.Errorf("%+v: leaves %+v", c.now, got)
		}
	}
}

// TestReportWrites: the lineage with the end comes before the state that lets the
// partition go.
func TestReportWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(allStates()).Draw(t, "state")
		topic := Topic{Desired: rapid.SampledFrom([]State{Mirroring, Paused, Stopped}).Draw(t, "desired")}
		r := replica.Report{
			Kind: rapid.SampledFrom(reportKinds()).Draw(t, "kind"), Detail: "D", Message: "M", Retry: 3, LastMirrorEpoch: 4, LastMirrorOffset: 50,
		}
		writes := reportWrites(s, lineage.NewRecord(), topic, partitionKey{mirror: "m"}, 9, r)
		for i, w := range writes {
			if w.leaderEpoch != 9 || (w.lineage == nil) == (w.state == nil) {
				t.Fatalf("write %d: %+v", i, w)
			}
			if w.lineage != nil && (i != len(writes)-2 || r.Kind != replica.Quiet || w.lineage.LastMirrorOffset != 50 || w.lineage.LastMirrorEpoch != 4) {
				t.Fatalf("write %d: %+v", i, w.lineage)
			}
			if last := i == len(writes)-1; w.state != nil && (w.state.Detail == "D") != last {
				t.Fatalf("write %d: %+v", i, w.state)
			}
		}
		if r.Kind != replica.Quiet || len(writes) == 0 {
			return
		}
		if writes[len(writes)-2].lineage == nil {
			t.Fatal("the end is not recorded")
		}
		if s != Stopping && (len(writes) != 3 || writes[0].state == nil || writes[0].state.State != Stopping || writes[0].state.Detail != "") {
			t.Fatalf("STOPPING is not entered first: %+v", writes)
		}
	})
}

// TestToldStays: what happened to the data of a partition stays on record when somebody else leads,
// until the mirror is paused or stopped, or something else has to be told.
func TestToldStays(t *testing.T) {
	was := PartitionState{State: Mirroring, LeaderEpoch: 4, Detail: replica.DetailHole, ErrorMessage: "offsets 3 to 7"}
	next, ok := fenceState(was, Topic{Desired: Mirroring}, 5)
	if !ok || next.Detail != was.Detail || next.ErrorMessage != was.ErrorMessage {
		t.Errorf("a new leader records %+v", next)
	}
	if r := keepTold(next, replica.Report{Kind: replica.Aligned}); r.Detail != was.Detail || r.Message != was.ErrorMessage {
		t.Errorf("aligned: %+v", r)
	}
	if r := keepTold(next, replica.Report{Kind: replica.Aligned, Detail: replica.DetailTruncated, Message: "news"}); r.Message != "news" {
		t.Errorf("news: %+v", r)
	}
	for _, s := range []PartitionState{
		{State: Mirroring, Detail: DetailSourceUnavailable, ErrorMessage: "x"},
		{State: Paused, Detail: replica.DetailHole, ErrorMessage: "x"},
		{State: Stopping, Detail: DetailQuiesced},
	} {
		if next, _ := fenceState(s, Topic{Desired: Mirroring}, 5); next.Detail != "" || next.ErrorMessage != "" {
			t.Errorf("%+v: a new leader records %+v", s, next)
		}
		if r := keepTold(s, replica.Report{Kind: replica.Aligned}); r.Detail != "" || r.Message != "" {
			t.Errorf("%+v: aligned: %+v", s, r)
		}
	}
	if r := keepTold(was, replica.Report{Kind: replica.Pauses}); r.Detail != "" {
		t.Errorf("pauses: %+v", r)
	}
}

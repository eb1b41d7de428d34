package coordinator

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

func TestVerbState(t *testing.T) {
	for name, c := range map[string]struct {
		desired    State
		partitions []State
		handedBack bool
		want       State
	}{
		"not created yet":               {desired: Mirroring, want: LogTruncation},
		"stopped before it was created": {desired: Stopped, handedBack: true, want: Stopped},
		"new":                           {desired: Mirroring, partitions: []State{Unknown, Unknown}, want: LogTruncation},
		"started again":                 {desired: Mirroring, partitions: []State{Stopped, Mirroring}, want: LogTruncation},
		"a partition is new":            {desired: Mirroring, partitions: []State{Mirroring, LogTruncation}, want: LogTruncation},
		"mirroring":                     {desired: Mirroring, partitions: []State{Mirroring, Mirroring}, want: Mirroring},
		"one failed":                    {desired: Mirroring, partitions: []State{Mirroring, Failed, LogTruncation}, want: Failed},
		"one failed, paused":            {desired: Paused, partitions: []State{Paused, Failed}, want: Failed},
		"pausing":                       {desired: Paused, partitions: []State{Paused, Mirroring}, want: Pausing},
		"paused":                        {desired: Paused, partitions: []State{Paused, Paused}, want: Paused},
		"on its way back":               {desired: Mirroring, partitions: []State{Paused, Mirroring}, want: Mirroring},
		"stopping":                      {desired: Stopped, partitions: []State{Stopped, Stopping}, handedBack: true, want: Stopping},
		"stopping, failed":              {desired: Stopped, partitions: []State{Failed}, want: Stopping},
		"STOPPED, still assigned":       {desired: Stopped, partitions: []State{Stopped}, want: Stopping},
		"stopped":                       {desired: Stopped, partitions: []State{Stopped, Stopped}, handedBack: true, want: Stopped},
	} {
		if got := verbState(c.desired, c.partitions, c.handedBack); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestVerbByState is contract-additions §2, through the API: each verb on a topic in each
// state.
func TestVerbByState(t *testing.T) {
	const (
		ok, notIn                = 0, protocol.TopicNotInClusterMirror
		already, notPaused       = protocol.MirrorTopicAlreadyPaused, protocol.MirrorTopicNotPaused
		stopping, bad, notStoppd = protocol.MirrorTopicBeingStopped, protocol.InvalidClusterMirrorStates, protocol.MirrorTopicNotStopped
	)
	r := newRig(t)
	type row struct {
		topic                               string
		desired                             State
		state                               State
		start, stop, pause, resume, recover int16
	}
	rows := []row{
		{"none", Unknown, Unknown, ok, notIn, notIn, notIn, notIn},
		{"truncating", Mirroring, LogTruncation, ok, ok, bad, notPaused, bad},
		{"mirroring", Mirroring, Mirroring, ok, ok, ok, notPaused, bad},
		{"pausing", Paused, Mirroring, notStoppd, ok, already, notPaused, bad},
		{"paused", Paused, Paused, notStoppd, ok, already, ok, bad},
		{"stopping", Stopped, Mirroring, stopping, ok, stopping, stopping, bad},
		{"stopped", Stopped, Stopped, ok, ok, stopping, stopping, bad},
		{"failed", Mirroring, Failed, ok, ok, bad, notPaused, ok},
		{"now-elsewhere", Stopped, Stopped, protocol.TopicAlreadyInClusterMirror, notIn, notIn, notIn, notIn},
		{"elsewhere", Unknown, Unknown, protocol.TopicAlreadyInClusterMirror, notIn, notIn, notIn, notIn},
		{"was-elsewhere", Unknown, Unknown, ok, notIn, notIn, notIn, notIn},
		{"__consumer_offsets", Unknown, Unknown, kerr.InvalidTopicException.Code, notIn, notIn, notIn, notIn},
		{"not-at-the-source", Unknown, Unknown, kerr.UnknownTopicOrPartition.Code, notIn, notIn, notIn, notIn},
		{"__hidden", Unknown, Unknown, kerr.InvalidRequest.Code, notIn, notIn, notIn, notIn},
	}
	for _, x := range rows {
		if x.desired != Unknown {
			r.mirrorTopic(x.topic, x.desired, x.state)
		}
	}
	r.src.set(func(s *fakeSource) {
		for _, n := range []string{"none", "elsewhere", "was-elsewhere", "__hidden"} {
			s.topics[n] = SourceTopic{ID: idOf(n), Partitions: 1}
		}
	})
	r.put(
		record{kind: kindMirror, mirror: "other", value: Mirror{Name: "other", SourceClusterID: "third", Configs: config.Properties{"bootstrap.servers": "x:1"}}},
		record{kind: kindTopic, topic: topicKey{"other", "now-elsewhere"}, value: Topic{Mirror: "other", Name: "now-elsewhere", TopicID: idOf("here now-elsewhere"), Desired: Mirroring}},
		record{kind: kindTopic, topic: topicKey{"other", "elsewhere"}, value: Topic{Mirror: "other", Name: "elsewhere", Desired: Mirroring}},
		record{kind: kindTopic, topic: topicKey{"other", "was-elsewhere"}, value: Topic{Mirror: "other", Name: "was-elsewhere", Desired: Stopped}},
	)
	side := &side{Coordinator: r.Coordinator}
	one := func(code int16, why *string, topics []protocol.TopicResult) int16 {
		t.Helper()
		if code != 0 || len(topics) != 1 {
			t.Fatalf("%s, %+v", message(code, why), topics)
		}
		if topics[0].ErrorCode != 0 && (topics[0].ErrorMessage == nil || *topics[0].ErrorMessage == "") {
			t.Errorf("%s: an error without a message", topics[0].Name)
		}
		return topics[0].ErrorCode
	}
	before := r.view.Topics("m")
	for _, x := range rows {
		names := []string{x.topic}
		start := protocol.NewStartMirrorTopicsRequest()
		start.MirrorName, start.Topics, start.ValidateOnly = "m", names, true
		stop := protocol.NewStopMirrorTopicsRequest()
		stop.MirrorName, stop.Topics, stop.ValidateOnly = "m", names, true
		pause := protocol.NewPauseMirrorTopicsRequest()
		pause.MirrorName, pause.Topics, pause.ValidateOnly = "m", names, true
		resume := protocol.NewResumeMirrorTopicsRequest()
		resume.MirrorName, resume.Topics, resume.ValidateOnly = "m", names, true
		again := protocol.NewRecoverMirrorTopicsRequest()
		again.MirrorName, again.Topics, again.ValidateOnly = "m", names, true
		a := call[*protocol.StartMirrorTopicsResponse](t, side, &start)
		b := call[*protocol.StopMirrorTopicsResponse](t, side, &stop)
		c := call[*protocol.PauseMirrorTopicsResponse](t, side, &pause)
		d := call[*protocol.ResumeMirrorTopicsResponse](t, side, &resume)
		e := call[*protocol.RecoverMirrorTopicsResponse](t, side, &again)
		got := []int16{
			one(a.ErrorCode, a.ErrorMessage, a.Topics), one(b.ErrorCode, b.ErrorMessage, b.Topics), one(c.ErrorCode, c.ErrorMessage, c.Topics),
			one(d.ErrorCode, d.ErrorMessage, d.Topics), one(e.ErrorCode, e.ErrorMessage, e.Topics),
		}
		if want := []int16{x.start, x.stop, x.pause, x.resume, x.recover}; !slices.Equal(got, want) {
			t.Errorf("%s: start, stop, pause, resume, recover answer %v, want %v", x.topic, got, want)
		}
	}
	for i, after := range r.view.Topics("m") {
		if after.Desired != before[i].Desired || after.Since != before[i].Since {
			t.Errorf("ValidateOnly changed %s", after.Name)
		}
	}
	// A mirror that is not there.
	req := protocol.NewPauseMirrorTopicsRequest()
	req.MirrorName, req.Topics = "nobody", []string{"x"}
	if a := call[*protocol.PauseMirrorTopicsResponse](t, side, &req); a.ErrorCode != protocol.UnknownClusterMirror {
		t.Error(message(a.ErrorCode, a.ErrorMessage))
	}
}

// TestVerbsWrite: what a verb changes in the record, and nothing else.
func TestVerbsWrite(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.mirrorTopic("a.1", Mirroring, Mirroring)
	r.mirrorTopic("a.2", Mirroring, Mirroring)
	r.mirrorTopic("a.3", Stopped, Stopped)
	r.mirrorTopic("f", Mirroring, Failed, Mirroring, Failed)
	names := func(results []TopicResult, err error) (done []string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range results {
			if x.Err == nil {
				done = append(done, x.Name)
			}
		}
		return done
	}
	if got := names(r.pauseTopics(ctx, verbRequest{mirror: "m", topics: []string{"a.*"}})); !slices.Equal(got, []string{"a.1", "a.2"}) {
		t.Errorf("paused %v", got)
	}
	if p := r.topicT("a.1"); p.Desired != Paused || p.Since == 0 || p.SourceTopicID != idOf("there a.1") {
		t.Errorf("paused: %+v", p)
	}
	// A dot is any character, but a topic of that very name is meant before all others.
	r.mirrorTopic("a-2", Paused, Paused)
	if got := names(r.resumeTopics(ctx, verbRequest{mirror: "m", topics: []string{"a-2"}})); !slices.Equal(got, []string{"a-2"}) || r.topicT("a-2").Desired != Mirroring {
		t.Errorf("resumed %v", got)
	}
	// The state is what leaders have reached: a.2 is PAUSING.
	if got, err := r.resumeTopics(ctx, verbRequest{mirror: "m", topics: []string{"a.2"}}); err != nil || len(got) != 1 || got[0].Name != "a.2" || got[0].Err == nil {
		t.Errorf("resume of what is PAUSING: %v, %v", got, err)
	}
	if _, err := r.pauseTopics(ctx, verbRequest{mirror: "m", topics: []string{"("}}); err == nil {
		t.Error("a broken pattern was taken")
	}

	// Recover goes on where it failed, clears the fault, and gives consent.
	failed := r.topicT("f")
	failed.Fault = "the topic is gone"
	r.put(record{kind: kindTopic, topic: topicKey{"m", "f"}, value: failed})
	if got := names(r.recoverTopics(ctx, verbRequest{mirror: "m", topics: []string{"f"}, allowTruncate: true})); len(got) != 1 {
		t.Errorf("recovered %v", got)
	}
	now := r.topicT("f")
	if now.Fault != "" || !now.AllowTruncate || now.Since == failed.Since {
		t.Errorf("recovered: %+v", now)
	}
	for p := range int32(3) {
		if s := r.stateOf(now, p); s.State != Mirroring {
			t.Errorf("partition %d is %s after the recover", p, s.State)
		}
	}
}

// TestStartAnew: a start of a stopped topic whose source topic is another one now needs
// consent and forgets the common history; one that runs is stopped first.
func TestStartAnew(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	for _, x := range []struct {
		name           string
		desired, state State
	}{{"stopped", Stopped, Stopped}, {"failed", Mirroring, Failed}} {
		top := r.mirrorTopic(x.name, x.desired, x.state)
		r.put(record{kind: kindLineage, partition: partitionKey{"m", ids.TopicPartition{TopicID: top.TopicID}}, value: lineage.Record{LastMirrorEpoch: 1, LastMirrorOffset: 2, Chains: map[int32]lineage.Chain{1: chain(1)}}})
		r.src.set(func(s *fakeSource) { s.topics[x.name] = SourceTopic{ID: idOf("anew " + x.name), Partitions: 1} })
	}
	start := func(name string) error {
		t.Helper()
		got, err := r.startTopics(ctx, startRequest{mirror: "m", topics: []string{name}, allowTruncate: true})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if got[0].Err != nil {
			return got[0].Err
		}
		return nil
	}
	if code, _ := protocol.CodeOf(start("failed")); code != protocol.MirrorTopicNotStopped {
		t.Errorf("start of what runs: %d", code)
	}
	if err := start("stopped"); err != nil {
		t.Fatal(err)
	}
	now := r.topicT("stopped")
	if now.SourceTopicID != idOf("anew stopped") || !now.TopicID.IsZero() || !now.AllowTruncate || now.Wanted != nil {
		t.Errorf("started: %+v", now)
	}
	if _, known := r.view.Lineage("m", ids.TopicPartition{TopicID: idOf("here stopped")}); known {
		t.Error("the former topic's lineage is still there")
	}
	if _, known := r.view.Lineage("m", ids.TopicPartition{TopicID: idOf("here failed")}); !known {
		t.Error("the lineage of a topic that was refused is gone")
	}
}

func TestPatternsOfVerbs(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.src.set(func(s *fakeSource) {
		for _, n := range []string{"a1", "a2", "a3", "b1", "__x", "__consumer_offsets"} {
			s.topics[n] = SourceTopic{ID: idOf(n), Partitions: 1}
		}
	})
	get := func(key string) string {
		m, _ := r.view.Mirror("m")
		return m.Configs[key]
	}
	if _, err := r.startTopics(ctx, startRequest{mirror: "m", include: []string{"a.*", "__.*"}, exclude: []string{"a2"}, validateOnly: true}); err != nil || get(config.TopicsIncludeKey) != "" {
		t.Fatalf("ValidateOnly: %v, include %q", err, get(config.TopicsIncludeKey))
	}
	got, err := r.startTopics(ctx, startRequest{mirror: "m", topics: []string{"b1"}, include: []string{"a.*"}, exclude: []string{"a2"}})
	if err != nil || len(got) != 3 || got[0].Name != "a1" || got[1].Name != "a3" || got[2].Name != "b1" {
		t.Fatal(got, err)
	}
	if in, out := get(config.TopicsIncludeKey), get(config.TopicsExcludeKey); in != "a.*" || out != "__.*,a2" {
		t.Errorf("include %q, exclude %q", in, out)
	}
	// Patterns that match nothing yet are kept; broken ones are not.
	if got, err := r.startTopics(ctx, startRequest{mirror: "m", include: []string{"later.*"}}); err != nil || len(got) != 0 || get(config.TopicsIncludeKey) != "a.*,later.*" {
		t.Errorf("%v, %v, include %q", got, err, get(config.TopicsIncludeKey))
	}
	if _, err := r.startTopics(ctx, startRequest{mirror: "m", include: []string{"("}}); err == nil || get(config.TopicsIncludeKey) != "a.*,later.*" {
		t.Errorf("a broken pattern: %v, include %q", err, get(config.TopicsIncludeKey))
	}
	// A stop by name keeps it stopped; a start by name takes that back.
	if _, err := r.stopTopics(ctx, stopRequest{mirror: "m", topics: []string{"a1", "b1"}}); err != nil || get(config.TopicsExcludeKey) != "__.*,a2,a1" {
		t.Errorf("%v, exclude %q", err, get(config.TopicsExcludeKey))
	}
	if got, err := r.startTopics(ctx, startRequest{mirror: "m", topics: []string{"a1"}}); err != nil || len(got) != 1 || got[0].Err != nil || get(config.TopicsExcludeKey) != "__.*,a2" {
		t.Errorf("%v, %v, exclude %q", got, err, get(config.TopicsExcludeKey))
	}
	// A stop by pattern moves it, and stops what is excluded then.
	got, err = r.stopTopics(ctx, stopRequest{mirror: "m", patterns: []string{"a.*"}})
	if err != nil || len(got) != 2 || r.topicT("a1").Desired != Stopped || r.topicT("a3").Desired != Stopped {
		t.Errorf("%v, %v", got, err)
	}
	if in, out := get(config.TopicsIncludeKey), get(config.TopicsExcludeKey); in != "later.*" || out != "__.*,a2,a.*" {
		t.Errorf("include %q, exclude %q", in, out)
	}
	// And back.
	if got, err := r.startTopics(ctx, startRequest{mirror: "m", include: []string{"a.*"}}); err != nil || len(got) != 2 || get(config.TopicsExcludeKey) != "__.*,a2" {
		t.Errorf("%v, %v, exclude %q", got, err, get(config.TopicsExcludeKey))
	}
}

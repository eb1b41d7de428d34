package syncs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// fakeMirrors is a coordinator that a test sets.
type fakeMirrors struct {
	mu      sync.Mutex // guards the following
	mirrors map[string]Mirror
	away    error // nil: this sidecar may act
	owned   map[string]map[policy.Kind]map[string]int64
	ownErr  error
	ready   chan struct{} // nil if all is read
	owns    int           // calls of Own that changed something
	woken   map[int]func()
}

func newMirrors(all ...Mirror) *fakeMirrors {
	f := &fakeMirrors{mirrors: map[string]Mirror{}, owned: map[string]map[policy.Kind]map[string]int64{}, woken: map[int]func(){}}
	for _, m := range all {
		f.mirrors[m.Name] = m
	}
	return f
}

// testMirror is a mirror of the cluster with this id.
func testMirror(t *testing.T, name, source string, props ...string) Mirror {
	t.Helper()
	p := config.Properties{"bootstrap.servers": "source:9092"}
	for i := 0; i < len(props); i += 2 {
		p[props[i]] = props[i+1]
	}
	cfg, err := config.ParseMirror(p)
	if err != nil {
		t.Fatal(err)
	}
	return Mirror{Name: name, SourceClusterID: source, Properties: p, Config: cfg}
}

// set changes the mirrors and tells who wants to know.
func (f *fakeMirrors) set(edit func(f *fakeMirrors)) {
	f.mu.Lock()
	edit(f)
	woken := maps.Clone(f.woken)
	f.mu.Unlock()
	for _, fn := range woken {
		fn()
	}
}

func (f *fakeMirrors) Ready() <-chan struct{} {
	if f.ready != nil {
		return f.ready
	}
	ready := make(chan struct{})
	close(ready)
	return ready
}

func (f *fakeMirrors) Coordinated() map[string]config.Properties {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]config.Properties{}
	for n, m := range f.mirrors {
		out[n] = m.Properties
	}
	return out
}

func (f *fakeMirrors) Mirror(_ context.Context, name string) (Mirror, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := f.mirrors[name]
	if !ok {
		return Mirror{}, fmt.Errorf("there is no mirror %s", name)
	}
	return m, f.away
}

func (f *fakeMirrors) Changed(fn func()) (cancel func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.woken)
	f.woken[n] = fn
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.woken, n)
	}
}

func (f *fakeMirrors) Owned(mirror string, kind policy.Kind) map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := maps.Clone(f.owned[mirror][kind])
	if out == nil {
		out = map[string]int64{}
	}
	return out
}

func (f *fakeMirrors) OwnedElsewhere(mirror string, kind policy.Kind) map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]string{}
	for other, kinds := range f.owned {
		for item := range kinds[kind] {
			if other != mirror {
				out[item] = max(out[item], other)
			}
		}
	}
	return out
}

func (f *fakeMirrors) OwnedFirst(mirror string, kind policy.Kind) map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]string{}
	for other, kinds := range f.owned {
		for item := range kinds[kind] {
			if was, ok := out[item]; other != mirror && !f.mirrors[other].Ended && (!ok || other < was) {
				out[item] = other
			}
		}
	}
	return out
}

func (f *fakeMirrors) Own(_ context.Context, mirror string, kind policy.Kind, add, remove []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ownErr != nil {
		return f.ownErr
	}
	if f.owned[mirror] == nil {
		f.owned[mirror] = map[policy.Kind]map[string]int64{}
	}
	items := maps.Clone(f.owned[mirror][kind])
	if items == nil {
		items = map[string]int64{}
	}
	before := maps.Clone(items)
	for _, i := range add {
		if _, known := items[i]; !known {
			items[i] = time.Now().UnixMilli()
		}
	}
	for _, i := range remove {
		delete(items, i)
	}
	if !maps.Equal(before, items) {
		f.owns++
	}
	f.owned[mirror][kind] = items
	return nil
}

// fakeSync runs what a test says.
type fakeSync struct {
	kind policy.Kind
	off  bool
	runs chan policyv1.Round_Why // gets each run as it begins
	do   func(ctx context.Context, m Mirror, src *kgo.Client) (Report, error)
}

func (s *fakeSync) Kind() policy.Kind  { return s.kind }
func (s *fakeSync) Wanted(Mirror) bool { return !s.off }

func (s *fakeSync) Sync(ctx context.Context, m Mirror, src *kgo.Client, why policyv1.Round_Why) (Report, error) {
	select {
	case s.runs <- why:
	default:
	}
	if s.do == nil {
		return Report{}, nil
	}
	return s.do(ctx, m, src)
}

// rig is a syncer over a fake source.
type rig struct {
	*Syncer
	t      *testing.T
	ledger *policy.Ledger
	source *kfake.Cluster

	mu     sync.Mutex // guards the following
	opened int
}

func newSyncer(t *testing.T, interval time.Duration, mirrors Mirrors, all ...Sync) *rig {
	t.Helper()
	source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("there"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	r := &rig{t: t, ledger: policy.NewLedger(), source: source}
	open := func(*config.Mirror) (*kgo.Client, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.opened++
		return kgo.NewClient(kgo.SeedBrokers(source.ListenAddrs()...))
	}
	r.Syncer = New(Config{Interval: interval, Source: open}, mirrors, r.ledger, slog.New(slog.NewTextHandler(t.Output(), nil)), all...)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) opens() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opened
}

func (r *rig) run(mirror string, kind policy.Kind, why policyv1.Round_Why) (Report, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	return r.Run(ctx, mirror, kind, why)
}

func await[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not happen", what)
		panic("unreachable")
	}
}

// TestSyncsRunByThemselves has one sync hang: the others, and other mirrors, go on.
func TestSyncsRunByThemselves(t *testing.T) {
	hung, release := make(chan struct{}, 1), make(chan struct{})
	acls := &fakeSync{kind: policy.ACLs, runs: make(chan policyv1.Round_Why, 100), do: func(ctx context.Context, m Mirror, _ *kgo.Client) (Report, error) {
		if m.Name != "a" {
			return Report{}, nil
		}
		hung <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return Report{}, errors.New("the policy does not answer")
	}}
	groups := &fakeSync{kind: policy.Groups, runs: make(chan policyv1.Round_Why, 100)}
	f := newMirrors(testMirror(t, "a", "there"), testMirror(t, "b", "there"))
	r := newSyncer(t, 100*time.Millisecond, f, acls, groups)
	await(t, hung, "a run of the sync that hangs")
	for range 6 {
		await(t, groups.runs, "a run of another sync")
	}
	for range 6 {
		await(t, acls.runs, "a run of the same sync for another mirror")
	}
	if n := r.opens(); n != 2 {
		t.Errorf("%d connections to the sources of 2 mirrors", n)
	}
	close(release)
	await(t, hung, "another run after the one that hung")
	if runs := r.ledger.Runs("a"); len(runs) == 0 || !strings.Contains(runs[0].LastError, "does not answer") {
		t.Errorf("recorded: %+v", runs)
	}
}

// TestSyncsFollowMirrors begins at once with a new mirror and a changed one, and forgets one that is
// gone.
func TestSyncsFollowMirrors(t *testing.T) {
	s := &fakeSync{kind: policy.ACLs, runs: make(chan policyv1.Round_Why, 100)}
	f := newMirrors()
	r := newSyncer(t, time.Hour, f, s)
	f.set(func(f *fakeMirrors) { f.mirrors["m"] = testMirror(t, "m", "there") })
	if why := await(t, s.runs, "the first run"); why != policyv1.Round_REFRESH {
		t.Errorf("it is for %s", why)
	}
	f.set(func(f *fakeMirrors) { f.mirrors["m"] = testMirror(t, "m", "there", "mirror.groups.exclude", "x") })
	await(t, s.runs, "a run after a filter has changed")
	if n := r.opens(); n != 1 {
		t.Errorf("a filter has changed, and the source was connected to %d times", n)
	}
	f.set(func(f *fakeMirrors) { f.mirrors["m"] = testMirror(t, "m", "there", "request.timeout.ms", "10000") })
	await(t, s.runs, "a run after the way to the source has changed")
	if n := r.opens(); n != 2 {
		t.Errorf("the way to the source has changed, and it was connected to %d times", n)
	}
	r.Request("m")
	await(t, s.runs, "a run that was asked for")
	f.set(func(f *fakeMirrors) { delete(f.mirrors, "m") })
	f.set(func(f *fakeMirrors) { f.mirrors["m"] = testMirror(t, "m", "there") })
	await(t, s.runs, "a run of a mirror that is back")
}

// TestSyncsWaitForTheState: what other mirrors have created is known before anything is done.
func TestSyncsWaitForTheState(t *testing.T) {
	s := &fakeSync{kind: policy.ACLs, runs: make(chan policyv1.Round_Why, 100)}
	f := newMirrors(testMirror(t, "m", "there"))
	f.ready = make(chan struct{})
	r := newSyncer(t, time.Hour, f, s)
	r.Request("m")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := r.Run(ctx, "m", policy.ACLs, policyv1.Round_STOP); err == nil || len(s.runs) > 0 {
		t.Errorf("it ran: %v", err)
	}
	close(f.ready)
	await(t, s.runs, "the first run")
}

// TestRunAtOnce is how stops and dry runs use it.
func TestRunAtOnce(t *testing.T) {
	note := ""
	s := &fakeSync{kind: policy.ACLs, do: func(_ context.Context, m Mirror, _ *kgo.Client) (Report, error) {
		if m.Name == "other" {
			t.Error("the sync ran against another cluster")
		}
		return Report{Note: note, Changes: []Change{{Item: "x", Verb: "create"}}, Warnings: []string{"beware"}}, nil
	}}
	f := newMirrors(testMirror(t, "m", "there"), testMirror(t, "other", "elsewhere"))
	f.away = errors.New("not the coordinator")
	r := newSyncer(t, time.Hour, f, s)
	if _, err := r.run("m", policy.ACLs, policyv1.Round_STOP); err == nil || !strings.Contains(err.Error(), "not the coordinator") {
		t.Errorf("at another sidecar: %v", err)
	}
	f.set(func(f *fakeMirrors) { f.away = nil })
	report, err := r.run("m", policy.ACLs, policyv1.Round_STOP)
	if err != nil || len(report.Changes) != 1 {
		t.Errorf("%+v %v", report, err)
	}
	runs := r.ledger.Runs("m")
	if len(runs) != 1 || len(runs[0].Warnings) != 1 || runs[0].Warnings[0] != "beware" || runs[0].Idle {
		t.Errorf("recorded: %+v", runs)
	}
	// Who had nothing to do has looked at nothing.
	note = "no topic is mirrored now"
	if _, err := r.run("m", policy.ACLs, policyv1.Round_STOP); err != nil {
		t.Error(err)
	}
	if runs := r.ledger.Runs("m"); len(runs) != 1 || len(runs[0].Warnings) != 2 || runs[0].Warnings[0] != note || !runs[0].Idle {
		t.Errorf("recorded: %+v", runs)
	}
	if _, err := r.run("m", policy.Quotas, policyv1.Round_STOP); err == nil || !strings.Contains(err.Error(), "no sync of quotas") {
		t.Errorf("of a kind that nobody syncs: %v", err)
	}
	// What another cluster has is nobody's business: its ACLs would be taken for deleted ones.
	if _, err := r.run("other", policy.ACLs, policyv1.Round_STOP); err == nil || !strings.Contains(err.Error(), "is cluster there now") {
		t.Errorf("another cluster behind the address: %v", err)
	}
	if _, err := r.run("other", policy.ACLs, policyv1.Round_DRY_RUN); err == nil {
		t.Error("a dry run against another cluster")
	}
}

// TestSyncNotWanted connects to no source for what a mirror is not configured to mirror.
func TestSyncNotWanted(t *testing.T) {
	s := &fakeSync{kind: policy.ACLs, off: true}
	r := newSyncer(t, time.Hour, newMirrors(testMirror(t, "m", "there")), s)
	report, err := r.run("m", policy.ACLs, policyv1.Round_REFRESH)
	if err != nil || !strings.Contains(report.Note, "not configured to mirror acls") {
		t.Errorf("%+v %v", report, err)
	}
	if n := r.opens(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// TestSyncOfWhatIsNotUnderstood: what another version has written of one kind stops that kind, and
// shows.
func TestSyncOfWhatIsNotUnderstood(t *testing.T) {
	acls, groups := &fakeSync{kind: policy.ACLs}, &fakeSync{kind: policy.Groups}
	m := testMirror(t, "m", "there")
	m.Properties = m.Properties.Clone()
	m.Properties[config.ACLsIncludeKey] = "TOPIC;.*;*;ALLOW;User:CN=app,OU=x"
	var err error
	if m.Config, err = config.ParseStored(m.Properties); err != nil {
		t.Fatal(err)
	}
	r := newSyncer(t, time.Hour, newMirrors(m), acls, groups)
	if _, err := r.run("m", policy.Groups, policyv1.Round_REFRESH); err != nil {
		t.Error(err)
	}
	if _, err := r.run("m", policy.ACLs, policyv1.Round_REFRESH); err == nil || !strings.Contains(err.Error(), config.ACLsIncludeKey) {
		t.Errorf("%v", err)
	}
	for _, run := range r.ledger.Runs("m") {
		if (run.Kind == policy.ACLs) != strings.Contains(run.LastError, config.ACLsIncludeKey) {
			t.Errorf("recorded: %+v", run)
		}
	}
}

// TestQuestion tells policies everything but secrets.
func TestQuestion(t *testing.T) {
	m := testMirror(t, "m", "there", "sasl.jaas.config", `org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";`, "mirror.groups.exclude", "x")
	q := m.Question("here", policyv1.Round_START)
	if q.Mirror != "m" || q.SourceClusterID != "there" || q.DestinationClusterID != "here" || q.Why != policyv1.Round_START {
		t.Errorf("%+v", q)
	}
	if _, told := q.Config["sasl.jaas.config"]; told || q.Config["mirror.groups.exclude"] != "x" || q.Config["mirror.groups.include"] != ".*" {
		t.Errorf("%v", q.Config)
	}
}

// TestPreview asks what would be done with another configuration; nothing is recorded.
func TestPreview(t *testing.T) {
	var asked []string
	s := &fakeSync{kind: policy.ACLs, runs: make(chan policyv1.Round_Why, 1), do: func(_ context.Context, m Mirror, _ *kgo.Client) (Report, error) {
		asked = append(asked, m.Config.GroupsExclude.String()+" "+m.Config.GroupsInclude.String())
		return Report{Warnings: []string{"beware"}}, nil
	}}
	r := newSyncer(t, time.Hour, newMirrors(testMirror(t, "m", "there", "mirror.groups.exclude", "x", "mirror.groups.include", "y")), s)
	await(t, s.runs, "the first run")
	preview := func(with map[string]*string) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := r.Preview(ctx, "m", policy.ACLs, with)
		return err
	}
	z, bad := "z", "("
	if err := errors.Join(preview(nil), preview(map[string]*string{"mirror.groups.exclude": &z, "mirror.groups.include": nil})); err != nil {
		t.Error(err)
	}
	if want := []string{"x y", "x y", "z .*"}; fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("asked with %q, want %q", asked, want)
	}
	if err := preview(map[string]*string{"mirror.groups.exclude": &bad}); err == nil || !strings.Contains(err.Error(), "mirror.groups.exclude") {
		t.Errorf("a pattern that is none: %v", err)
	}
	if err := preview(map[string]*string{"bootstrap.servers": &z}); err == nil {
		t.Error("no address at all")
	}
	other := "elsewhere:9092"
	if err := preview(map[string]*string{"bootstrap.servers": &other}); err == nil || !strings.Contains(err.Error(), "another way to the source") {
		t.Errorf("another source: %v", err)
	}
	if runs := r.ledger.Runs("m"); len(runs) != 1 || runs[0].LastError != "" || len(s.runs) != 1 {
		t.Errorf("recorded: %+v", runs)
	}
}

// TestSyncMetrics counts runs by how they ended.
func TestSyncMetrics(t *testing.T) {
	fail := errors.New("not now")
	s := &fakeSync{kind: policy.ACLs, runs: make(chan policyv1.Round_Why, 1), do: func(context.Context, Mirror, *kgo.Client) (Report, error) {
		return Report{Changes: []Change{{Item: "a"}, {Item: "b"}}}, fail
	}}
	off := &fakeSync{kind: policy.Quotas, off: true}
	r := newSyncer(t, time.Hour, newMirrors(testMirror(t, "m", "there")), s, off)
	await(t, s.runs, "the first run")
	reg := prometheus.NewRegistry()
	reg.MustRegister(r.Syncer)
	got := func() map[string]float64 {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				out[strings.TrimPrefix(f.GetName(), "kafka_mirror_sync_")] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return out
	}
	if _, err := r.run("m", policy.ACLs, policyv1.Round_STOP); err == nil {
		t.Error("it did not fail")
	}
	if m := got(); m["runs_total"] != 2 || m["failures_total"] != 2 || m["changes_total"] != 4 || m["last_success_timestamp_seconds"] != 0 {
		t.Errorf("%v", m)
	}
	fail = nil
	for kind, why := range map[policy.Kind]policyv1.Round_Why{policy.ACLs: policyv1.Round_STOP, policy.Quotas: policyv1.Round_STOP} {
		if _, err := r.run("m", kind, why); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.run("m", policy.ACLs, policyv1.Round_DRY_RUN); err != nil {
		t.Error(err)
	}
	if m := got(); m["runs_total"] != 3 || m["failures_total"] != 2 || m["last_success_timestamp_seconds"] < 1e9 {
		t.Errorf("%v", m)
	}
}

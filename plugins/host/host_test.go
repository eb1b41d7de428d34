package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

func TestAnswers(t *testing.T) {
	t.Parallel()
	h, p := start(t, "topics", func(_ *Config, p *config.Plugin) { p.Config = map[string]string{"colour": "red"} })
	if s := p.Status(); s.Running || len(p.Kinds()) != 0 {
		t.Errorf("it runs although nobody has asked: %+v", s)
	}
	a, err := about(t.Context(), p, "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	if len(a.GetDecisions()) != 2 || a.GetDecisions()[1].GetName() != "b" || a.GetDecisions()[1].GetDecision().GetRule() != "names" {
		t.Errorf("%v", a)
	}
	if s := h.Status(); len(s) != 1 || !s[0].Running || s[0].Version != "1.2" || len(s[0].Kinds) != 1 || s[0].Restarts != 0 || s[0].LastError != nil {
		t.Errorf("%+v", s)
	}
	if a, err = about(t.Context(), p, "config"); err != nil || a.GetDecisions()[0].GetDecision().GetReason() != "map[colour:red] east" {
		t.Errorf("configuration: %v %v", a, err)
	}
	if a, err = about(t.Context(), p); err != nil || len(a.GetDecisions()) != 0 {
		t.Errorf("no topics: %v %v", a, err)
	}
	if _, err := p.SelectGroups(t.Context(), &policyv1.SelectGroupsRequest{}); err == nil || !strings.Contains(err.Error(), "does not decide on groups, but on topics") {
		t.Errorf("another kind: %v", err)
	}
	if err := p.Serves(t.Context(), policy.Topics); err != nil {
		t.Error(err)
	}
	if err := p.Serves(t.Context(), policy.ACLs); err == nil {
		t.Error("it serves ACLs")
	}
	if p.Status().Restarts != 0 {
		t.Errorf("it was started more than once: %+v", p.Status())
	}
}

// What a plugin may do wrong when it is asked: what is said of it, and whether its process ends.
func TestFaults(t *testing.T) {
	t.Parallel()
	_, p := start(t, "topics")
	for _, c := range []struct {
		topic, want string
		ends        bool
	}{
		{"crash", `crashed (exit status 7); it said: time=`, true},
		{"missing", "answers nonsense: 0 decisions on 1 topics", true},
		{"doubled", "answers nonsense: 2 decisions on 1 topics", true},
		{"renamed", `decision 1 is on topic "renamed2", where "renamed" was asked for`, true},
		{"undecided", "neither ACCEPT nor REFUSE", true},
		{"no decision", "no decision on", true},
		{"unknown verdict", "verdict 9", true},
		{"no reason", "no reason", true},
		{"long reason", "1025 bytes", true},
		{"long rule", "257 bytes", true},
		{"too much", "answers too much: more than", true},
		{"panic", "the policy panicked: mistake", false},
		{"error", "does not decide: the directory does not answer", false},
		{"unavailable", "does not decide: the directory is closed", false},
	} {
		insist(t, p, "a")
		before := p.Status()
		_, err := about(t.Context(), p, c.topic)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "ask plugin it for topics") {
			t.Errorf("%s: %v", c.topic, err)
		}
		insist(t, p, "a")
		if after := p.Status(); (after.PID != before.PID) != c.ends || after.LastError != nil {
			t.Errorf("%s: before %+v, after %+v", c.topic, before, after)
		}
	}
}

// A process that has ended before anybody knows that it has started is replaced like any other.
func TestEndsOnceItHasStarted(t *testing.T) {
	t.Parallel()
	_, p := start(t, "topics")
	r, err := p.start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.proc.kill()
	<-r.proc.exited
	p.begun(r, nil)
	p.host.own(r.reap)
	insist(t, p, "a")
	if p.Status().PID == r.proc.pid {
		t.Error("it is the one that has ended")
	}
}

func TestHang(t *testing.T) {
	t.Parallel()
	// Long enough for a start on a slow machine, which it bounds as well.
	_, p := start(t, "topics", timeout(3*time.Second))
	insist(t, p, "a")
	before := p.Status()
	_, err := about(t.Context(), p, "hang")
	if err == nil || !strings.Contains(err.Error(), "hangs: it has not answered a question for topics within 3s") {
		t.Errorf("%v", err)
	}
	insist(t, p, "a")
	if after := p.Status(); after.PID == before.PID || after.Restarts == 0 {
		t.Errorf("it runs on: %+v", after)
	}
	// Who has less patience than the plugin may have does not hide that it hangs.
	before = p.Status()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := about(ctx, p, "hang"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	await(t, "its end", func() bool { return p.Status().PID != before.PID })
	// Who asks no more is no reason to end it.
	insist(t, p, "a")
	before = p.Status()
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := about(ctx, p, "hang"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	insist(t, p, "a")
	if after := p.Status(); after.PID != before.PID {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// The plugin's side of a call may see its deadline first.
func TestLate(t *testing.T) {
	t.Parallel()
	with := func(left time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), left)
		t.Cleanup(cancel)
		return ctx
	}
	gone, cancel := context.WithCancel(with(time.Hour))
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		code codes.Code
		want bool
	}{
		"time is up here":            {with(-1), codes.DeadlineExceeded, true},
		"time is up there":           {with(time.Minute), codes.DeadlineExceeded, true},
		"broken off there":           {with(time.Minute), codes.Canceled, true},
		"broken off long before":     {with(59 * time.Minute), codes.Canceled, false},
		"another failure at the end": {with(time.Minute), codes.Unavailable, false},
		"nobody waits":               {gone, codes.Canceled, false},
	} {
		if got := late(c.ctx, c.code, time.Hour); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A process that is stopped or killed from outside is replaced, and all who asked it are told why.
func TestSignals(t *testing.T) {
	t.Parallel()
	_, p := start(t, "topics", timeout(3*time.Second))
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGTERM} {
		insist(t, p, "a")
		pid := p.Status().PID
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
		await(t, "another process", func() bool {
			_, err := about(t.Context(), p, "a")
			now := p.Status()
			return err == nil && now.Running && now.PID != pid
		})
		await(t, "nothing left of the process", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	}
}

// Until its backoff is over a plugin is not started, and who asks is told so at once.
func TestBackoff(t *testing.T) {
	t.Parallel()
	_, p := start(t, "topics", waiting(time.Hour))
	insist(t, p, "a")
	if _, err := about(t.Context(), p, "crash"); err == nil {
		t.Fatal("no crash")
	}
	began := time.Now()
	_, err := about(t.Context(), p, "a")
	if err == nil || !strings.Contains(err.Error(), "crashed (exit status 7)") {
		t.Errorf("%v", err)
	}
	await(t, "it waits", func() bool { return !p.Status().NextStart.IsZero() })
	if _, err = about(t.Context(), p, "a"); err == nil || !strings.Contains(err.Error(), "it may be started again in") || !strings.Contains(err.Error(), "out of cheese") {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("told after %v", took)
	}
	if s := p.Status(); s.Running || s.LastError == nil || time.Until(s.NextStart) < 40*time.Minute {
		t.Errorf("%+v", s)
	}
}

// Who fails again and again is started no more for a while, however short the backoff is.
func TestBudget(t *testing.T) {
	t.Parallel()
	_, p := start(t, "ends", func(c *Config, _ *config.Plugin) { c.Starts = 0 })
	await(t, "the budget's end", func() bool {
		_, _ = about(t.Context(), p, "a")
		return time.Until(p.Status().NextStart) > budgetWindow/2
	})
	if s := p.Status(); s.Restarts != DefaultStarts-1 {
		t.Errorf("%+v", s)
	}
}

// What may be wrong with the start.
func TestStarts(t *testing.T) {
	path, sum := me(t)
	dir := t.TempDir()
	file := func(name string, mode os.FileMode, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	command := func(argv ...string) func(*Config, *config.Plugin) {
		return func(_ *Config, p *config.Plugin) { p.Command, p.SHA256 = argv, "" }
	}
	for name, c := range map[string]struct {
		as     string
		change func(*Config, *config.Plugin)
		want   string
		get    bool // it is known before anything is started
	}{
		"ends":            {as: "ends", want: "ended at once (exit status 3); it said: no licence found"},
		"talks":           {as: "talks", want: "does not write the line that plugins begin with"},
		"version 2":       {as: "version 2", want: "Plugin version: 2, Client versions: [1]"},
		"no info":         {as: "no info", want: "is no policy"},
		"no kinds":        {as: "none", want: "decides on nothing"},
		"configuration":   {as: "topics", change: func(_ *Config, p *config.Plugin) { p.Config = map[string]string{"colour": "blue"} }, want: "colour is red or green"},
		"slow":            {as: "waits", change: func(c *Config, _ *config.Plugin) { c.StartTimeout = time.Second }, want: "has not started in time"},
		"slower than ask": {as: "waits", change: timeout(100 * time.Millisecond), want: "has not started within 100ms yet"},
		"no file":         {change: command(filepath.Join(dir, "none")), want: "no such file", get: true},
		"folder":          {change: command(dir), want: "no file", get: true},
		"not executable":  {change: command(file("plain", 0o600, "x")), want: "chmod +x", get: true},
		"another program": {change: func(_ *Config, p *config.Plugin) { p.SHA256 = strings.Repeat("ab", 32) }, want: "it has " + sum, get: true},
		"no interpreter":  {change: command(file("script", 0o700, "#!/none/such\n")), want: "interpreter"},
		"no program":      {change: command(file("text", 0o700, "nothing")), want: "cannot be started"},
		"another script":  {change: command(file("shell", 0o700, "#!/bin/sh\necho what >&2; exit 4\n")), want: "ended at once (exit status 4); it said: what"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := c.change
			if change == nil {
				change = func(*Config, *config.Plugin) {}
			}
			h, p := start(t, c.as, change)
			_, err := h.Get("it")
			if c.get != (err != nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("get: %v", err)
			}
			if _, err = about(t.Context(), p, "a"); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "plugin it") {
				t.Errorf("ask: %v", err)
			}
			if p.Status().Running {
				t.Error("it runs")
			}
		})
	}
	h, _ := start(t, "topics")
	if _, err := h.Get("other"); err == nil || !strings.Contains(err.Error(), `no plugin "other"; this sidecar has it`) {
		t.Errorf("%v", err)
	}
	_ = path
}

// A program is checked before each start, not once; and one that has started may be replaced by its
// successor without anybody noticing.
func TestReplacedProgram(t *testing.T) {
	t.Parallel()
	path, _ := me(t)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "policy")
	if err := os.WriteFile(copied, raw, 0o700); err != nil {
		t.Fatal(err)
	}
	h, p := start(t, "topics", func(_ *Config, p *config.Plugin) { p.Command[0] = copied })
	a := insist(t, p, "folder")
	if d := a.GetDecisions()[0].GetDecision(); d.GetRule() != filepath.Dir(copied) || d.GetReason() != copied {
		t.Errorf("it works in %s as %s", d.GetRule(), d.GetReason())
	}
	if err := os.WriteFile(copied, append(raw, 'x'), 0o700); err != nil {
		t.Fatalf("the program that runs is not a copy: %v", err)
	}
	if _, err := h.Get("it"); err != nil {
		t.Errorf("while it runs: %v", err)
	}
	if _, err := about(t.Context(), p, "crash"); err == nil {
		t.Error("no crash")
	}
	await(t, "the refusal", func() bool {
		_, err := about(t.Context(), p, "a")
		return err != nil && strings.Contains(err.Error(), "is not the one whose sha256 is configured")
	})
	if _, err := h.Get("it"); err == nil {
		t.Error("it may be named")
	}
	if err := os.WriteFile(copied, raw, 0o700); err != nil {
		t.Fatal(err)
	}
	insist(t, p, "a")
}

func TestEnvironment(t *testing.T) {
	t.Setenv("MIRROR_TEST_SECRET", "hush")
	t.Setenv("LANG", "C.UTF-8")
	_, p := start(t, "topics")
	got := insist(t, p, "environment").GetDecisions()[0].GetDecision().GetReason()
	if strings.Contains(got, "hush") || !strings.Contains(got, "LANG=C.UTF-8") || !strings.Contains(got, "PATH=") || strings.Contains(got, "HOME=") {
		t.Errorf("%s", got)
	}
}

// Texts are shown as they are, in logs and on terminals; warnings are kept within bounds.
func TestTexts(t *testing.T) {
	t.Parallel()
	_, p := start(t, "topics")
	a := insist(t, p, "control", "warnings")
	d := a.GetDecisions()[0].GetDecision()
	if strings.ContainsAny(d.GetReason()+d.GetRule(), "\n\x1b\x07") || !strings.Contains(d.GetReason(), "and so on") {
		t.Errorf("%q %q", d.GetRule(), d.GetReason())
	}
	if n := len(a.GetWarnings()); n != maxWarnings || len(a.GetWarnings()[0].GetText()) > policyv1.MaxReason || !strings.Contains(a.GetWarnings()[n-1].GetText(), "more warnings") {
		t.Errorf("%d warnings, the last one %v", n, a.GetWarnings()[n-1])
	}
	before := p.Status()
	insist(t, p, "chatter")
	if after := p.Status(); after.PID != before.PID {
		t.Error("who says much is ended")
	}
}

// Whatever a plugin has started ends with it.
func TestChildren(t *testing.T) {
	t.Parallel()
	h, p := start(t, "topics")
	child, err := strconv.Atoi(insist(t, p, "child").GetDecisions()[0].GetDecision().GetRule())
	if err != nil {
		t.Fatal(err)
	}
	pid := p.Status().PID
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := h.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for _, id := range []int{pid, child} {
		await(t, "the end of "+strconv.Itoa(id), func() bool { return gone(id) })
	}
	if _, err := about(t.Context(), p, "a"); err == nil {
		t.Error("it is started after the end")
	}
	if s := p.Status(); s.Running {
		t.Errorf("%+v", s)
	}
}

// Nothing stays behind of a sidecar that was killed.
func TestDiesWithItsHost(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a process of its parent's end")
	}
	// Sockets have short names.
	dir, err := os.MkdirTemp("", "host-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	path, _ := me(t)
	cmd := exec.CommandContext(t.Context(), path, beHost)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	_, err = fmt.Fscan(out, &pid)
	if kill := cmd.Process.Kill(); kill != nil {
		t.Error(kill)
	}
	_ = cmd.Wait()
	if err != nil {
		t.Fatalf("the host's plugin: %v", err)
	}
	await(t, "the plugin's end", func() bool { return gone(pid) })
	// Its folder is removed by the next one, and only its.
	left := folders(t, dir)
	if len(left) != 1 {
		t.Fatalf("%v is left behind", left)
	}
	old := time.Now().Add(-2 * unlocked)
	if err := os.Chtimes(left[0], old, old); err != nil {
		t.Fatal(err)
	}
	_, p := start(t, "topics")
	insist(t, p, "a")
	for _, mine := range folders(t, dir) {
		if err := os.Chtimes(mine, old, old); err != nil {
			t.Fatal(err)
		}
	}
	_, other := start(t, "topics")
	insist(t, other, "a")
	if now := folders(t, dir); len(now) != 2 || slices.Contains(now, left[0]) {
		t.Errorf("%v, and then %v", left, now)
	}
}

func folders(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, folderPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// However often a plugin is started anew, nothing is left of its processes here. No test runs beside
// this one.
func TestRestartsLeaveNothing(t *testing.T) {
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("open files cannot be counted here")
		}
		return len(all)
	}
	dir, err := os.MkdirTemp("", "host-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	_, p := start(t, "topics")
	insist(t, p, "a")
	before := open()
	for range 10 {
		if _, err := about(t.Context(), p, "crash"); err == nil {
			t.Error("no crash")
		}
		insist(t, p, "a")
	}
	if got := p.Status().Restarts; got != 10 {
		t.Errorf("%d restarts", got)
	}
	await(t, "as many open files as before", func() bool { return open() <= before })
	if left := folders(t, dir); len(left) != 1 {
		t.Errorf("%v is left", left)
	}
}

// gone tells whether there is no such process, or one that only its parent has not looked after.
func gone(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(raw), ") Z ")
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	path, _ := me(t)
	reg := registry(t)
	h, err := New(Config{
		Plugins:        map[string]*config.Plugin{"it": {Name: "it", Command: []string{path, "topics"}, Timeout: patience}},
		InitialBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
	}, reg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p := h.plugins["it"]
	is := func(up, restarts, calls float64) {
		t.Helper()
		for name, want := range map[string]float64{"up": up, "restarts_total": restarts, "call_seconds": calls} {
			if got := metric(t, reg, "kafka_mirror_plugin_"+name); got != want {
				t.Errorf("%s: %v, not %v", name, got, want)
			}
		}
	}
	is(0, 0, 0)
	insist(t, p, "a")
	is(1, 0, 1)
	if _, err := about(t.Context(), p, "crash"); err == nil {
		t.Error("no crash")
	}
	await(t, "its end", func() bool { return metric(t, reg, "kafka_mirror_plugin_up") == 0 })
	insist(t, p, "a")
	is(1, 1, 3)
	if err := h.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	is(0, 1, 3)
}

// What is more than one message may have is asked in pages, and the answers are one.
func TestPages(t *testing.T) {
	t.Parallel()
	_, p := start(t, "topics")
	names := make([]string, 2*maxItems+1)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	a, err := about(t.Context(), p, names...)
	if err != nil || len(a.GetDecisions()) != len(names) {
		t.Fatalf("%d decisions, %v", len(a.GetDecisions()), err)
	}
	for i, d := range a.GetDecisions() {
		if d.GetName() != names[i] {
			t.Fatalf("decision %d is on %s", i, d.GetName())
		}
	}
	q := &policyv1.SelectTopicsRequest{Round: &policyv1.Round{Mirror: "east"}}
	for i := range 20 {
		q.Topics = append(q.Topics, &policyv1.TopicFacts{Name: strconv.Itoa(i), Configs: map[string]string{"c": strings.Repeat("v", 1<<20)}})
	}
	before := proto.CloneOf(q)
	if a, err = p.SelectTopics(t.Context(), q); err != nil || len(a.GetDecisions()) != 20 {
		t.Errorf("%d decisions, %v", len(a.GetDecisions()), err)
	}
	if !proto.Equal(before, q) {
		t.Error("the question was changed")
	}
	for _, c := range []struct{ facts, pages int }{{0, 1}, {1, 1}, {maxItems, 1}, {maxItems + 1, 2}} {
		if got := pages(make([]*policyv1.TopicFacts, c.facts)); len(got) != c.pages {
			t.Errorf("%d facts: %d pages", c.facts, len(got))
		}
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	_, p := start(t, "all")
	ctx := t.Context()
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if got := p.Kinds(); len(got) != 6 {
		t.Errorf("%v", got)
	}
	c, err := p.SelectConfigs(ctx, &policyv1.SelectConfigsRequest{Topics: []*policyv1.TopicConfigFacts{{Topic: "t", Configs: []*policyv1.ConfigFacts{{Name: "retention.ms"}}}}})
	if err != nil || c.GetTopics()[0].GetDecisions()[0].GetName() != "retention.ms" {
		t.Errorf("configs: %v %v", c, err)
	}
	a, err := p.SelectAcls(ctx, &policyv1.SelectAclsRequest{Acls: []*policyv1.AclFacts{{Acl: &policyv1.AclBinding{Principal: "User:a"}}}})
	if err != nil || len(a.GetDecisions()) != 1 {
		t.Errorf("ACLs: %v %v", a, err)
	}
	g, err := p.SelectGroups(ctx, &policyv1.SelectGroupsRequest{Groups: []*policyv1.GroupFacts{{Group: "g"}}})
	if err != nil || g.GetDecisions()[0].GetDecision().GetReason() != "no groups" {
		t.Errorf("groups: %v %v", g, err)
	}
	if _, err := p.Notify(ctx, &policyv1.NotifyRequest{Events: []*policyv1.Event{{Topic: "t"}}}); err != nil {
		t.Errorf("events: %v", err)
	}
	if _, err := p.Notify(ctx, &policyv1.NotifyRequest{Events: []*policyv1.Event{{Topic: "error"}}}); err == nil || !strings.Contains(err.Error(), "no such channel") {
		t.Errorf("events: %v", err)
	}
	if _, err := p.SelectQuotas(ctx, &policyv1.SelectQuotasRequest{Quotas: []*policyv1.QuotaFacts{{Key: "producer_byte_rate"}}}); err == nil || !strings.Contains(err.Error(), "NaN is no value") {
		t.Errorf("quotas: %v", err)
	}
}

func TestLiar(t *testing.T) {
	t.Parallel()
	_, p := start(t, "liar")
	if _, err := p.SelectGroups(t.Context(), &policyv1.SelectGroupsRequest{}); err == nil || !strings.Contains(err.Error(), "says that it decides on groups, and does not") {
		t.Errorf("%v", err)
	}
	insist(t, p, "a")
}

// await polls for what must come.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

package policies

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

// Killing and hanging every plugin, again and again, leaves replication untouched: records go on
// arriving, a topic that grows at the source grows here, describe says what is the matter, and
// afterwards the policies decide as before.
func TestKilledAndHungPluginsLeaveReplicationUntouched(t *testing.T) {
	e := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	const mirror = "hosted"
	both := policy.BuiltIn + "," + house
	e.mirror(t, mirror, map[string]string{
		"mirror.topics.include": mirror + `.*`, "mirror.groups.include": mirror + `.*`,
		policy.Key(policy.Topics): both, policy.Key(policy.Configs): both, policy.Key(policy.Groups): both,
	})
	load, err := workload.New(workload.Config{
		Bootstrap: e.src.Bootstrap(harness.ListenerInternal), Prefix: mirror, Rate: 300,
		Kinds: []workload.Kind{workload.Idempotent, workload.Transactional},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := load.Start(ctx); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if err := load.Stop(ctx); err != nil {
			t.Errorf("the producers: %v", err)
		}
	}
	defer stop()
	topics := load.TopicNames()
	e.passes(t, topics...)
	e.well(t, mirror)

	lag := e.watchLag(ctx, topics)
	defer lag.stop()
	lag.phase("undisturbed")
	e.passes(t, topics...)

	long := 2 * time.Second
	if harness.Full() {
		long = 12 * time.Second
	}
	lag.phase("killed")
	killed := e.torment(ctx, syscall.SIGKILL, 100*time.Millisecond)
	e.complains(t, mirror, "signal: killed")
	during(ctx, long, func() { e.passes(t, topics...) })
	killed.hits(t, 2)
	killed.stop()

	lag.phase("hung")
	hung := e.torment(ctx, syscall.SIGSTOP, 50*time.Millisecond)
	// One that is stopped before it has said what it is does not hang: it has not started.
	e.complains(t, mirror, "hangs", "has not started")
	// Nobody can be asked, and yet what a topic is made of is kept up with.
	grown := topics[0]
	res, err := e.srcAdmin.CreatePartitions(ctx, 1, grown)
	if err == nil {
		err = res.Error()
	}
	if err != nil {
		t.Fatalf("grow %s: %v", grown, err)
	}
	harness.AwaitT(t, patience, "the topic that has grown has grown here", func(ctx context.Context) error {
		d, err := e.dstAdmin.ListTopics(ctx, grown)
		if err == nil && len(d[grown].Partitions) != 3 {
			err = fmt.Errorf("%d partitions", len(d[grown].Partitions))
		}
		return err
	})
	during(ctx, long, func() { e.passes(t, topics...) })
	hung.hits(t, 2)
	hung.stop()

	lag.phase("let be")
	e.passes(t, topics...)
	lag.stop()
	t.Logf("%d processes killed, %d stopped; %v; records in flight at most: %s", killed.hit.Load(), hung.hit.Load(), load.Total(), lag)

	// They are asked again, and decide as they did.
	e.sourceTopic(t, mirror+".late", 1, 10)
	e.sourceTopic(t, mirror+".late.no", 1, 10)
	e.mirrored(t, mirror+".late")
	harness.AwaitT(t, patience, "the house refuses a topic", func(ctx context.Context) error {
		out, err := e.dst.CLI(ctx, "--explain", "--mirror", mirror, "--topic", mirror+".late.no")
		if err == nil && !strings.Contains(out, "the house mirrors nothing that ends in .no") {
			err = errors.New(out)
		}
		return err
	})
	e.well(t, mirror)
	stop()
	e.mirrored(t, topics...)
	if _, err := load.Check(ctx, workload.CheckConfig{Bootstrap: e.dst.Direct()}); err != nil {
		t.Errorf("the copy: %v", err)
	}
	e.cli(t, "--stop", "--wait", "--mirror", mirror, "--topics", ".*")
}

// during does something again and again for a while, once at least.
func during(ctx context.Context, d time.Duration, do func()) {
	for until := time.Now().Add(d); ; {
		do()
		if ctx.Err() != nil || time.Now().After(until) {
			return
		}
	}
}

// passes returns when all that the source has of topics now is here.
func (e *env) passes(t *testing.T, topics ...string) {
	t.Helper()
	var want kadm.ListedOffsets
	harness.AwaitT(t, patience, "the source tells its ends", func(ctx context.Context) (err error) {
		if want, err = e.srcAdmin.ListEndOffsets(ctx, topics...); err == nil {
			err = want.Error()
		}
		return err
	})
	harness.AwaitT(t, patience, "what the source had is here", func(ctx context.Context) error {
		got, err := e.dstAdmin.ListEndOffsets(ctx, topics...)
		if err != nil {
			return err
		}
		for _, o := range want.Offsets().Sorted() {
			if here, ok := got.Lookup(o.Topic, o.Partition); !ok || here.Err != nil || here.Offset < o.At {
				return fmt.Errorf("%s-%d ends at %d (%w), at the source at %d", o.Topic, o.Partition, here.Offset, here.Err, o.At)
			}
		}
		return nil
	})
}

// errorsOf returns the last errors of the policies of a mirror that these tests ask.
func (e *env) errorsOf(ctx context.Context, mirror string) ([]string, error) {
	out, err := e.dst.CLI(ctx, "--describe", "--mirror", mirror, "--policies", "--json")
	if err != nil {
		return nil, err
	}
	var rows []struct{ Kind, Plugin, LastError string }
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var all []string
	seen := map[string]bool{}
	for _, r := range rows {
		seen[r.Kind+" "+r.Plugin] = true
		if r.LastError != "" {
			all = append(all, r.Kind+" "+r.Plugin+": "+r.LastError)
		}
	}
	for _, k := range []policy.Kind{policy.Topics, policy.Configs} {
		for _, p := range []string{policy.BuiltIn, house} {
			if !seen[string(k)+" "+p] {
				return nil, fmt.Errorf("nobody has asked %s for %s: %s", p, k, out)
			}
		}
	}
	return all, nil
}

// complains returns when describe has an error with one of certain words.
func (e *env) complains(t *testing.T, mirror string, words ...string) {
	t.Helper()
	harness.AwaitT(t, patience, "describe says why a policy cannot be asked", func(ctx context.Context) error {
		all, err := e.errorsOf(ctx, mirror)
		said := func(err string) bool {
			return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(err, w) })
		}
		if err == nil && !slices.ContainsFunc(all, said) {
			err = fmt.Errorf("nobody says %q, but %q", words, all)
		}
		return err
	})
}

// well returns when all policies have answered.
func (e *env) well(t *testing.T, mirror string) {
	t.Helper()
	harness.AwaitT(t, 2*patience, "all policies answer", func(ctx context.Context) error {
		all, err := e.errorsOf(ctx, mirror)
		if err == nil && len(all) > 0 {
			err = errors.New(strings.Join(all, "; "))
		}
		return err
	})
}

// torment sends a signal to all plugins of all sidecars, and to those that are started in their
// place, until it is stopped.
func (e *env) torment(ctx context.Context, sig syscall.Signal, every time.Duration) *tormentor {
	ctx, cancel := context.WithCancel(ctx)
	m := &tormentor{cancel: cancel}
	m.done.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		hit := map[int]bool{}
		for ctx.Err() == nil {
			for _, c := range e.dst.Sidecars {
				for _, pid := range children(c.Process().PID()) {
					if !hit[pid] && syscall.Kill(pid, sig) == nil {
						hit[pid] = true
						m.hit.Add(1)
					}
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return m
}

type tormentor struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	hit    atomic.Int64
}

// hits returns when so many processes have got the signal, as many as there are plugins at least. One whose
// backoff is not over has none.
func (m *tormentor) hits(t *testing.T, n int64) {
	t.Helper()
	harness.AwaitT(t, patience, fmt.Sprintf("%d processes get the signal", n), func(context.Context) error {
		if got := m.hit.Load(); got < n {
			return fmt.Errorf("%d have", got)
		}
		return nil
	})
}

func (m *tormentor) stop() {
	m.cancel()
	m.done.Wait()
}

// children of a process that have become programs of their own: nobody else's are touched.
func children(parent int) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	var out []int
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		at := bytes.LastIndexByte(raw, ')')
		fields := strings.Fields(string(raw[at+1:]))
		if at < 0 || len(fields) < 2 || fields[1] != strconv.Itoa(parent) || fields[0] == "Z" {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// lagWatch is how many records are at the source and not here, at most, by phase.
type lagWatch struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu   sync.Mutex
	most []phase
}

type phase struct {
	name    string
	records int64
}

func (e *env) watchLag(ctx context.Context, topics []string) *lagWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &lagWatch{cancel: cancel}
	w.done.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			here, err := e.dstAdmin.ListEndOffsets(ctx, topics...)
			there, err2 := e.srcAdmin.ListEndOffsets(ctx, topics...)
			if err == nil && err2 == nil {
				var sum int64
				here.Each(func(o kadm.ListedOffset) {
					if at, ok := there.Lookup(o.Topic, o.Partition); ok && o.Err == nil && at.Err == nil {
						sum += at.Offset - o.Offset
					}
				})
				w.mu.Lock()
				if n := len(w.most); n > 0 {
					w.most[n-1].records = max(w.most[n-1].records, sum)
				}
				w.mu.Unlock()
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return w
}

func (w *lagWatch) phase(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most = append(w.most, phase{name: name})
}

func (w *lagWatch) stop() {
	w.cancel()
	w.done.Wait()
}

func (w *lagWatch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, p := range w.most {
		out = append(out, fmt.Sprintf("%s %d", p.name, p.records))
	}
	return strings.Join(out, ", ")
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// traffic writes to a partition, and reads it, through the proxies until it is stopped. Its
// clients are as they come: what they repeat by themselves nobody notices.
type traffic struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu     sync.Mutex // guards the following
	acked  int
	last   time.Time // of an answer
	gap    time.Duration
	failed []error
	read   map[string]int // by a group
	alone  map[string]int // by a consumer without a group
	ended  int            // sessions of the group
	broken []error
}

// startTraffic returns when records flow.
func startTraffic(t *testing.T, e *env, topic string) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	f := &traffic{stop: cancel, read: map[string]int{}, alone: map[string]int{}}
	client := func(opts ...kgo.Opt) *kgo.Client {
		cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(e.dst.Proxies()...))...)
		if err != nil {
			t.Fatal(err)
		}
		return cl
	}
	producer := client(kgo.DefaultProduceTopic(topic), kgo.RecordDeliveryTimeout(patience), kgo.ProducerLinger(0))
	f.done.Go(func() {
		defer producer.Close()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			producer.Produce(context.WithoutCancel(ctx), kgo.StringRecord(fmt.Sprint(n)), func(_ *kgo.Record, err error) { f.answered(err) })
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		_ = producer.Flush(context.WithoutCancel(ctx))
	})
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	f.consume(ctx, client(kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic), start), f.read)
	f.consume(ctx, client(kgo.ConsumeTopics(topic), start), f.alone)
	t.Cleanup(func() { cancel(); f.done.Wait() })
	f.flows(t)
	return f
}

// consume counts in into what a consumer gets.
func (f *traffic) consume(ctx context.Context, consumer *kgo.Client, into map[string]int) {
	f.done.Go(func() {
		defer consumer.Close()
		for ctx.Err() == nil {
			fetches := consumer.PollFetches(ctx)
			f.mu.Lock()
			fetches.EachRecord(func(r *kgo.Record) { into[string(r.Value)]++ })
			fetches.EachError(func(_ string, _ int32, err error) {
				// A session of a group that ended is told of, and tried again: nothing has failed by it.
				var session *kgo.ErrGroupSession
				switch {
				case ctx.Err() != nil:
				case errors.As(err, &session):
					f.ended++
				default:
					f.broken = append(f.broken, err)
				}
			})
			f.mu.Unlock()
		}
	})
}

func (f *traffic) answered(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.last.IsZero() {
		f.gap = max(f.gap, now.Sub(f.last))
	}
	f.last = now
	if err != nil {
		f.failed = append(f.failed, err)
		return
	}
	f.acked++
}

// flows waits until more records are written and read.
func (f *traffic) flows(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	acked, read, alone := f.acked, len(f.read), len(f.alone)
	f.mu.Unlock()
	eventually(t, "records are written and read", func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.acked < acked+50 || len(f.read) < read+50 || len(f.alone) < alone+50 {
			return errors.Join(append([]error{fmt.Errorf("%d written, %d read by a group, %d without one", f.acked-acked, len(f.read)-read, len(f.alone)-alone)}, f.failed...)...)
		}
		return nil
	})
}

// longest is how long no write was answered, since the last question.
func (f *traffic) longest() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	gap := f.gap
	f.gap = 0
	return gap
}

// clean fails the test if anything failed, was lost, or came twice where it may not.
func (f *traffic) clean(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	want := f.acked
	f.mu.Unlock()
	eventually(t, "all that is written is read", func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if n := min(len(f.read), len(f.alone)); n < want {
			return fmt.Errorf("%d of %d", n, want)
		}
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Logf("%d records written, %d read by a group, whose session ended %d times, %d without one, %d failed", f.acked, len(f.read), f.ended, len(f.alone), len(f.failed))
	if len(f.failed) > 0 || len(f.broken) > 0 {
		t.Errorf("%d writes failed, the first with %v; reading failed with %v", len(f.failed), errors.Join(f.failed[:min(1, len(f.failed))]...), errors.Join(f.broken...))
	}
	if n := twice(f.alone); n > 0 {
		t.Errorf("%d records were read twice", n)
	}
	// A member whose session ends reads again what it has not committed: a group reads at least
	// once.
	if n := twice(f.read); n > 0 && f.ended == 0 {
		t.Errorf("%d records were read twice by a group whose session never ended", n)
	}
}

// twice counts what was read more than once.
func twice(read map[string]int) (n int) {
	for _, times := range read {
		if times > 1 {
			n++
		}
	}
	return n
}

// ordinary makes a topic that is not mirrored and that the first sidecar's broker leads.
func (e *env) ordinary(t *testing.T, name string) {
	t.Helper()
	createTopic(t, e.dstClient, 1, 1, name)
}

// settled waits until a sidecar has left to the next process that topics are there.
func settled(t *testing.T, c *stack.Sidecar, topics ...string) {
	t.Helper()
	harness.AwaitT(t, patience, "topics are saved", func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(c.DataDir(), "metadata.json"))
		if err != nil {
			return err
		}
		for _, topic := range topics {
			if !strings.Contains(string(text), fmt.Sprintf("%q", topic)) {
				return fmt.Errorf("topic %s is not", topic)
			}
		}
		return nil
	})
}

// replacedSidecar: a sidecar is replaced by another process, and ended and started again.
func replacedSidecar(t *testing.T, e *env) {
	c := e.dst.Sidecars[0]
	e.mirrored(t, "a12-1.mirror", 1, 2)
	e.ordinary(t, "a12-1")
	f := startTraffic(t, e, "a12-1")
	settled(t, c, "a12-1", "a12-1.mirror")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	f.longest()
	if err := c.TakeOver(ctx); err != nil {
		t.Fatal(err)
	}
	f.flows(t)
	t.Logf("replaced: no answer for at most %v", f.longest().Round(time.Millisecond))
	if err := c.Terminate(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	f.flows(t)
	t.Logf("ended and started: no answer for at most %v", f.longest().Round(time.Millisecond))
	f.clean(t)
	f.stop()
	e.awaitMirroring(t, "a12-1.mirror")
}

// crashedSidecar: a sidecar is killed and started again, at first with all else there, then with
// the controllers away.
func crashedSidecar(t *testing.T, e *env) {
	c := e.dst.Sidecars[0]
	e.mirrored(t, "a12-2.mirror", 1, 2)
	e.ordinary(t, "a12-2")
	if err := produce(t.Context(), writer(t, []string{c.Proxy}), "a12-2", 1, 1, "first"); err != nil {
		t.Fatal(err)
	}
	settled(t, c, "a12-2", "a12-2.mirror")
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	// served starts the process, and says after what time a client could write.
	served := func() time.Duration {
		t.Helper()
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := c.Launch(context.WithoutCancel(ctx)); err != nil {
			t.Fatal(err)
		}
		harness.AwaitT(t, patience, "a write", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			cl, err := kgo.NewClient(append(quick(), kgo.SeedBrokers(c.Proxy), kgo.RequestRetries(0), kgo.DialTimeout(time.Second))...)
			if err != nil {
				return err
			}
			defer cl.Close()
			return cl.ProduceSync(ctx, &kgo.Record{Topic: "a12-2", Value: []byte("v")}).FirstErr()
		})
		return time.Since(begun)
	}
	if took := served(); took > 2*time.Second+20*time.Second { // the rest is for a slow machine
		t.Errorf("a client was served after %v", took)
	} else {
		t.Logf("a client was served after %v", took.Round(time.Millisecond))
	}
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	e.awaitMirroring(t, "a12-2.mirror")

	controllers := e.dst.Cluster.Controllers()
	for _, n := range controllers {
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	took := served()
	t.Logf("without controllers a client was served after %v", took.Round(time.Millisecond))
	if took > 2*time.Second+20*time.Second {
		t.Errorf("without controllers a client was served after %v", took)
	}
	// What is a mirror's waits, and the process says that it is not ready.
	if err := produce(t.Context(), once(t, []string{c.Proxy}, kgo.RecordDeliveryTimeout(2*time.Second)), "a12-2.mirror", 1, 1, "no"); err == nil {
		t.Error("a write to a mirror topic was taken")
	}
	if resp, err := http.Get("http://" + c.HTTP + "/readyz"); err != nil { //nolint:noctx // a local question with a short answer
		t.Error(err)
	} else {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("it says that it is ready")
		}
	}
	if resp, err := http.Get("http://" + c.HTTP + "/livez"); err != nil { //nolint:noctx // a local question with a short answer
		t.Error(err)
	} else {
		resp.Body.Close()
	}
	for _, n := range controllers {
		if err := n.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	for _, o := range e.dst.Sidecars {
		if err := o.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	e.awaitMirroring(t, "a12-2.mirror")
}

func (e *env) awaitMirroring(t *testing.T, m string) {
	t.Helper()
	e.waitState(t, m, mirroring, m)
}

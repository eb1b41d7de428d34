package availability

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// slow is what a loaded machine may add to anything.
const slow = 20 * time.Second

// TestSidecarsComeAndGo takes sidecars away in every way, one after the other, while producers
// write at the source.
func TestSidecarsComeAndGo(t *testing.T) {
	e := start(t)
	e.feed(t)
	e.awaitEven(t, 1, 2, 3)
	e.well(t)
	for _, c := range []struct {
		name string
		run  func(t *testing.T, e *env)
		full bool // not for CI
	}{
		{"stopped", stopped, false},
		{"killed and replaced", killed, false},
		{"killed and started at once", restarted, false},
		{"frozen", frozen, true},
		{"killed with its broker", pod, true},
		{"two of three", lastOne, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.full && !harness.Full() {
				t.Skip("in the long form")
			}
			c.run(t, e)
		})
		if t.Failed() {
			return
		}
	}
	t.Run("logs are equal", e.same)
}

// loses does something to a sidecar and waits until what it led goes on elsewhere.
func (e *env) loses(t *testing.T, c *stack.Sidecar, limit time.Duration, do func() error) failover {
	t.Helper()
	var parts []part
	harness.AwaitT(t, patience, "the sidecar leads something", func(context.Context) error {
		if parts = e.w.ledBy(c.VirtualID()); len(parts) == 0 {
			return errors.New("it leads nothing")
		}
		return nil
	})
	began := time.Now()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	var f failover
	harness.AwaitT(t, patience, "what it led goes on", func(context.Context) (err error) {
		f, err = e.w.since(began, c.VirtualID(), parts)
		return err
	})
	t.Logf("%s: %s", t.Name(), f)
	if f.moved > limit+slow {
		t.Errorf("that took %s, at most %s and %s for a slow machine were expected", f.moved, limit, slow)
	}
	return f
}

// stopped: a clean stop hands over before the process ends, and the sidecar leads again when it
// is back.
func stopped(t *testing.T, e *env) {
	c := e.dst.Sidecar(e.others(e.coordinator(t))[0])
	f := e.loses(t, c, 2*time.Second, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return c.Terminate(ctx)
	})
	if f.led >= session {
		t.Errorf("others led after %s: the session has run out, and nothing was handed over", f.led)
	}
	e.sidecar(t, c)
	e.awaitEven(t, 1, 2, 3)
	e.awaitMirroring(t)
	e.well(t)
}

// killed: a sidecar is gone without a word, and its broker lives; it is the one that coordinates
// the mirror. When its session has run out the ones that follow lead, every mirror API answers,
// then it is replaced, and when it is back it has as much as the others.
func killed(t *testing.T, e *env) {
	c := e.coordinator(t)
	began := time.Now()
	e.loses(t, c, session, c.Kill)
	e.awaitMirroring(t)
	e.cli(t, "--list")
	topic := e.load.TopicNames()[0]
	for _, verb := range []string{"--pause", "--resume"} {
		e.cli(t, verb, "--mirror", mirror, "--topics", topic)
	}
	e.awaitMirroring(t)
	took := time.Since(began)
	t.Logf("every partition mirrors again, and what is asked is done, after %s", took.Round(time.Millisecond))
	if took > session+5*time.Second+slow {
		t.Errorf("that took %s", took)
	}
	e.awaitEven(t, e.others(c)...)
	e.well(t) // a virtual replica that is lost is no data that is
	t.Logf("replaced %s after it was killed", time.Since(began).Round(time.Millisecond))
	e.minISR(t, "4") // two can be there: as before
	e.sidecar(t, c)
	e.awaitEven(t, 1, 2, 3)
}

// restarted: a new process ends its predecessor's session, so its death is certain and nobody
// waits for the session to run out.
func restarted(t *testing.T, e *env) {
	// Not one that has come back lately: it would have to stay longer before it leads again.
	c := e.dst.Sidecar(e.others(e.coordinator(t))[1])
	f := e.loses(t, c, session, func() error {
		if err := c.Kill(); err != nil {
			return err
		}
		return c.Launch(context.WithoutCancel(t.Context()))
	})
	t.Logf("kill -9 and start: others led after %s", f.led)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	e.awaitEven(t, 1, 2, 3)
}

// frozen: a sidecar that stands still is fenced like a dead one; when it goes on it changes
// nothing that others have done, and follows.
func frozen(t *testing.T, e *env) {
	c := e.dst.Sidecars[0]
	e.loses(t, c, session, c.Process().Pause)
	if err := c.Process().Resume(); err != nil {
		t.Fatal(err)
	}
	e.awaitEven(t, 1, 2, 3)
	e.awaitMirroring(t)
}

// lastOne: with one sidecar left partitions have one virtual replica that lives, and
// min.insync.replicas counts no more than that.
func lastOne(t *testing.T, e *env) {
	a, b := e.dst.Sidecars[0], e.dst.Sidecars[1]
	if err := a.Kill(); err != nil {
		t.Fatal(err)
	}
	e.loses(t, b, session, b.Kill)
	e.minISR(t, "3")
	e.awaitMirroring(t)
	e.sidecar(t, a)
	e.minISR(t, "4")
	e.sidecar(t, b)
	e.awaitEven(t, 1, 2, 3)
}

// pod: a sidecar and its broker die together. Too few are in sync then for anything to move, so
// that the lost virtual replica is replaced without waiting.
func pod(t *testing.T, e *env) {
	c := e.dst.Sidecars[2]
	node := e.dst.Cluster.Node(c.Broker)
	e.loses(t, c, session+5*time.Second, func() error { return errors.Join(node.Kill(), c.Kill()) })
	harness.AwaitT(t, patience, "two virtual replicas where sidecars live", func(ctx context.Context) error {
		topics, err := e.seats(ctx)
		if err != nil {
			return err
		}
		return even(topics, e.others(c), c.Broker)
	})
	e.counted(t, "kafka_mirror_under_replicated_partitions", some)
	e.counted(t, "kafka_mirror_isr_shrinks_total", some)
	e.counted(t, "kafka_mirror_offline_partitions", none)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	e.sidecar(t, c)
	e.awaitEven(t, 1, 2, 3)
	e.awaitMirroring(t)
	e.well(t)
}

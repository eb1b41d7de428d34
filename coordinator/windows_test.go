package coordinator

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// slowBroker opens when it is let, and counts what is open.
type slowBroker struct {
	asked chan struct{}
	let   chan struct{}
	open  atomic.Int32
}

func (b *slowBroker) Uncordon(context.Context) (func(), error) {
	b.asked <- struct{}{}
	<-b.let
	b.open.Add(1)
	return func() { b.open.Add(-1) }, nil
}

// TestLeaseIsClosedInOrder: a window that is still opening when its owner closes it does not stay open.
func TestLeaseIsClosedInOrder(t *testing.T) {
	r := newRig(t)
	b := &slowBroker{asked: make(chan struct{}, 1), let: make(chan struct{})}
	r.deps.Broker = b
	var all sync.WaitGroup
	all.Go(func() {
		if err := r.grant(t.Context(), "peer", time.Hour); err != nil {
			t.Error(err)
		}
	})
	<-b.asked
	closed := make(chan struct{})
	all.Go(func() {
		defer close(closed)
		if err := r.grant(t.Context(), "peer", 0); err != nil {
			t.Error(err)
		}
	})
	// Another owner waits for nobody.
	if err := r.grant(t.Context(), "other", 0); err != nil {
		t.Error(err)
	}
	select {
	case <-closed:
		t.Error("closed before it was open")
	case <-time.After(20 * time.Millisecond):
	}
	close(b.let)
	all.Wait()
	if n := b.open.Load(); n != 0 {
		t.Errorf("%d windows are open", n)
	}
	// Who gives up waiting leaves nothing behind.
	hold, err := r.windows.turns.take(t.Context(), "lease peer")
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.grant(gone, "peer", time.Hour); err == nil {
		t.Error("granted out of turn")
	}
	hold()
	if n := len(r.windows.turns.queue); n != 0 {
		t.Errorf("%d keys are remembered", n)
	}
}

// TestLeaseThatIsOldIsOpenedAnew: a virtual broker ends each window by itself. One that was prolonged
// again and again must not be said to be open when it is not.
func TestLeaseThatIsOldIsOpenedAnew(t *testing.T) {
	r := newRig(t)
	b := &slowBroker{asked: make(chan struct{}, 3), let: make(chan struct{})}
	close(b.let)
	r.deps.Broker = b
	grant := func(d time.Duration) {
		t.Helper()
		if err := r.grant(t.Context(), "peer", d); err != nil {
			t.Fatal(err)
		}
	}
	grant(time.Hour)
	grant(time.Hour)
	if n := len(b.asked); n != 1 {
		t.Errorf("opened %d times, though it was just opened", n)
	}
	r.windows.mu.Lock()
	r.windows.leases["peer"].opened = time.Now().Add(-windowLease)
	r.windows.mu.Unlock()
	grant(time.Hour)
	if n := len(b.asked); n != 2 {
		t.Errorf("opened %d times: what the broker has closed by itself is taken for open", n)
	}
	if n := b.open.Load(); n != 1 {
		t.Errorf("%d windows are open", n)
	}
	grant(0)
	if n := b.open.Load(); n != 0 {
		t.Errorf("%d windows are open at the end", n)
	}
}

// orderPeers note what a peer is asked for, and when it has answered.
type orderPeers struct {
	mu      sync.Mutex // guards the following
	seen    []string
	closing chan struct{} // closed when the first window is to be closed
	let     chan struct{}
}

func (p *orderPeers) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, what)
}

func (p *orderPeers) Request(_ context.Context, _ int32, req kmsg.Request) (kmsg.Response, error) {
	if req.(*protocol.UncordonVirtualBrokerRequest).LeaseMs > 0 { //nolint:forcetypeassert // nothing else is asked
		p.note("open")
		return req.ResponseKind(), nil
	}
	p.note("close")
	if p.closing != nil {
		close(p.closing)
		p.closing = nil
		<-p.let
	}
	p.note("closed")
	return req.ResponseKind(), nil
}

// TestPeersWindowIsAskedForInOrder: whoever needs a peer's window while it is being closed opens it
// anew after that, or the close would end it.
func TestPeersWindowIsAskedForInOrder(t *testing.T) {
	r := newRig(t)
	p := &orderPeers{closing: make(chan struct{}), let: make(chan struct{})}
	closing := p.closing
	r.deps.Peers = p
	first, err := r.openWindow(t.Context(), 10009)
	if err != nil {
		t.Fatal(err)
	}
	// A second step shares the window.
	second, err := r.openWindow(t.Context(), 10009)
	if err != nil {
		t.Fatal(err)
	}
	second()
	var all sync.WaitGroup
	all.Go(first)
	<-closing
	all.Go(func() {
		again, err := r.openWindow(t.Context(), 10009)
		if err != nil {
			t.Error(err)
			return
		}
		p.note("in use")
		again()
	})
	time.Sleep(20 * time.Millisecond) // for one that does not wait
	close(p.let)
	all.Wait()
	want := []string{"open", "open", "close", "closed", "open", "in use", "close", "closed"}
	if !slices.Equal(p.seen, want) {
		t.Errorf("a peer was asked %v, want %v", p.seen, want)
	}
	if len(r.windows.held) != 0 {
		t.Errorf("held %v", r.windows.held)
	}
}

package coordinator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// windows are the times in which virtual brokers accept assignments: those that others
// hold on ours (leases, which end by themselves should the holder die), and those that
// we hold on others.
type windows struct {
	turns turns // by owner of a lease, and by peer: what is asked for goes in order

	mu     sync.Mutex // guards the following
	leases map[string]*lease
	held   map[int32]int // how many of our steps need a peer's window
	closed bool
}

type lease struct {
	opened  time.Time
	timer   *time.Timer
	release func()
}

// closeAll ends every lease.
func (w *windows) closeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for owner, l := range w.leases {
		l.timer.Stop()
		l.release()
		delete(w.leases, owner)
	}
}

func (w *windows) closeLease(owner string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.leases[owner]; l != nil {
		l.timer.Stop()
		l.release()
		delete(w.leases, owner)
	}
}

// extend prolongs the owner's lease, if it has one that is young: the virtual broker cordons itself
// again a while after it was opened, whatever was prolonged since, and would be said to be open.
func (w *windows) extend(owner string, d time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.leases[owner]
	// A timer that has fired is about to close the window: too late to prolong it.
	return l != nil && time.Since(l.opened) < windowLease && l.timer.Stop() && !l.timer.Reset(d)
}

// grant opens our virtual broker to owner for d at most; 0 closes the owner's window. What an owner
// asks for goes in order: a window that is still opening when it is to be closed is closed.
func (c *Coordinator) grant(ctx context.Context, owner string, d time.Duration) error {
	done, err := c.windows.turns.take(ctx, "lease "+owner)
	if err != nil {
		return fmt.Errorf("virtual broker %d: an earlier question of %s is not answered yet: %w", c.cfg.Self, owner, err)
	}
	defer done()
	if d <= 0 {
		c.windows.closeLease(owner)
		return nil
	}
	if c.windows.extend(owner, d) {
		return nil
	}
	release, err := c.deps.Broker.Uncordon(ctx)
	if err != nil {
		return fmt.Errorf("virtual broker %d does not open for assignments: %w", c.cfg.Self, err)
	}
	w := &c.windows
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		release()
		return fmt.Errorf("virtual broker %d is being stopped", c.cfg.Self)
	}
	if old := w.leases[owner]; old != nil { // too old to be prolonged, or its timer has fired and waits for us
		old.timer.Stop()
		old.release()
	}
	l := &lease{opened: time.Now(), release: release}
	l.timer = time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.leases[owner] == l {
			delete(w.leases, owner)
			l.release()
		}
	})
	w.leases[owner] = l
	return nil
}

// openWindow opens a virtual broker, own or a peer's, for assignments until the returned
// function is called.
func (c *Coordinator) openWindow(ctx context.Context, who int32) (func(), error) {
	if who == c.cfg.Self {
		return c.deps.Broker.Uncordon(ctx)
	}
	turn, err := c.windows.turns.take(ctx, "peer "+itoa(who))
	if err != nil {
		return nil, err
	}
	c.windows.hold(who, 1)
	err = c.askWindow(ctx, who, windowLease)
	turn()
	// Not ctx, which may have ended: an open window lets strangers in.
	done := func() { c.closeWindow(context.WithoutCancel(ctx), who) }
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// closeWindow closes a peer's window, unless another of our steps needs it.
func (c *Coordinator) closeWindow(ctx context.Context, who int32) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	// One that opens it anew meanwhile comes before this, or after it.
	turn, err := c.windows.turns.take(ctx, "peer "+itoa(who))
	left := c.windows.hold(who, -1)
	if err == nil {
		defer turn()
		if left > 0 {
			return
		}
		err = c.askWindow(ctx, who, 0)
	}
	if err != nil {
		c.log.Warn("window at a peer closes when its lease ends", "virtual_broker", who, "err", err)
	}
}

// hold changes how many of our steps need a peer's window, and tells how many do now.
func (w *windows) hold(who int32, by int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[who] += by
	left := w.held[who]
	if left == 0 {
		delete(w.held, who)
	}
	return left
}

// openWindows opens several virtual brokers. They open and close at the same time: what the
// controller places meanwhile may land on each that is open.
func (c *Coordinator) openWindows(ctx context.Context, who map[int32]bool) (func(), error) {
	var (
		mu     sync.Mutex
		opened []func()
		open   errgroup.Group
	)
	for v := range who {
		open.Go(func() error {
			done, err := c.openWindow(ctx, v)
			if err != nil {
				return fmt.Errorf("virtual broker %d does not open for assignments: %w", v, err)
			}
			mu.Lock()
			defer mu.Unlock()
			opened = append(opened, done)
			return nil
		})
	}
	err := open.Wait()
	closeAll := func() {
		var all sync.WaitGroup
		for _, done := range opened {
			all.Go(done)
		}
		all.Wait()
	}
	if err != nil {
		closeAll()
		return nil, err
	}
	return closeAll, nil
}

func (c *Coordinator) askWindow(ctx context.Context, who int32, d time.Duration) error {
	req := protocol.NewUncordonVirtualBrokerRequest()
	req.LeaseMs = int32(d.Milliseconds())
	resp, err := c.deps.Peers.Request(ctx, who, &req)
	if err != nil {
		return err
	}
	r, ok := resp.(*protocol.UncordonVirtualBrokerResponse)
	if !ok {
		return fmt.Errorf("%w: unexpected answer", errPeer)
	}
	return errorOf(r.ErrorCode, r.ErrorMessage)
}

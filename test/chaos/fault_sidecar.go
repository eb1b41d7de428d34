package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// leading gives how many partitions each virtual broker leads.
func (b *blow) leading(ctx context.Context) (map[int32]int, error) {
	parts, _, err := b.assignments(ctx)
	if err != nil {
		return nil, err
	}
	out := map[int32]int{}
	for _, p := range parts {
		out[p.Leader]++
	}
	return out, nil
}

// leader picks a sidecar that leads something.
func (b *blow) leader(ctx context.Context) (*stack.Sidecar, error) {
	leads, err := b.leading(ctx)
	if err != nil {
		return nil, err
	}
	c, err := b.pick(b.plan.Pick[0], func(c *stack.Sidecar) bool { return leads[c.VirtualID()] > 0 })
	if err != nil {
		c, err = b.pick(b.plan.Pick[0], func(*stack.Sidecar) bool { return true })
	}
	if err == nil {
		b.note("sidecar %d leads %d partitions", c.Broker, leads[c.VirtualID()])
	}
	return c, err
}

func (b *blow) end(c *stack.Sidecar) (pid int, err error) {
	pid = c.Process().PID()
	if err := c.Kill(); err != nil {
		return pid, err
	}
	if alive(pid) {
		return pid, fmt.Errorf("sidecar %d: process %d lives after SIGKILL", c.Broker, pid)
	}
	b.note("sidecar %d: process %d is gone", c.Broker, pid)
	return pid, nil
}

// again starts a sidecar. It need not become ready here: what it waits for may be another fault's.
func (b *blow) again(ctx context.Context, c *stack.Sidecar, old int) error {
	if err := c.Launch(ctx); err != nil {
		return err
	}
	b.note("sidecar %d: process %d took the place of %d", c.Broker, c.Process().PID(), old)
	return nil
}

// leadsNothing tells when nothing is led by the virtual broker any more.
func (b *blow) leadsNothing(c *stack.Sidecar) func(context.Context) (string, bool) {
	begun := time.Now()
	return func(ctx context.Context) (string, bool) {
		leads, err := b.leading(ctx)
		return fmt.Sprintf("virtual broker %d leads nothing after %s", c.VirtualID(), time.Since(begun).Round(time.Millisecond)), err == nil && leads[c.VirtualID()] == 0
	}
}

func (b *blow) sidecarKill(ctx context.Context) error {
	c, err := b.leader(ctx)
	if err != nil {
		return err
	}
	return b.killAndStart(ctx, c)
}

func (b *blow) killAndStart(ctx context.Context, c *stack.Sidecar) error {
	old, err := b.end(c)
	if err != nil {
		return err
	}
	err = b.hold(ctx, b.plan.Hold, b.leadsNothing(c))
	return errors.Join(err, b.again(ctx, c, old))
}

func (b *blow) sidecarRestart(ctx context.Context) error {
	c, err := b.leader(ctx)
	if err != nil {
		return err
	}
	pid := c.Process().PID()
	begun := time.Now()
	stop, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	if err := c.Terminate(stop); err != nil {
		b.note("sidecar %d: %s", c.Broker, firstLine(err))
	}
	code, err := c.Process().Wait(ctx)
	if err != nil {
		return err
	}
	b.note("sidecar %d: process %d ended with %d after %s", c.Broker, pid, code, time.Since(begun).Round(time.Millisecond))
	err = b.hold(ctx, b.plan.Hold/2, b.leadsNothing(c))
	return errors.Join(err, b.again(ctx, c, pid))
}

func (b *blow) sidecarPause(ctx context.Context) error {
	c, err := b.leader(ctx)
	if err != nil {
		return err
	}
	p := c.Process()
	if err := p.Pause(); err != nil {
		return err
	}
	if err := stopped(ctx, p.PID()); err != nil {
		return errors.Join(fmt.Errorf("sidecar %d: %w", c.Broker, err), p.Resume())
	}
	b.note("sidecar %d: process %d is stopped", c.Broker, p.PID())
	err = b.hold(ctx, session+2*time.Second+b.plan.Hold, b.fenced(c.VirtualID(), false))
	if err := errors.Join(err, p.Resume()); err != nil {
		return err
	}
	// It finds out that it was fenced, and may end for it: a supervisor would start it anew.
	return b.endsOrNot(ctx, c, 5*time.Second)
}

// endsOrNot starts a sidecar that ends by itself within limit.
func (b *blow) endsOrNot(ctx context.Context, c *stack.Sidecar, limit time.Duration) error {
	pid := c.Process().PID()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.Process().Done():
		b.note("sidecar %d: process %d ended by itself", c.Broker, pid)
		return b.again(ctx, c, pid)
	case <-timer.C:
		b.note("sidecar %d: process %d goes on", c.Broker, pid)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sidecarPair kills all sidecars that a partition has.
func (b *blow) sidecarPair(ctx context.Context) error {
	parts, _, err := b.assignments(ctx)
	if err != nil {
		return err
	}
	all := b.partitions()
	p := all[int(b.plan.Pick[0]%uint32(len(all)))]
	var hit []*stack.Sidecar
	for _, id := range parts[p].Replicas {
		if c := b.dest.Sidecar(id - stack.VirtualOffset); c != nil {
			hit = append(hit, c)
		}
	}
	if len(hit) == 0 {
		return fmt.Errorf("%w: %s has no virtual replica (replicas %v)", errNotNow, p, parts[p].Replicas)
	}
	var pids []int
	for _, c := range hit {
		pid, err := b.end(c)
		if err != nil {
			return err
		}
		pids = append(pids, pid)
	}
	err = b.hold(ctx, b.plan.Hold, func(ctx context.Context) (string, bool) {
		parts, _, err := b.assignments(ctx)
		return fmt.Sprintf("%s is led by %d", p, parts[p].Leader), err == nil && parts[p].Leader < stack.VirtualOffset
	})
	for i, c := range hit {
		err = errors.Join(err, b.again(ctx, c, pids[i]))
	}
	return err
}

// keyTypeMirror is FindCoordinator's key type of mirrors.
const keyTypeMirror = 3

func (b *blow) coordinatorKill(ctx context.Context) error {
	id, err := b.coordinator(ctx)
	if err != nil {
		return fmt.Errorf("%w: find the coordinator: %w", errNotNow, err)
	}
	c := b.dest.Sidecar(id)
	if c == nil {
		return fmt.Errorf("%w: the coordinator %d is no sidecar's broker", errNotNow, id)
	}
	b.note("sidecar %d coordinates the mirror", id)
	return b.killAndStart(ctx, c)
}

func (b *blow) coordinator(ctx context.Context) (int32, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys, req.CoordinatorKey = keyTypeMirror, []string{mirror}, mirror
	var last error
	for _, c := range b.dest.Sidecars {
		cl, err := b.clientAt(c.Proxy)
		if err != nil {
			return -1, err
		}
		r, err := cl.SeedBrokers()[0].Request(ctx, req)
		cl.Close()
		if err != nil {
			last = err
			continue
		}
		resp := r.(*kmsg.FindCoordinatorResponse)
		code, id := resp.ErrorCode, resp.NodeID
		if len(resp.Coordinators) == 1 {
			code, id = resp.Coordinators[0].ErrorCode, resp.Coordinators[0].NodeID
		}
		if last = kerr.ErrorForCode(code); last == nil {
			return id, nil
		}
	}
	return -1, last
}

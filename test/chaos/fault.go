package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// blow is one fault while it happens. What it says is the evidence that it really did.
type blow struct {
	*world
	plan     planned
	evidence []string
}

func (b *blow) note(format string, args ...any) {
	b.evidence = append(b.evidence, fmt.Sprintf(format, args...))
}

// errNotNow says that a fault could not be dealt without breaking Kafka's own rules, or hit nothing.
var errNotNow = errors.New("not at this moment")

// strike deals the blow, holds it and cures it. When it returns without an error, the fault
// has happened and is over.
func (b *blow) strike(ctx context.Context) error {
	switch b.plan.Kind {
	case sidecarKill:
		return b.sidecarKill(ctx)
	case sidecarPause:
		return b.sidecarPause(ctx)
	case sidecarRestart:
		return b.sidecarRestart(ctx)
	case sidecarPair:
		return b.sidecarPair(ctx)
	case coordinatorKill:
		return b.coordinatorKill(ctx)
	case brokerKill, brokerWipe:
		return b.brokerKill(ctx)
	case brokerRestart:
		return b.restart(ctx, anyOf(b.dest.Cluster.Brokers(), b.plan.Pick[0]))
	case brokerPause:
		return b.pause(ctx, anyOf(b.dest.Cluster.Brokers(), b.plan.Pick[0]))
	case controllerKill:
		return b.kill(ctx, anyOf(b.dest.Cluster.Controllers(), b.plan.Pick[0]), nil)
	case sourceKill:
		return b.kill(ctx, anyOf(b.source.Brokers(), b.plan.Pick[0]), nil)
	case sourceRestart:
		return b.restart(ctx, anyOf(b.source.Brokers(), b.plan.Pick[0]))
	case sourcePause:
		return b.pause(ctx, anyOf(b.source.Brokers(), b.plan.Pick[0]))
	case sourceLeaders:
		return b.sourceLeaders(ctx)
	case sourceRetention:
		return b.sourceRetention(ctx)
	case sourceCompacted:
		return b.sourceCompacted(ctx)
	case linkSourceCut, linkSourceSlow, linkSourceDead, linkController, linkHome, linkPeers, linkVirtual:
		return b.link(ctx)
	case preferredElection:
		return b.preferredElection(ctx)
	case reassignment:
		return b.reassignment(ctx)
	case pauseResume:
		return b.pauseResume(ctx)
	}
	return fmt.Errorf("no such fault: %s", b.plan.Kind)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startLimit is how long a process may take to be ready again.
const startLimit = 90 * time.Second

// hold waits and notes whether the cluster's brokers saw it: gone tells what must be true meanwhile.
func (b *blow) hold(ctx context.Context, d time.Duration, gone func(ctx context.Context) (string, bool)) error {
	end := time.Now().Add(d)
	seen := false
	for time.Now().Before(end) {
		if gone != nil && !seen {
			if text, yes := gone(ctx); yes {
				seen = true
				b.note("%s", text)
			}
		}
		if err := sleep(ctx, min(200*time.Millisecond, max(time.Until(end), 0))); err != nil {
			return err
		}
	}
	return nil
}

// fenced tells whether a broker of the destination (or the source) is not live any more.
func (b *blow) fenced(id int32, atSource bool) func(ctx context.Context) (string, bool) {
	admin := b.destAdmin
	if atSource {
		admin = b.sourceAdmin
	}
	return func(ctx context.Context) (string, bool) {
		_, live, err := b.metadata(ctx, admin)
		return fmt.Sprintf("broker %d is not live (live: %s)", id, summary(live)), err == nil && !slices.Contains(live, id)
	}
}

// kill ends a node with SIGKILL, lets while happen and starts it again.
func (b *blow) kill(ctx context.Context, n *harness.Node, while func() error) error {
	old := n.PID()
	if err := n.Kill(); err != nil {
		return err
	}
	if alive(old) {
		return fmt.Errorf("%s: process %d lives after SIGKILL", n, old)
	}
	b.note("%s: process %d is gone", n, old)
	if while != nil {
		if err := while(); err != nil {
			return errors.Join(err, b.start(ctx, n, old))
		}
	}
	var gone func(context.Context) (string, bool)
	if n.Role() != harness.RoleController {
		gone = b.fenced(n.ID(), b.source.Node(n.ID()) == n)
	}
	err := b.hold(ctx, b.plan.Hold, gone)
	return errors.Join(err, b.start(ctx, n, old))
}

// start starts a node again.
func (b *blow) start(ctx context.Context, n *harness.Node, old int) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := n.Start(ctx); err != nil {
		return err
	}
	b.note("%s: process %d took the place of %d", n, n.PID(), old)
	return nil
}

func (b *blow) restart(ctx context.Context, n *harness.Node) error {
	old := n.PID()
	begun := time.Now()
	stop, cancel := context.WithTimeout(ctx, 30*time.Second)
	// One that cannot end in an orderly way in time is killed; that is a fault as well.
	if err := n.Stop(stop); err != nil {
		b.note("%s: %s", n, firstLine(err))
	}
	cancel()
	if alive(old) {
		return fmt.Errorf("%s: process %d lives after its end", n, old)
	}
	b.note("%s: process %d ended after %s", n, old, time.Since(begun).Round(time.Millisecond))
	return b.start(ctx, n, old)
}

// pause freezes a node for longer than the session timeout.
func (b *blow) pause(ctx context.Context, n *harness.Node) error {
	if err := n.Pause(); err != nil {
		return err
	}
	if err := stopped(ctx, n.PID()); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", n, err), n.Resume())
	}
	b.note("%s: process %d is stopped", n, n.PID())
	err := b.hold(ctx, session+2*time.Second+b.plan.Hold, b.fenced(n.ID(), b.source.Node(n.ID()) == n))
	if err := errors.Join(err, n.Resume()); err != nil {
		return err
	}
	b.note("%s: process %d goes on, state %s", n, n.PID(), processState(n.PID()))
	return nil
}

// brokerKill also replaces the disk, if that is the fault and every partition has its other copies.
func (b *blow) brokerKill(ctx context.Context) error {
	n := anyOf(b.dest.Cluster.Brokers(), b.plan.Pick[0])
	if b.plan.Kind == brokerKill {
		return b.kill(ctx, n, nil)
	}
	if err := harness.Await(ctx, 20*time.Second, func(ctx context.Context) error { return b.othersInSync(ctx, n.ID()) }); err != nil {
		return fmt.Errorf("%w: %w", errNotNow, err)
	}
	keepIDs := b.plan.Pick[1]%2 == 0
	before := size(n.DataDirs())
	return b.kill(ctx, n, func() error {
		if err := n.Wipe(ctx, keepIDs); err != nil {
			return err
		}
		b.note("%s: its disk had %d bytes and has %d; directory ids kept: %t", n, before, size(n.DataDirs()), keepIDs)
		return nil
	})
}

// othersInSync fails unless both other real brokers are in the ISR of every partition that has
// a replica at broker id: of those topics that we mirror and of Kafka's own.
func (b *blow) othersInSync(ctx context.Context, id int32) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	md, err := b.destAdmin.Metadata(ctx)
	if err != nil {
		return err
	}
	for _, t := range md.Topics {
		for _, p := range t.Partitions {
			for _, n := range b.dest.Cluster.Brokers() {
				if n.ID() != id && slices.Contains(p.Replicas, n.ID()) && !slices.Contains(p.ISR, n.ID()) {
					return fmt.Errorf("%s-%d: broker %d is not in sync (isr %v)", t.Topic, p.Partition, n.ID(), p.ISR)
				}
			}
		}
	}
	return nil
}

// stopped waits until a process stands still after SIGSTOP, which its threads do one by one.
func stopped(ctx context.Context, pid int) error {
	return harness.Await(ctx, 10*time.Second, func(context.Context) error {
		if s := processState(pid); s != "T" {
			return fmt.Errorf("process %d is in state %q after SIGSTOP", pid, s)
		}
		return nil
	})
}

func alive(pid int) bool {
	s := processState(pid)
	return s != "" && s != "Z"
}

// processState is the kernel's letter for what a process does, "" if there is none.
func processState(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// pid (name) state …; the name may hold anything.
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

func size(dirs []string) int64 {
	var sum int64
	for _, d := range dirs {
		entries, err := os.ReadDir(d)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() {
				sum += size([]string{d + string(os.PathSeparator) + e.Name()})
			} else if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
	}
	return sum
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

func (w *world) clientAt(addrs ...string) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())),
		kgo.DisableClientMetrics(), kgo.DialTimeout(2*time.Second), kgo.MetadataMinAge(250*time.Millisecond))
}

// preferredElection elects the preferred replicas of all partitions, around the proxies.
func (b *blow) preferredElection(ctx context.Context) error {
	set := kadm.TopicsSet{}
	for _, p := range b.partitions() {
		set.Add(p.topic, p.partition)
	}
	before, _, err := b.assignments(ctx)
	if err != nil {
		return err
	}
	var elected kadm.ElectLeadersResults
	err = harness.Await(ctx, 30*time.Second, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		elected, err = b.destAdmin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errNotNow, err)
	}
	answered := 0
	for _, parts := range elected {
		answered += len(parts)
	}
	after, _, err := b.assignments(ctx)
	moved := 0
	for p, d := range after {
		if d.Leader != before[p].Leader {
			moved++
		}
	}
	b.note("the controller answered for %d partitions, %d leaders moved", answered, moved)
	return err
}

// reassignment moves the replicas of a topic as an operator would who knows nothing of mirrors:
// in another order through the proxies, in another order around them, or to the real brokers alone,
// which puts the virtual replicas out.
func (b *blow) reassignment(ctx context.Context) error {
	all := b.partitions()
	p := all[int(b.plan.Pick[0]%uint32(len(all)))]
	at, how := b.dest.Direct(), [...]string{"around the proxies, in another order", "through the proxies", "around the proxies, without the virtual ones"}[b.plan.Pick[1]%3]
	if b.plan.Pick[1]%3 == 1 {
		at = b.dest.Proxies()
	}
	cl, err := b.clientAt(at...)
	if err != nil {
		return err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	var before []int32
	err = harness.Await(ctx, 30*time.Second, func(ctx context.Context) error {
		parts, _, err := b.assignments(ctx) // each time anew: a virtual replica may be replaced meanwhile
		if err != nil {
			return err
		}
		before = parts[p].Replicas
		wanted, err := b.rotated(before)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		ctx, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		req := kadm.AlterPartitionAssignmentsReq{}
		req.Assign(p.topic, p.partition, wanted)
		resp, err := admin.AlterPartitionAssignments(ctx, req)
		if err == nil {
			err = resp.Error()
		}
		if err != nil {
			return fmt.Errorf("reassign %s from %v to %v %s: %w", p, before, wanted, how, err)
		}
		b.note("%s: %v reassigned to %v %s: taken", p, before, wanted, how)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errNotNow, err)
	}
	return b.hold(ctx, b.plan.Hold, func(ctx context.Context) (string, bool) {
		now, _, err := b.assignments(ctx)
		return fmt.Sprintf("%s has replicas %v", p, now[p].Replicas), err == nil && !slices.Equal(now[p].Replicas, before)
	})
}

// rotated gives the real replicas in another order, behind the virtual ones where these stay.
func (b *blow) rotated(replicas []int32) ([]int32, error) {
	var wanted, real []int32
	for _, id := range replicas {
		switch {
		case id < stack.VirtualOffset:
			real = append(real, id)
		case b.plan.Pick[1]%3 == 0:
			wanted = append(wanted, id)
		}
	}
	if len(real) < 2 {
		return nil, fmt.Errorf("replicas %v", replicas)
	}
	return append(append(wanted, real[1:]...), real[0]), nil
}

// pauseResume pauses a topic, as the operator does, and resumes it.
func (b *blow) pauseResume(ctx context.Context) error {
	topics := b.load.TopicNames()
	topic := topics[int(b.plan.Pick[0]%uint32(len(topics)))]
	verb := func(flag string) error {
		return harness.Await(ctx, 60*time.Second, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			_, err := b.dest.CLIAt(ctx, b.dest.Sidecars[int(b.plan.Pick[1]%uint32(len(b.dest.Sidecars)))].Proxy, flag, "--mirror", mirror, "--topics", topic)
			if err != nil {
				b.plan.Pick[1]++ // another sidecar next time
			}
			return err
		})
	}
	if err := verb("--pause"); err != nil {
		// Whoever gets no answer cannot know whether it has happened: taken back, or the topic stays paused.
		if undo := verb("--resume"); undo != nil {
			return fmt.Errorf("%s may be paused, and is not to be resumed: %w (%w)", topic, undo, err)
		}
		return fmt.Errorf("%w: %w", errNotNow, err)
	}
	paused := harness.Await(ctx, 60*time.Second, func(ctx context.Context) error {
		states, err := b.states(ctx)
		if err != nil {
			return err
		}
		for part := range int32(partitions) {
			if s := states[tp{topic, part}]; s.State != int8(coordinator.Paused) {
				return fmt.Errorf("%s-%d is %s", topic, part, stateText(s))
			}
		}
		return nil
	})
	if paused == nil {
		b.note("%s is PAUSED", topic)
	} else {
		b.note("%s was told to pause: %s", topic, firstLine(paused))
	}
	if err := b.hold(ctx, b.plan.Hold, nil); err != nil {
		return err
	}
	if err := verb("--resume"); err != nil {
		return err
	}
	b.note("%s was resumed", topic)
	return nil
}

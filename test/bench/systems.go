package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// native adds the second broker to the backlog's replicas and takes it away again.
func (r *rig) native(ctx context.Context) (round, error) {
	holder, copier := r.brokers()
	if err := r.reassign(ctx, holder.ID(), copier.ID()); err != nil {
		return round{}, err
	}
	m, err := watch{
		copier: holder.PID(), source: holder.PID(), destination: copier.PID(), bytes: r.bytes,
		progress: bytesAt(copier, topic, r.cfg.partitions, r.bytes),
	}.run(ctx)
	if err != nil {
		return m, err
	}
	err = until(ctx, "the new replica to be in the ISR", func() (bool, error) {
		topics, err := r.admin.ListTopics(ctx, topic)
		if err != nil {
			return false, err
		}
		in := 0
		for _, p := range topics[topic].Partitions {
			if slices.Contains(p.ISR, copier.ID()) {
				in++
			}
		}
		return in == r.cfg.partitions, nil
	})
	if err != nil {
		return m, err
	}
	// A second reassignment that comes before the first has ended would hang: a replica that is
	// both added and removed stays.
	if err := r.settled(ctx); err != nil {
		return m, err
	}
	if err := r.reassign(ctx, holder.ID()); err != nil {
		return m, err
	}
	if err := r.settled(ctx); err != nil {
		return m, err
	}
	return m, until(ctx, "the copy to go away", func() (bool, error) {
		n, err := logBytes(copier, topic, r.cfg.partitions)
		return n == 0, err
	})
}

func (r *rig) reassign(ctx context.Context, replicas ...int32) error {
	var req kadm.AlterPartitionAssignmentsReq
	for p := range r.cfg.partitions {
		req.Assign(topic, int32(p), replicas)
	}
	resp, err := r.admin.AlterPartitionAssignments(ctx, req)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return fmt.Errorf("reassign %s to %v: %w", topic, replicas, err)
	}
	return nil
}

// settled waits until no reassignment is under way: the next would be mixed up with it.
func (r *rig) settled(ctx context.Context) error {
	var all kadm.TopicsSet
	for p := range r.cfg.partitions {
		all.Add(topic, int32(p))
	}
	return until(ctx, "the reassignment to end", func() (bool, error) {
		left, err := r.admin.ListPartitionReassignments(ctx, all)
		return len(left) == 0, err
	})
}

// sidecar mirrors the backlog with this system, and removes what it mirrored.
func (r *rig) sidecar(ctx context.Context) (round, error) {
	const mirror = "bench"
	file := filepath.Join(r.dest.Dir(), "mirror.properties")
	holder, _ := r.brokers()
	text := "bootstrap.servers=" + holder.Addr(harness.ListenerClient) + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return round{}, err
	}
	if _, err := r.dest.CLI(ctx, "--create", "--mirror", mirror, "--mirror-config", file); err != nil {
		return round{}, err
	}
	// The command may wait for the mirror's start, so the watch runs beside it.
	started := make(chan error, 1)
	go func() {
		_, err := r.dest.CLI(ctx, "--start", "--mirror", mirror, "--topics", topic)
		started <- err
	}()
	sidecar, node := r.dest.Sidecars[0], r.dest.Cluster.Brokers()[0]
	m, err := watch{
		copier: sidecar.Process().PID(), source: holder.PID(), destination: node.PID(), bytes: r.bytes,
		progress: bytesAt(node, topic, r.cfg.partitions, r.bytes),
		alive: func() error {
			if !sidecar.Running() {
				return fmt.Errorf("the sidecar has ended; the end of its log:\n%s", sidecar.LogTail())
			}
			select {
			case err := <-started:
				started <- err // asked again
				return err
			default:
				return nil
			}
		},
	}.run(ctx)
	if err = errors.Join(err, <-started); err != nil {
		return m, fmt.Errorf("%w; the end of the sidecar's log:\n%s", err, sidecar.LogTail())
	}
	if _, err := r.dest.CLI(ctx, "--stop", "--mirror", mirror, "--topics", topic, "--wait"); err != nil {
		return m, err
	}
	if _, err := r.dest.CLI(ctx, "--delete", "--mirror", mirror); err != nil {
		return m, err
	}
	return m, r.deleteAtDestination(ctx, topic)
}

func (r *rig) deleteAtDestination(ctx context.Context, name string) error {
	cl, err := r.dest.Cluster.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	resp, err := kadm.NewClient(cl).DeleteTopic(ctx, name)
	if err == nil {
		err = resp.Err
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return until(ctx, name+" to go away", func() (bool, error) {
		n, err := logBytes(r.dest.Cluster.Brokers()[0], name, r.cfg.partitions)
		return n == 0, err
	})
}

// mirrorMaker copies with MirrorMaker 2 as it is shipped: a dedicated process, one task for
// each partition, without the connectors that copy no records.
func (r *rig) mirrorMaker(ctx context.Context) (_ round, err error) {
	install, err := harness.InstallMirrorMaker(ctx, harness.MirrorMakerVersion)
	if err != nil {
		return round{}, err
	}
	holder, _ := r.brokers()
	node := r.dest.Cluster.Brokers()[0]
	dir, err := os.MkdirTemp("", "mirrormaker-")
	if err != nil {
		return round{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "mm2.properties")
	text := strings.Join([]string{
		"clusters=source,target",
		"source.bootstrap.servers=" + holder.Addr(harness.ListenerInternal),
		"target.bootstrap.servers=" + node.Addr(harness.ListenerInternal),
		"source->target.enabled=true",
		"source->target.topics=" + topic,
		"target->source.enabled=false",
		fmt.Sprintf("tasks.max=%d", r.cfg.partitions),
		"replication.factor=1",
		"offset-syncs.topic.replication.factor=1", "offset-syncs.topic.location=target",
		"checkpoints.topic.replication.factor=1", "heartbeats.topic.replication.factor=1",
		"config.storage.replication.factor=1", "offset.storage.replication.factor=1", "status.storage.replication.factor=1",
		"emit.heartbeats.enabled=false", "emit.checkpoints.enabled=false",
		"sync.group.offsets.enabled=false", "sync.topic.acls.enabled=false",
		"",
	}, "\n")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return round{}, err
	}
	process, err := install.StartTool(ctx, "mirrormaker", harness.ToolRun{
		Class: harness.MirrorMakerClass, Args: []string{file}, HeapMB: 2048,
	}, filepath.Join(dir, "mirrormaker.log"))
	if err != nil {
		return round{}, err
	}
	defer func() { err = errors.Join(err, process.Kill()) }()

	cl, err := r.dest.Cluster.Client()
	if err != nil {
		return round{}, err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	const copied = "source." + topic
	var asked time.Time
	m, err := watch{
		copier: process.PID(), source: holder.PID(), destination: node.PID(), bytes: r.bytes,
		// It makes batches of its own, so records are counted and not bytes. Asking the broker costs it
		// something: a few times a second is enough for a copy that takes a minute.
		progress: func() (float64, error) {
			n, err := logBytes(node, copied, r.cfg.partitions)
			if err != nil || n == 0 || time.Since(asked) < 200*time.Millisecond {
				return min(float64(n), 0.01), err
			}
			asked = time.Now()
			ends, err := admin.ListEndOffsets(ctx, copied)
			if err != nil {
				return 0, err
			}
			var records int64
			ends.Each(func(o kadm.ListedOffset) { records += max(0, o.Offset) })
			return max(0.01, float64(records)/float64(r.records)), nil
		},
		alive: func() error {
			if !process.Running() {
				return errors.New("MirrorMaker has ended")
			}
			return nil
		},
	}.run(ctx)
	if err != nil {
		return m, fmt.Errorf("%w; the end of its log:\n%s", err, process.LogTail())
	}
	if err := process.Kill(); err != nil {
		return m, err
	}
	// Its own topics too: a second round must begin from nothing.
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return m, err
	}
	for _, name := range topics.Names() {
		if strings.HasPrefix(name, "mm2-") {
			if err := r.deleteAtDestination(ctx, name); err != nil {
				return m, err
			}
		}
	}
	return m, r.deleteAtDestination(ctx, copied)
}

func until(ctx context.Context, what string, cond func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := cond(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

// sourceLeaders makes another replica of every partition its preferred one, and elects it.
func (b *blow) sourceLeaders(ctx context.Context) error {
	before, _, err := b.metadata(ctx, b.sourceAdmin)
	if err != nil {
		return err
	}
	req := kadm.AlterPartitionAssignmentsReq{}
	set := kadm.TopicsSet{}
	for p, d := range before {
		order := slices.Clone(d.Replicas)
		slices.Sort(order)
		for order[0] == d.Leader {
			order = append(order[1:], order[0])
		}
		req.Assign(p.topic, p.partition, order)
		set.Add(p.topic, p.partition)
	}
	if _, err := b.sourceAdmin.AlterPartitionAssignments(ctx, req); err != nil {
		return err
	}
	moved := 0
	// A replica that is not in sync, for another fault's sake, is not elected: some is enough.
	err = harness.Await(ctx, 20*time.Second, func(ctx context.Context) error {
		if _, err := b.sourceAdmin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set); err != nil {
			return err
		}
		after, _, err := b.metadata(ctx, b.sourceAdmin)
		if err != nil {
			return err
		}
		moved = 0
		for p, d := range after {
			if d.Leader != before[p].Leader {
				moved++
			}
		}
		if moved < len(before)/2 {
			return fmt.Errorf("%d of %d leaders moved", moved, len(before))
		}
		return nil
	})
	b.note("%d of %d leaders at the source moved", moved, len(before))
	if moved == 0 {
		return fmt.Errorf("%w: %w", errNotNow, err)
	}
	return nil
}

// retained is the topic whose beginning is deleted at the source again and again.
const retained = "chaos-idempotent"

// sourceRetention deletes the older half of what every reader of the mirror has seen.
func (b *blow) sourceRetention(ctx context.Context) error {
	before, err := b.sourceAdmin.ListStartOffsets(ctx, retained)
	if err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	at := map[int32]int64{}
	for p := range int32(partitions) {
		start, ok := before.Lookup(retained, p)
		if !ok || start.Err != nil {
			return fmt.Errorf("%w: no log start of %s-%d: %w", errNotNow, retained, p, start.Err)
		}
		seen := b.readers.least(tp{retained, p})
		to := start.Offset + (seen-start.Offset)/2
		if to <= start.Offset {
			continue
		}
		at[p] = to
		offsets.AddOffset(retained, p, to, -1)
	}
	if len(at) == 0 {
		return fmt.Errorf("%w: nothing was read of %s", errNotNow, retained)
	}
	return harness.Await(ctx, 30*time.Second, func(ctx context.Context) error {
		resp, err := b.sourceAdmin.DeleteRecords(ctx, offsets)
		if err != nil {
			return err
		}
		if err := resp.Error(); err != nil {
			return err
		}
		after, err := b.sourceAdmin.ListStartOffsets(ctx, retained)
		if err != nil {
			return err
		}
		for p, want := range at {
			was, _ := before.Lookup(retained, p)
			is, _ := after.Lookup(retained, p)
			if is.Err != nil || is.Offset < want {
				return fmt.Errorf("log start of %s-%d is %d, not %d: %w", retained, p, is.Offset, want, is.Err)
			}
			b.note("log start of %s-%d went from %d to %d", retained, p, was.Offset, is.Offset)
		}
		return nil
	})
}

// sourceCompacted closes the segments of a compacted topic, so that the cleaner takes records that
// were copied, and waits until it has.
func (b *blow) sourceCompacted(ctx context.Context) error {
	kind := workload.Compacted
	if b.plan.Pick[0]%2 == 1 {
		kind = workload.CompactedTransactional
	}
	topic := "chaos-" + kind.String()
	set := func(v string) error {
		_, err := b.sourceAdmin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.ms", Value: &v}}, topic)
		return err
	}
	parts, _, err := b.metadata(ctx, b.sourceAdmin)
	if err != nil {
		return err
	}
	leader := b.source.Node(parts[tp{topic, 0}].Leader)
	if leader == nil {
		return fmt.Errorf("%w: %s-0 has no leader at the source", errNotNow, topic)
	}
	before, err := b.readLog(leader, tp{topic, 0}, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotNow, err)
	}
	below := func(records int, log rawLog) error {
		n := 0
		for _, r := range log.Records {
			if r.Offset < before.End {
				n++
			}
		}
		if n >= records {
			return fmt.Errorf("%d of %d records are still there", n, records)
		}
		b.note("of %d records of %s-0 at %s the cleaner left %d", records, topic, leader, n)
		return nil
	}
	if err := set("500"); err != nil {
		return err
	}
	err = harness.Await(ctx, 40*time.Second, func(context.Context) error {
		after, err := b.readLog(leader, tp{topic, 0}, 0)
		if err != nil {
			return err
		}
		return below(len(before.Records), after)
	})
	if back := set("15000"); back != nil {
		return back
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotNow, err)
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/test/chaos/check"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

type rawLog = check.Log

// rawTries bounds how often a log is read anew because a segment went away meanwhile.
const rawTries = 5

// readLog decodes a partition's segment files on a node from an offset on.
func (w *world) readLog(n *harness.Node, p tp, from int64) (rawLog, error) {
	return readRaw(n, p, from, w.load.Number)
}

func readRaw(n *harness.Node, p tp, from int64, number check.Numberer) (rawLog, error) {
	var err error
	for range rawTries {
		var log rawLog
		if log, err = readRawOnce(n, p, from, number); err == nil {
			return log, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return rawLog{}, fmt.Errorf("read %s on %s: %w", p, n, err)
}

func readRawOnce(n *harness.Node, p tp, from int64, number check.Numberer) (rawLog, error) {
	dir, err := n.PartitionDir(p.topic, p.partition)
	if err != nil {
		return rawLog{}, err
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return rawLog{}, err
	}
	slices.Sort(names) // names are offsets of one width
	first := 0
	for i, name := range names {
		if base, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(name), ".log"), 10, 64); err == nil && base <= from {
			first = i
		}
	}
	d := check.Decoder{Topic: p.topic, Partition: p.partition, Number: number}
	for _, name := range names[min(first, len(names)):] {
		data, err := os.ReadFile(name)
		if err != nil {
			return rawLog{}, err
		}
		if err := d.Add(data, from); err != nil {
			return rawLog{}, err
		}
	}
	return d.Log(), nil
}

// kindOf gives the kind of a topic of the load.
func (w *world) kindOf(topic string) workload.Kind {
	for _, t := range w.load.Topics() {
		if t.Name == topic {
			return t.Kind
		}
	}
	return -1
}

// tails compares, for every partition that is not compacted, what has come since the last time:
// the log of every replica of the mirror with that of the source's leader. upTo is where that ended.
func (w *world) tails(ctx context.Context, upTo map[tp]int64) (check.Findings, error) {
	var f check.Findings
	leaders, _, err := w.metadata(ctx, w.sourceAdmin)
	if err != nil {
		return f, err
	}
	for _, p := range w.partitions() {
		leader := w.source.Node(leaders[p].Leader)
		if w.kindOf(p.topic).Compacted() || leader == nil {
			continue
		}
		start, err := w.logStart(ctx, p)
		if err != nil {
			return f, err
		}
		// Whatever the mirror has is below the source's high watermark.
		part := check.Range{From: max(upTo[p], start), To: math.MaxInt64}
		var mirrors []rawLog
		for _, n := range w.dest.Cluster.Brokers() {
			log, err := w.readLog(n, p, part.From)
			if err != nil {
				return f, err
			}
			mirrors = append(mirrors, log)
			part.To = min(part.To, log.End)
		}
		source, err := w.readLog(leader, p, part.From)
		if err != nil {
			return f, err
		}
		part.To = min(part.To, source.End)
		for i, m := range mirrors {
			f.Merge(check.Compare(fmt.Sprintf("%s at broker %d", p, w.dest.Cluster.Brokers()[i].ID()), source.Records, m.Records, part))
		}
		upTo[p] = max(upTo[p], part.To)
	}
	return f, nil
}

// compareAll compares every log of both sides from beginning to end, when all producers have
// stopped and the mirror has everything.
func (w *world) compareAll(ctx context.Context) (check.Findings, int64, error) {
	var f check.Findings
	var records int64
	for _, p := range w.partitions() {
		g, n, err := w.comparePartition(ctx, p)
		if err != nil {
			return f, records, err
		}
		f.Merge(g)
		records += n
	}
	return f, records, nil
}

func (w *world) comparePartition(ctx context.Context, p tp) (check.Findings, int64, error) {
	var f check.Findings
	compacted := w.kindOf(p.topic).Compacted()
	account, err := w.load.Account(p.topic, p.partition)
	if err != nil {
		return f, 0, err
	}
	start, err := w.logStart(ctx, p)
	if err != nil {
		return f, 0, err
	}
	all := check.Range{From: start, To: math.MaxInt64}
	var source rawLog
	for i, n := range w.source.Brokers() {
		log, err := w.readLog(n, p, 0)
		if err != nil {
			return f, 0, err
		}
		if i == 0 {
			source = log
			continue
		}
		// Not the mirror's fault, but then there is nothing to compare with.
		if d := check.Same(p.String(), source.Records, log.Records, all); !compacted && !d.Zero() {
			return f, 0, fmt.Errorf("the replicas at the source differ: %v", d.Examples)
		}
	}
	if !compacted {
		if err := w.acknowledged(p, source, account, start); err != nil {
			return f, 0, err
		}
	}
	var first rawLog
	for i, n := range w.dest.Cluster.Brokers() {
		log, err := w.readLog(n, p, 0)
		if err != nil {
			return f, 0, err
		}
		name := fmt.Sprintf("%s at broker %d", p, n.ID())
		if compacted {
			f.Merge(check.CompareCompacted(name, source.Records, log.Records, all, account.Next))
			continue
		}
		f.Merge(check.Compare(name, source.Records, log.Records, all))
		if i == 0 {
			first = log
		} else {
			f.Merge(check.Same(name, first.Records, log.Records, all))
		}
	}
	if !compacted {
		// And whatever records do not show: epochs, sequences, markers, the bytes themselves.
		d, err := w.dest.Cluster.SameLogs(p.topic, p.partition, harness.Compare{CommonStart: true})
		if err != nil {
			return f, 0, err
		}
		if d != nil {
			f.Add(&f.Diverged, "the replicas differ: %s", d)
		}
	}
	return f, int64(len(source.Records)), nil
}

// acknowledged fails if the source itself has lost a record, for then the faults were such that no
// mirror can be judged by them.
func (w *world) acknowledged(p tp, source rawLog, account workload.Account, start int64) error {
	var has workload.Numbers
	least := int64(math.MaxInt64)
	for _, r := range source.Records {
		if r.Offset >= start {
			has.Add(r.Number)
			least = min(least, r.Number)
		}
	}
	missing := account.Acked.Minus(has)
	missing = missing.Minus(missing.Below(least))
	if missing.Count() > 0 {
		return fmt.Errorf("the source has lost acknowledged records of %s: %s", p, missing)
	}
	return nil
}

func (w *world) logStart(ctx context.Context, p tp) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	starts, err := w.sourceAdmin.ListStartOffsets(ctx, p.topic)
	if err != nil {
		return 0, err
	}
	o, ok := starts.Lookup(p.topic, p.partition)
	if !ok || o.Err != nil {
		return 0, fmt.Errorf("log start of %s at the source: %w", p, o.Err)
	}
	return o.Offset, nil
}

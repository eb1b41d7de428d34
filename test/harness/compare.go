package harness

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"time"
)

// Compare says which part of two logs must be equal. Its zero value means all of it.
type Compare struct {
	// CommonStart leaves out what only one log still has at its beginning:
	// replicas delete old segments each in its own time.
	CommonStart bool
	// From leaves out batches that end below it.
	From int64
	// UpTo, if positive, leaves out batches that begin at or above it: a live
	// follower is behind its leader.
	UpTo int64
}

// Difference is the first place where two logs are not the same.
type Difference struct {
	Topic        string
	Partition    int32
	NodeA, NodeB int32
	Offset       int64 // base offset of the batch that differs
	What         string
}

func (d *Difference) String() string {
	return fmt.Sprintf("%s-%d, nodes %d and %d, offset %d: %s", d.Topic, d.Partition, d.NodeA, d.NodeB, d.Offset, d.What)
}

// Diff gives the first difference of two logs, nil if there is none. A batch
// that is not valid is a difference. Two logs of one tool are compared: the sum
// over all bytes counts only where both have it.
func (c Compare) Diff(a, b Log) *Difference {
	x, y := c.part(a, b), c.part(b, a)
	diff := func(offset int64, format string, args ...any) *Difference {
		return &Difference{
			Topic: a.Topic, Partition: a.Partition, NodeA: a.Node, NodeB: b.Node,
			Offset: offset, What: fmt.Sprintf(format, args...),
		}
	}
	for i := range min(len(x), len(y)) {
		p, q := x[i], y[i]
		if what := p.diff(q); what != "" {
			return diff(min(p.BaseOffset, q.BaseOffset), "%s", what)
		}
		if !p.Valid {
			return diff(p.BaseOffset, "the batch's CRC is wrong in both logs")
		}
	}
	switch {
	case len(x) > len(y):
		return diff(x[len(y)].BaseOffset, "only node %d has it (%d batches, the other %d)", a.Node, len(x), len(y))
	case len(y) > len(x):
		return diff(y[len(x)].BaseOffset, "only node %d has it (%d batches, the other %d)", b.Node, len(y), len(x))
	}
	return nil
}

// part gives the batches of l that count when it is compared with other.
func (c Compare) part(l, other Log) []Batch {
	from, to := c.From, c.UpTo
	if to <= 0 {
		to = math.MaxInt64
	}
	if c.CommonStart && len(l.Batches) > 0 && len(other.Batches) > 0 {
		from = max(from, l.Batches[0].BaseOffset, other.Batches[0].BaseOffset)
	}
	var out []Batch
	for _, b := range l.Batches {
		if b.LastOffset >= from && b.BaseOffset < to {
			out = append(out, b)
		}
	}
	return out
}

// diff names the first field that differs.
func (b Batch) diff(o Batch) string {
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"base offset", b.BaseOffset, o.BaseOffset},
		{"last offset", b.LastOffset, o.LastOffset},
		{"leader epoch", b.LeaderEpoch, o.LeaderEpoch},
		{"record count", b.Count, o.Count},
		{"producer id", b.ProducerID, o.ProducerID},
		{"producer epoch", b.ProducerEpoch, o.ProducerEpoch},
		{"base sequence", b.BaseSequence, o.BaseSequence},
		{"last sequence", b.LastSequence, o.LastSequence},
		{"transactional", b.Transactional, o.Transactional},
		{"control", b.Control, o.Control},
		{"delete horizon", b.DeleteHorizon, o.DeleteHorizon},
		{"log append time", b.LogAppendTime, o.LogAppendTime},
		{"max timestamp", b.MaxTimestamp, o.MaxTimestamp},
		{"magic", b.Magic, o.Magic},
		{"codec", b.Codec, o.Codec},
		{"size", b.Size, o.Size},
		{"crc", b.CRC, o.CRC},
		{"validity", b.Valid, o.Valid},
	} {
		if f.a != f.b {
			return fmt.Sprintf("%s is %v and %v", f.name, f.a, f.b)
		}
	}
	none := [sha256.Size]byte{}
	if b.Sum != none && o.Sum != none && b.Sum != o.Sum {
		return "the bytes differ"
	}
	return ""
}

// SameLogs reads a partition's log on every broker that has one and compares
// them, batch for batch and byte for byte. It gives the first difference, nil if
// all are the same. One log alone is an error, for then nothing was compared.
func (c *Cluster) SameLogs(topic string, partition int32, how Compare) (*Difference, error) {
	var first *Log
	compared := 0
	for _, n := range c.Brokers() {
		if _, err := n.PartitionDir(topic, partition); err != nil {
			continue
		}
		l, err := n.ReadLog(topic, partition)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = &l
			continue
		}
		compared++
		if d := how.Diff(*first, l); d != nil {
			return d, nil
		}
	}
	if compared == 0 {
		return nil, fmt.Errorf("cluster %s has fewer than two logs of %s-%d to compare", c.cfg.Name, topic, partition)
	}
	return nil, nil
}

// samePoll is how often WaitSameLogs reads the logs.
const samePoll = 100 * time.Millisecond

// WaitSameLogs waits until SameLogs finds no difference: a follower appends a
// moment after its leader. When ctx ends first, the error has the last difference.
func (c *Cluster) WaitSameLogs(ctx context.Context, topic string, partition int32, how Compare) error {
	tick := time.NewTicker(samePoll)
	defer tick.Stop()
	for {
		d, err := c.SameLogs(topic, partition, how)
		if err != nil {
			return err
		}
		if d == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the replicas' logs stay different: %s: %w", d, ctx.Err())
		}
	}
}

package coordinator

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/protocol/wire"
	"github.com/cluster-mirroring/mirror-sidecar/syncs"
)

// This file keeps what a mirror has created in this cluster that is not topics, so that it deletes
// nothing else: ACLs, groups and quotas by name. They are spread over records by their hash, so
// that a change writes a small one whatever the number.

const (
	// ownedBuckets is the number of records for one kind of one mirror. It is part of the layout.
	ownedBuckets = 256
	// maxOwnedRecord bounds one of them, well below what a broker takes by default (1 MiB).
	maxOwnedRecord = 256 << 10
	// ownedPerPut bounds one transaction: at most 16 MiB.
	ownedPerPut = 64
)

// ownedKey is the key of record type 7.
type ownedKey struct {
	mirror string
	kind   policy.Kind
	bucket int32
}

// owned is the value of record type 7. Its map is never changed: a record replaces it.
type owned struct {
	items map[string]ownedItem
	tags  []wire.Tag // a newer sidecar's fields, kept as they came
}

type ownedItem struct {
	since int64 // milliseconds since 1970
	tags  []wire.Tag
}

func bucketOf(item string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(item))
	return int32(h.Sum32() % ownedBuckets)
}

func encodeOwned(o owned) *protocol.OwnedValue {
	out := protocol.NewOwnedValue()
	out.UnknownTags = o.tags
	for _, name := range slices.Sorted(maps.Keys(o.items)) {
		i := protocol.NewOwnedItem()
		i.Item, i.SinceMs, i.UnknownTags = name, o.items[name].since, o.items[name].tags
		out.Items = append(out.Items, i)
	}
	return &out
}

func decodeOwned(v *protocol.OwnedValue) owned {
	out := owned{items: make(map[string]ownedItem, len(v.Items)), tags: v.UnknownTags}
	for _, i := range v.Items {
		out.items[i.Item] = ownedItem{since: i.SinceMs, tags: i.UnknownTags}
	}
	return out
}

// Owned returns what a mirror has created here of a kind, and since when, in milliseconds since
// 1970.
func (v *View) Owned(mirror string, kind policy.Kind) map[string]int64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := map[string]int64{}
	for bucket := range int32(ownedBuckets) {
		for name, i := range v.owned[ownedKey{mirror, kind, bucket}].items {
			out[name] = i.since
		}
	}
	return out
}

// OwnedElsewhere returns what mirrors other than the given one have created here of a kind, and the
// last of them in the order of their names.
func (v *View) OwnedElsewhere(mirror string, kind policy.Kind) map[string]string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := map[string]string{}
	for k, o := range v.owned {
		if _, there := v.mirrors[k.mirror]; !there || k.mirror == mirror || k.kind != kind {
			continue
		}
		for name := range o.items {
			out[name] = max(out[name], k.mirror)
		}
	}
	return out
}

// OwnedFirst returns the first of the others in the order of their names that has not ended.
func (v *View) OwnedFirst(mirror string, kind policy.Kind) map[string]string {
	active := map[string]bool{}
	for _, m := range v.Mirrors() {
		if m.Name != mirror && !hasEnded(v.Topics(m.Name)) {
			active[m.Name] = true
		}
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := map[string]string{}
	for k, o := range v.owned {
		if k.kind != kind || !active[k.mirror] {
			continue
		}
		for name := range o.items {
			if was, ok := out[name]; !ok || k.mirror < was {
				out[name] = k.mirror
			}
		}
	}
	return out
}

// ownedKeys returns the keys of everything that a mirror has created.
func (v *View) ownedKeys(mirror string) []ownedKey {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var out []ownedKey
	for k := range v.owned {
		if k.mirror == mirror {
			out = append(out, k)
		}
	}
	return out
}

// ownedChange returns the records that change when items are added and removed, in the order of
// their buckets. now is the time of what is new; what was known before keeps its own.
func (v *View) ownedChange(mirror string, kind policy.Kind, add, remove []string, now int64) []record {
	v.mu.RLock()
	defer v.mu.RUnlock()
	changed := map[int32]owned{}
	edit := func(item string) map[string]ownedItem {
		b := bucketOf(item)
		o, ok := changed[b]
		if !ok {
			o = v.owned[ownedKey{mirror, kind, b}]
			o.items = maps.Clone(o.items)
			if o.items == nil {
				o.items = map[string]ownedItem{}
			}
		}
		changed[b] = o
		return o.items
	}
	for _, item := range add {
		if _, known := v.owned[ownedKey{mirror, kind, bucketOf(item)}].items[item]; !known {
			edit(item)[item] = ownedItem{since: now}
		}
	}
	for _, item := range remove {
		if _, known := v.owned[ownedKey{mirror, kind, bucketOf(item)}].items[item]; known {
			delete(edit(item), item)
		}
	}
	out := make([]record, 0, len(changed))
	for _, b := range slices.Sorted(maps.Keys(changed)) {
		r := record{kind: kindOwned, owned: ownedKey{mirror, kind, b}}
		if o := changed[b]; len(o.items) > 0 || len(o.tags) > 0 {
			r.value = o
		}
		out = append(out, r)
	}
	return out
}

// Own implements syncs.Mirrors.
func (c *Coordinator) Own(ctx context.Context, mirror string, kind policy.Kind, add, remove []string) error {
	err := c.act(ctx, mirror, func() error {
		if _, err := c.mirror(mirror); err != nil {
			return err
		}
		// A record that is not understood would be written over.
		if err := c.store.misread.err(); err != nil {
			return err
		}
		records := c.view.ownedChange(mirror, kind, add, remove, time.Now().UnixMilli())
		for _, r := range records {
			_, value, err := encodeRecord(r)
			if err != nil {
				return err
			}
			if len(value) > maxOwnedRecord {
				return refuse(kerr.RecordListTooLarge.Code, "record %d of %d would have %d bytes, at most %d: these are too many %s, or too long ones", r.owned.bucket, ownedBuckets, len(value), maxOwnedRecord, kind)
			}
		}
		for chunk := range slices.Chunk(records, ownedPerPut) {
			if err := c.store.PutAs(ctx, mirror, chunk...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("mirror %s: write down which %s it creates and gives up: %w", mirror, kind, err)
	}
	return nil
}

// Owned implements syncs.Mirrors.
func (c *Coordinator) Owned(mirror string, kind policy.Kind) map[string]int64 {
	return c.view.Owned(mirror, kind)
}

// OwnedElsewhere implements syncs.Mirrors.
func (c *Coordinator) OwnedElsewhere(mirror string, kind policy.Kind) map[string]string {
	return c.view.OwnedElsewhere(mirror, kind)
}

// OwnedFirst implements syncs.Mirrors.
func (c *Coordinator) OwnedFirst(mirror string, kind policy.Kind) map[string]string {
	return c.view.OwnedFirst(mirror, kind)
}

// Ready implements syncs.Mirrors.
func (c *Coordinator) Ready() <-chan struct{} { return c.store.Ready() }

// Coordinated implements syncs.Mirrors.
func (c *Coordinator) Coordinated() map[string]config.Properties {
	out := map[string]config.Properties{}
	for _, m := range c.view.Mirrors() {
		if who, err := c.Of(m.Name); err == nil && who == c.cfg.Self {
			out[m.Name] = m.Configs
		}
	}
	return out
}

// Mirror implements syncs.Mirrors.
func (c *Coordinator) Mirror(ctx context.Context, name string) (syncs.Mirror, error) {
	if err := c.act(ctx, name, func() error { return nil }); err != nil {
		return syncs.Mirror{}, fmt.Errorf("mirror %s: %w", name, err)
	}
	m, err := c.mirror(name)
	if err != nil {
		return syncs.Mirror{}, err
	}
	cfg, err := m.stored()
	if err != nil {
		return syncs.Mirror{}, fmt.Errorf("mirror %s: configuration: %w", name, err)
	}
	out := syncs.Mirror{Name: name, SourceClusterID: m.SourceClusterID, Properties: m.Configs, Config: cfg}
	topics := c.view.Topics(name)
	out.Ended = hasEnded(topics)
	for _, t := range topics {
		if t.Desired == Stopped {
			out.Stopped = append(out.Stopped, t.Name)
		}
		if !c.running(t) || t.TopicID.IsZero() {
			continue
		}
		list := &out.Topics
		if t.Desired != Mirroring || t.Fault != "" {
			list = &out.Held
		}
		*list = append(*list, syncs.Topic{Name: t.Name, ID: t.TopicID, Truncating: c.truncating(t)})
	}
	return out, nil
}

// hasEnded tells whether a mirror had topics, and all of them are stopped.
func hasEnded(topics []Topic) bool {
	return len(topics) > 0 && !slices.ContainsFunc(topics, func(t Topic) bool { return t.Desired != Stopped })
}

// truncating returns the partitions of a topic that have not begun to mirror.
func (c *Coordinator) truncating(t Topic) (out []int32) {
	begun := func(s State) bool { return s != Unknown && s != LogTruncation && s != Stopped }
	for _, p := range c.img.TopicPartitions(t.TopicID) {
		s, _ := c.view.State(t.Mirror, ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition})
		if !begun(s.State) || s.State == Failed && !begun(s.Previous) {
			out = append(out, p.Partition)
		}
	}
	return out
}

// running tells whether a mirror's topic is looked after at all: it was not stopped, no other
// mirror has it, and its start was not refused. It may be paused.
func (c *Coordinator) running(t Topic) bool {
	_, elsewhere := c.elsewhere(t)
	return t.Desired != Stopped && !t.lost() && !elsewhere && !c.ordinary(t)
}

// Changed implements syncs.Mirrors.
func (c *Coordinator) Changed(fn func()) (cancel func()) {
	return c.view.Subscribe(func(ch Change) {
		if ch.Reset || len(ch.Mirrors) > 0 {
			fn()
		}
	})
}

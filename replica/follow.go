package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// The following side: a virtual broker that is assigned to a mirror partition but does
// not lead it fetches from the leader, to be in the ISR and ready to lead. It has no log
// and takes no records.
//
// Behind a real leader it claims max(high watermark, start of the leader's epoch) as its
// log end: enough to be let in, and never enough to make a record visible that only the
// leader has (facts §4). Before it may join it reads that leader's epochs and persists
// them, since its followers' logs may end with them (R11).

// pollWait is the long poll of the following side, well below the leader's patience
// (replica.lag.time.max.ms).
const pollWait = 500 * time.Millisecond

// pokeFollower makes the following side look again.
func (m *Manager) pokeFollower() {
	select {
	case m.followed <- struct{}{}:
	default:
	}
}

// follow owns one goroutine for each leader that partitions are followed from.
func (m *Manager) follow() {
	defer m.wg.Done()
	var wg sync.WaitGroup
	defer wg.Wait()
	active := map[int32]chan struct{}{} // closed when that leader's goroutine has ended
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-m.followed:
		}
		for leader, done := range active {
			select {
			case <-done:
				delete(active, leader)
			default:
			}
		}
		for _, p := range m.all() {
			leader, ok := m.follows(p)
			if !ok || active[leader] != nil {
				continue
			}
			done := make(chan struct{})
			active[leader] = done
			wg.Add(1)
			go func() {
				defer wg.Done()
				defer close(done)
				m.followLeader(leader)
			}()
		}
	}
}

// follows returns the broker that the partition is to be followed from.
func (m *Manager) follows(p *partition) (leader int32, ok bool) {
	img := m.image.Partition(p.tp)
	if img == nil || !m.registered() || img.Leader < 0 || img.Leader == m.cfg.ID || !slices.Contains(img.Replicas, m.cfg.ID) {
		return 0, false
	}
	// In the ISR means ready to lead: only for a topic whose mirror is known and runs.
	mt, known := m.state.MirrorTopic(p.tp.TopicID)
	return img.Leader, known && !mt.Stopping
}

// follower is what the following side keeps of one partition behind one leader epoch.
type follower struct {
	epoch     int32
	prepared  bool
	start     int64 // of the leader's epoch, for a real leader
	claim     int64
	lastError string
	behind    bool      // the leader had records of clients behind what was mirrored then
	since     time.Time // since when joining would show them and nothing but this wait speaks against it; zero: it would not
	told      bool      // that they are shown all the same
}

// followLeader fetches from one leader until there is nothing more to follow there.
func (m *Manager) followLeader(leader int32) {
	known := map[ids.TopicPartition]*follower{}
	for m.ctx.Err() == nil {
		var mine []*partition
		for _, p := range m.all() {
			if l, ok := m.follows(p); ok && l == leader {
				mine = append(mine, p)
			}
		}
		if len(mine) == 0 {
			return
		}
		if err := m.followOnce(leader, mine, known); err != nil {
			if m.ctx.Err() == nil {
				m.log.Debug("following", "leader", leader, "error", err)
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-m.ctx.Done():
			}
		}
	}
}

func (m *Manager) followOnce(leader int32, mine []*partition, known map[ids.TopicPartition]*follower) error {
	ctx, cancel := context.WithTimeout(m.ctx, pollWait+5*time.Second)
	defer cancel()
	req := newFetch(m.cfg.ID, m.broker.Epoch(), pollWait, 1)
	asked := 0
	for _, p := range mine {
		img := m.image.Partition(p.tp)
		if img == nil || img.Leader != leader {
			continue
		}
		f := known[p.tp]
		if f == nil || f.epoch != img.LeaderEpoch {
			f = &follower{epoch: img.LeaderEpoch}
			known[p.tp] = f
		}
		if !f.prepared {
			if err := m.prepare(ctx, p, img, f); err != nil {
				m.complainOnce(p, f, "getting ready to follow", err)
				continue
			}
			f.prepared = true
		}
		if m.waitsForRaise(p, img, f) {
			continue
		}
		addPartition(req, p.tp, p.topic, fetchArgs{replica: m.cfg.ID, leaderEpoch: img.LeaderEpoch, offset: f.claim, lastEpoch: -1, maxBytes: 1})
		asked++
	}
	if asked == 0 {
		return errors.New("no partition is ready to be followed")
	}
	kresp, err := m.polls.Request(ctx, leader, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 {
		return fmt.Errorf("fetch from broker %d: error %d", leader, resp.ErrorCode)
	}
	failed := 0
	for _, t := range resp.Topics {
		for _, rp := range t.Partitions {
			tp := ids.TopicPartition{TopicID: t.TopicID, Partition: rp.Partition}
			f := known[tp]
			if f == nil {
				continue
			}
			if rp.ErrorCode != 0 {
				failed++
				f.prepared = false
				if p := m.partition(tp); p != nil {
					m.complainOnce(p, f, "following", fmt.Errorf("broker %d answers error %d", leader, rp.ErrorCode))
				}
				continue
			}
			if !m.cfg.Virtual.Is(leader) {
				f.claim = max(f.start, rp.HighWatermark, f.claim)
			}
		}
	}
	if failed == asked {
		return fmt.Errorf("broker %d refused every partition", leader)
	}
	return nil
}

// complainOnce logs an error when it is not the one logged last.
func (m *Manager) complainOnce(p *partition, f *follower, what string, err error) {
	if s := what + err.Error(); s != f.lastError && m.ctx.Err() == nil {
		f.lastError = s
		p.log.Info("not following yet", "while", what, "epoch", f.epoch, "error", err)
	}
}

// prepare does what must be done before the leader may let us into the ISR.
func (m *Manager) prepare(ctx context.Context, p *partition, img *metadata.Partition, f *follower) error {
	mt, ok := m.state.MirrorTopic(p.tp.TopicID)
	if !ok {
		return errors.New("the topic is in no mirror (yet)")
	}
	if _, err := m.sources.Source(mt.Mirror); err != nil {
		return fmt.Errorf("the mirror's source is not known: %w", err)
	}
	if m.cfg.Virtual.Is(img.Leader) {
		f.claim = 0
		return nil
	}
	rec, consent, err := m.state.ReadLineage(ctx, mt.Mirror, p.tp, img.LeaderEpoch)
	if err != nil {
		return err
	}
	chain, start, behind, err := m.readChain(ctx, img, rec, func() (lineage.Link, bool, error) { return m.state.Link(ctx, mt.Mirror, p.tp) })
	if err != nil {
		return err
	}
	// Before it is mirrored the topic is its clients': what they wrote was written where it belongs, and
	// is visible. A failback begins like that.
	behind = behind && (consent.Runs || consent.AsItIs)
	if old, ok := rec.Chains[img.LeaderEpoch]; !ok || !slices.Equal(old, chain) || behind && !rec.Written[img.LeaderEpoch] {
		next := rec.With(img.LeaderEpoch, chain)
		if behind {
			next = next.WithWritten(img.LeaderEpoch)
		}
		if err := m.state.WriteLineage(ctx, mt.Mirror, p.tp, img.LeaderEpoch, next); err != nil {
			return fmt.Errorf("persisting the lineage of leader %d: %w", img.Leader, err)
		}
	}
	hw, err := m.listOffsetAs(ctx, img.Leader, p.tp, p.topic, -1, -1)
	switch {
	case errors.Is(err, kerr.OffsetNotAvailable):
		// The high watermark is below the start of the leader's epoch. It may wait for us:
		// alone, the leader has fewer in sync than min.insync.replicas, and moves nothing.
		hw = start
	case err != nil:
		return err
	}
	f.start, f.claim, f.behind = start, max(hw, start), behind
	return nil
}

// readChain reads a real leader's epochs (R11), with the source epochs that are on record
// for them or that the other end knows. start is where the leader's own epoch begins, behind
// whether it has records of clients behind what was mirrored.
func (m *Manager) readChain(ctx context.Context, img *metadata.Partition, rec lineage.Record, link func() (lineage.Link, bool, error)) (c lineage.Chain, start int64, behind bool, err error) {
	tp := ids.TopicPartition{TopicID: img.TopicID, Partition: img.Partition}
	logStart, err := m.listOffset(ctx, img.Leader, tp, img.Topic, -2)
	if err != nil {
		return nil, 0, false, err
	}
	first, visible, err := m.firstBatch(ctx, img, tp, logStart)
	if err != nil {
		return nil, 0, false, err
	}
	w := walk{leaderEpoch: img.LeaderEpoch, logStart: logStart, record: rec, link: link, ask: func(epoch int32) (int32, int64, error) {
		return m.endOffsetAt(ctx, img, epoch)
	}}
	if visible {
		w.first = &first
	}
	return w.chain()
}

// firstBatch returns the epoch and base offset of the first batch that the leader shows.
func (m *Manager) firstBatch(ctx context.Context, img *metadata.Partition, tp ids.TopicPartition, logStart int64) (lineage.Entry, bool, error) {
	got, err := m.fetchOne(ctx, m.calls, img.Leader, tp, img.Topic, fetchArgs{replica: -1, epoch: -1, leaderEpoch: -1, offset: logStart, lastEpoch: -1, maxBytes: 1})
	if err != nil {
		return lineage.Entry{}, false, err
	}
	b, _, err := batch.Next(got.RecordBatches)
	if err != nil {
		return lineage.Entry{}, false, fmt.Errorf("first batch of %s-%d at broker %d: %w", img.Topic, img.Partition, img.Leader, err)
	}
	if len(b) == 0 {
		return lineage.Entry{}, false, nil // nothing is visible
	}
	return lineage.Entry{Epoch: b.LeaderEpoch(), Start: b.BaseOffset()}, true, nil
}

// endOffsetAt asks a real leader for the end of an epoch, as a debugging consumer.
func (m *Manager) endOffsetAt(ctx context.Context, img *metadata.Partition, epoch int32) (int32, int64, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -2
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = img.Topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = img.Partition, img.LeaderEpoch, epoch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := m.calls.Request(ctx, img.Leader, req)
	if err != nil {
		return 0, 0, err
	}
	topics := resp.(*kmsg.OffsetForLeaderEpochResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return 0, 0, fmt.Errorf("epochs of %s-%d at broker %d: not in the answer", img.Topic, img.Partition, img.Leader)
	}
	a := topics[0].Partitions[0]
	if a.ErrorCode != 0 {
		return 0, 0, fmt.Errorf("epochs of %s-%d at broker %d: error %d", img.Topic, img.Partition, img.Leader, a.ErrorCode)
	}
	return a.LeaderEpoch, a.EndOffset, nil
}

// raiseWait is how long a virtual replica waits for the coordinator to raise min.insync.replicas:
// one may have to be elected first. refusedWait is how long if a policy has refused it before:
// it may be another one by now, and is asked anew when sidecars start.
const (
	raiseWait   = time.Minute
	refusedWait = 10 * time.Second
)

// waitsForRaise tells whether this virtual replica stays away from a real leader that has records
// of clients behind what was mirrored, until a higher min.insync.replicas hides them (R21).
func (m *Manager) waitsForRaise(p *partition, img *metadata.Partition, f *follower) bool {
	shows := f.behind && leading.Shows(img.ISR, img.Replicas, m.cfg.ID, m.minISR(p.topic), m.liveVirtual)
	if shows && leading.Inevitable(img.ISR, img.Replicas, m.cfg.ID, m.liveVirtual) {
		return false // waiting hides nothing
	}
	mt, _ := m.state.MirrorTopic(p.tp.TopicID)
	waits, why := f.raise(m.now(), shows, mt.RaiseRefused, raiseBlocked(m.cfg.Virtual, m.image.TopicPartitions(p.tp.TopicID)))
	switch {
	case waits:
		m.complainOnce(p, f, "waiting for a higher min.insync.replicas", errors.New(why))
	case why != "" && !f.told:
		f.told = true
		p.log.Warn("joining a leader makes visible what clients wrote around the mirror, until it is removed", "epoch", f.epoch, "leader", img.Leader, "reason", why)
	}
	return waits
}

// raise decides for waitsForRaise, and says why. The wait has no end while another partition keeps
// min.insync.replicas from being changed: describe names the broker to bring back for that one, or
// to give up, and nobody has refused anything.
func (f *follower) raise(now time.Time, shows, refused, blocked bool) (waits bool, why string) {
	if !shows {
		f.since, f.told = time.Time{}, false
		return false, ""
	}
	if f.since.IsZero() || blocked && !f.told {
		f.since = now
	}
	switch waited := now.Sub(f.since); {
	case refused && waited >= refusedWait:
		return false, "a policy of this cluster refuses to raise min.insync.replicas"
	case waited >= raiseWait:
		return false, fmt.Sprintf("min.insync.replicas was not raised within %v", raiseWait)
	case blocked:
		return true, "joining would make visible what clients wrote around the mirror, and no other minimum can be set while a partition of the topic has no real replica in sync"
	}
	return true, "joining would make visible what clients wrote around the mirror"
}

// raiseBlocked tells whether min.insync.replicas of a mirror topic must stay as it is: with a
// change the controller forgets who is eligible to lead a partition without a real member in the
// ISR (KIP-966).
func raiseBlocked(v ids.Virtual, parts []*metadata.Partition) bool {
	return slices.ContainsFunc(parts, func(p *metadata.Partition) bool {
		return slices.ContainsFunc(p.Replicas, v.Is) && len(v.Real(p.ISR)) == 0
	})
}

// liveVirtual tells whether a broker is a virtual one that may join an ISR.
func (m *Manager) liveVirtual(id int32) bool {
	b, ok := m.image.Broker(id)
	return ok && m.cfg.Virtual.Is(id) && !b.Fenced && !b.ShuttingDown
}

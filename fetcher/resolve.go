package fetcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

const (
	// metadataTimeout bounds one question for metadata or offsets, so that a source
	// that answers nothing is tried again through another broker.
	metadataTimeout = 10 * time.Second
	// goneAfter is how many metadata answers in a row must lack a topic before it
	// counts as deleted: a broker that just started may not know it yet.
	goneAfter = 3
	// staleAfter is how many metadata answers in a row may be older than what is known
	// before they are believed: a source restored from a backup has lower epochs.
	staleAfter = 10
)

// resolve finds the leader of every part without an owner, until the Fetcher ends.
func (f *Fetcher) resolve() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-f.kick:
		case <-timer.C:
		}
		for {
			due, next := f.due()
			if len(due) == 0 {
				timer.Reset(next)
				break
			}
			f.resolveParts(due)
			if f.ctx.Err() != nil {
				return
			}
		}
	}
}

// due returns the parts whose leader is to be found now, and otherwise how long until
// there are some.
func (f *Fetcher) due() (due []*part, next time.Duration) {
	now := time.Now()
	next = time.Hour
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.parts {
		if p.done || p.owner.Load() != nil {
			continue
		}
		if wait := p.retryAt.Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		due = append(due, p)
	}
	return due, next
}

func (f *Fetcher) resolveParts(parts []*part) {
	topics := map[string]bool{}
	var ask []*part
	for _, p := range parts {
		if l, ok := f.hint(p); ok {
			f.assign(p, l)
			continue
		}
		topics[p.topic] = true
		ask = append(ask, p)
	}
	if len(ask) == 0 {
		return
	}
	names := make([]string, 0, len(topics))
	for t := range topics {
		names = append(names, t)
	}
	found, err := f.metadata(f.ctx, names)
	if f.ctx.Err() != nil {
		return
	}
	if err != nil {
		f.log.Warn("the source does not answer for its metadata, trying again", "partitions", len(ask), "error", err)
	}
	for _, p := range ask {
		if err != nil {
			f.wait(p, err, slog.LevelDebug)
			continue
		}
		f.resolved(p, found[p.topic])
	}
}

// hint returns the leader of a part that is known without asking: from the answer that
// sent the part here, or from earlier metadata about the very topic.
func (f *Fetcher) hint(p *part) (leader, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, known := f.leaders[p.partKey]
	if p.replica >= 0 { // the leader told us where to read
		l, known = leader{topicID: p.topicID, id: p.leader, epoch: p.leaderEpoch}, true
	}
	_, reachable := f.brokers[l.id]
	news := p.replica >= 0 || l.epoch > p.leaderEpoch
	return l, known && reachable && news && l.topicID == p.topicID
}

// later gives a part another turn after a pause.
func (f *Fetcher) later(p *part, err error) { f.wait(p, err, slog.LevelWarn) }

func (f *Fetcher) wait(p *part, err error, level slog.Level) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail(p, err, level)
	p.retryAt = time.Now().Add(f.cfg.Backoff)
}

// resolved takes what metadata says of a part's topic.
func (f *Fetcher) resolved(p *part, t *kmsg.MetadataResponseTopic) {
	code := kerr.UnknownTopicOrPartition.Code
	var mp *kmsg.MetadataResponseTopicPartition
	if t != nil {
		code = t.ErrorCode
		for i := range t.Partitions {
			if t.Partitions[i].Partition == p.partition {
				mp = &t.Partitions[i]
			}
		}
		if code == 0 && mp == nil {
			code = kerr.UnknownTopicOrPartition.Code
		}
	}
	serr := &SourceError{Topic: p.topic, Partition: p.partition, Code: code, LogStart: -1, LogEnd: -1}
	if code == kerr.UnknownTopicOrPartition.Code {
		if p.missing++; p.missing < goneAfter {
			f.later(p, serr)
			return
		}
		f.finish(p, serr)
		return
	}
	p.missing = 0
	if code != 0 {
		if transient(code) {
			f.later(p, serr)
		} else {
			f.finish(p, serr)
		}
		return
	}
	id := ids.UUID(t.TopicID)
	if !p.topicID.IsZero() && !id.IsZero() && id != p.topicID {
		serr.Code = kerr.InconsistentTopicID.Code
		f.finish(p, serr)
		return
	}
	if mp.ErrorCode != 0 && mp.ErrorCode != kerr.LeaderNotAvailable.Code && !transient(mp.ErrorCode) {
		// Codes such as REPLICA_NOT_AVAILABLE do not keep the leader from answering.
		f.log.Debug("metadata has an error for a partition", "topic", p.topic, "partition", p.partition, "error", codeName(mp.ErrorCode))
	}
	if mp.Leader < 0 {
		f.later(p, errNoLeader)
		return
	}
	if mp.LeaderEpoch >= 0 && mp.LeaderEpoch < p.leaderEpoch {
		if p.stale++; p.stale < staleAfter {
			f.later(p, fmt.Errorf("%w: leader epoch %d after %d", errStale, mp.LeaderEpoch, p.leaderEpoch))
			return
		}
	}
	p.stale = 0
	f.assign(p, leader{topicID: id, id: mp.Leader, epoch: mp.LeaderEpoch})
}

// assign gives a part to the worker of its leader, or of the replica that the leader
// named. A leader that just failed the part is given a pause. Only the resolver calls
// it, so that no worker is started once Stop has seen the resolver end.
func (f *Fetcher) assign(p *part, l leader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.removed.Load() || f.stopped {
		return
	}
	same := p.leader == l.id && p.leaderEpoch == l.epoch
	p.leader, p.leaderEpoch = l.id, l.epoch
	if !l.topicID.IsZero() {
		p.topicID = l.topicID
	}
	p.retryAt = time.Time{}
	if p.attempts > 0 && same {
		p.retryAt = time.Now().Add(f.cfg.Backoff)
	}
	addr, ok := f.brokers[p.target()]
	if !ok {
		f.fail(p, fmt.Errorf("broker %d is not among the source's brokers", p.target()), slog.LevelWarn)
		p.replica = -1
		p.retryAt = time.Now().Add(f.cfg.Backoff)
		return
	}
	key := workerKey{addr: addr, n: f.fetcherOf(p.partKey)}
	w := f.workers[key]
	if w == nil {
		w = newWorker(f, key)
		f.workers[key] = w
		f.wg.Go(w.run)
	}
	w.incoming = append(w.incoming, p)
	p.owner.Store(w)
	signal(w.wake)
}

// metadata asks for topics by name, nil for all. Topics that the source does not know
// are in the answer with their error. What it says of brokers and leaders is kept.
func (f *Fetcher) metadata(ctx context.Context, names []string) (map[string]*kmsg.MetadataResponseTopic, error) {
	if f.ctlErr != nil {
		return nil, f.ctlErr
	}
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	if names != nil {
		req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(names))
	}
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(n)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, f.ctl)
	if err != nil {
		return nil, fmt.Errorf("mirror %s: ask the source for metadata: %w", f.cfg.Mirror, err)
	}
	out := make(map[string]*kmsg.MetadataResponseTopic, len(resp.Topics))
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.brokers)
	for _, b := range resp.Brokers {
		f.brokers[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil {
			continue
		}
		out[*t.Topic] = t
		if t.ErrorCode != 0 {
			continue
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			k := partKey{*t.Topic, p.Partition}
			// A leader epoch that was seen in an answer of a leader is not forgotten for
			// metadata that is behind it.
			if old, ok := f.leaders[k]; p.Leader < 0 || (ok && old.topicID == ids.UUID(t.TopicID) && old.epoch > p.LeaderEpoch) {
				continue
			}
			f.leaders[k] = leader{topicID: ids.UUID(t.TopicID), id: p.Leader, epoch: p.LeaderEpoch}
		}
	}
	return out, nil
}

// learn keeps what an answer says about the leader of a partition, if that is news.
// It tells whether it was.
func (f *Fetcher) learn(p *part, l leader, brokers []kmsg.FetchResponseBroker) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range brokers {
		f.brokers[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	if l.id < 0 || l.epoch <= p.leaderEpoch {
		return false
	}
	l.topicID = p.topicID
	f.leaders[p.partKey] = l
	return true
}

// listOffset asks the leader for the offset that timestamp stands for: -1 the end as
// consumers see it, -2 the start.
func (f *Fetcher) listOffset(ctx context.Context, k partKey, l leader, timestamp int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	req := kmsg.NewPtrListOffsetsRequest()
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = k.topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.Timestamp = k.partition, l.epoch, timestamp
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	raw, err := f.ctl.Broker(int(l.id)).Request(ctx, req)
	if err != nil {
		return 0, fmt.Errorf("ask broker %d for the offsets of source topic %s partition %d: %w", l.id, k.topic, k.partition, err)
	}
	for _, rt := range raw.(*kmsg.ListOffsetsResponse).Topics {
		for _, rp := range rt.Partitions {
			if rt.Topic != k.topic || rp.Partition != k.partition {
				continue
			}
			if rp.ErrorCode != 0 {
				return 0, &SourceError{Topic: k.topic, Partition: k.partition, Code: rp.ErrorCode, LogStart: -1, LogEnd: -1}
			}
			return rp.Offset, nil
		}
	}
	return 0, fmt.Errorf("ask broker %d for the offsets of source topic %s partition %d: %w", l.id, k.topic, k.partition, errAbsent)
}

// bounds asks the leader for the start and the end of a partition.
func (f *Fetcher) bounds(ctx context.Context, k partKey, l leader) (start, end int64, err error) {
	if start, err = f.listOffset(ctx, k, l, -2); err == nil {
		end, err = f.listOffset(ctx, k, l, -1)
	}
	return start, end, err
}

// outOfRange looks up what the source has, and delivers it as an error unless the
// offset was in range after all, which happens at a replica that lags.
func (f *Fetcher) outOfRange(p *part, offset int64, fromReplica, again bool) {
	f.mu.Lock()
	l := leader{id: p.leader, epoch: p.leaderEpoch}
	f.mu.Unlock()
	select {
	case f.lookup <- struct{}{}:
		defer func() { <-f.lookup }()
	case <-f.ctx.Done():
		return
	}
	start, end, err := f.bounds(f.ctx, p.partKey, l)
	var serr *SourceError
	switch {
	case err != nil && errors.As(err, &serr) && !transient(serr.Code):
		f.finish(p, serr)
	case err != nil:
		f.lost(p, err)
	case start <= offset && offset <= end && (fromReplica || !again):
		f.lost(p, fmt.Errorf("OFFSET_OUT_OF_RANGE for offset %d, though the source has %d to %d", offset, start, end))
	default:
		f.finish(p, &SourceError{Topic: p.topic, Partition: p.partition, Code: kerr.OffsetOutOfRange.Code, LogStart: start, LogEnd: end})
	}
}

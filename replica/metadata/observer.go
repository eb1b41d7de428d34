package metadata

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

const logTopic = "__cluster_metadata"

// logTopicID is the id under which every cluster has its metadata log.
func logTopicID() [16]byte { return [16]byte{15: 1} }

// requestTimeout bounds the search for an active controller before it is logged that
// there is none. The observer then goes on searching.
const requestTimeout = 10 * time.Second

// Controllers sends a request to the active controller. replica/controller's Client
// is the one used; a Fetch or FetchSnapshot must not hold up other requests.
type Controllers interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// ObserverConfig configures an Observer. Zero durations and sizes mean the defaults.
type ObserverConfig struct {
	// ClusterID, when not empty, makes the controllers of any other cluster refuse.
	ClusterID string
	// ReplicaID is the id under which the log is fetched, that of the virtual broker:
	// kafka-metadata-quorum then shows how far it is. -1 fetches without a name.
	ReplicaID int32
	// DirectoryID is the virtual broker's log dir id, which names it to the quorum.
	DirectoryID ids.UUID
	// MaxWait bounds a long poll, and so how fresh Lag can be. Default 500 ms.
	MaxWait time.Duration
	// MaxBytes bounds the answer to a fetch, and a piece of a snapshot. Default 8 MiB.
	MaxBytes int32
	// MaxSnapshotBytes is the size from which on a snapshot is refused. Default 4 GiB;
	// it is never held in memory as a whole.
	MaxSnapshotBytes int64
}

func (c ObserverConfig) withDefaults() ObserverConfig {
	if c.MaxWait == 0 {
		c.MaxWait = 500 * time.Millisecond
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 8 << 20
	}
	if c.MaxSnapshotBytes == 0 {
		c.MaxSnapshotBytes = 4 << 30
	}
	return c
}

// Observer follows the metadata log and applies it to an Image. Only committed records
// are applied: a controller shows an observer the uncommitted end of its log as well,
// and may lose it.
type Observer struct {
	cfg ObserverConfig
	img *Image
	ctl Controllers
	log *slog.Logger
	crc *crc32.Table

	caughtUp chan struct{}

	mu      sync.Mutex // guards the following
	current time.Time  // when the image was last known to be up to date
	failed  bool

	// What follows belongs to Run's goroutine.

	f follower
	// building says that f works on a state beside the image's, which takes its place
	// once it has reached the high watermark.
	building bool
	position int64 // next offset to fetch
	// lastEpoch is the leader epoch of the batch before position.
	lastEpoch     int32
	appliedEpoch  int32 // that of the batch last applied
	nextToApply   int64
	pending       []batch // fetched, not yet known to be committed
	leaderEpoch   int32   // the quorum's
	highWatermark int64   // -1 while not known
	caught        bool
}

// NewObserver returns an observer that moves img; an image has one observer only.
func NewObserver(cfg ObserverConfig, img *Image, ctl Controllers, log *slog.Logger) *Observer {
	return &Observer{
		cfg:      cfg.withDefaults(),
		img:      img,
		ctl:      ctl,
		log:      log,
		crc:      crc32.MakeTable(crc32.Castagnoli),
		caughtUp: make(chan struct{}),
		current:  time.Now(),
	}
}

// CaughtUp is closed once the image has had everything up to the high watermark that
// the controller told of. The image is empty before.
func (o *Observer) CaughtUp() <-chan struct{} { return o.caughtUp }

// Lag returns for how long the image may have been behind the log: the time since it
// was last known to have everything up to the controller's high watermark. Before
// that it is the age of the observer; after Run has failed it is endless.
func (o *Observer) Lag() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed {
		return math.MaxInt64
	}
	return time.Since(o.current)
}

// Run follows the log until ctx ends, and then returns nil. Any other return is an
// error that no retry cures, such as a version of a record that has no table here
// (*metadatarecords.UnknownVersionError). It may be called once.
func (o *Observer) Run(ctx context.Context) error {
	o.restart()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 20*time.Millisecond, time.Second
	pause.Reset()
	for ctx.Err() == nil {
		err := o.step(ctx)
		if err == nil {
			pause.Reset()
			continue
		}
		var again *retryError
		if !errors.As(err, &again) {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // whatever failed did so because ctx ended
			}
			o.fail()
			o.log.Error("the metadata log cannot be followed any further", "offset", o.nextToApply, "error", err)
			return fmt.Errorf("follow the metadata log: %w", err)
		}
		if ctx.Err() == nil && !again.quiet {
			o.log.Warn("cannot fetch the metadata log, trying again", "position", o.position, "error", err)
		}
		t := time.NewTimer(pause.NextBackOff())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
	return nil
}

// retryError is an error after which the same, or a corrected, request may succeed.
type retryError struct {
	err   error
	quiet bool // part of normal life, such as a change of the leader
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

func retry(format string, args ...any) error {
	return &retryError{err: fmt.Errorf(format, args...)}
}

func (o *Observer) fail() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = true
}

// restart begins at the start of the log, in a state beside the image's.
func (o *Observer) restart() {
	o.f = follower{st: newState(o.img.virtual)}
	o.building = true
	o.position, o.nextToApply = 0, 0
	o.lastEpoch, o.appliedEpoch = 0, 0
	o.pending = nil
	o.highWatermark = -1
}

// step makes one fetch and applies what it brought.
func (o *Observer) step(ctx context.Context) error {
	sent := time.Now()
	p, err := o.fetch(ctx)
	if err != nil {
		return err
	}
	switch {
	case p.ErrorCode == kerr.FencedLeaderEpoch.Code || p.ErrorCode == kerr.UnknownLeaderEpoch.Code:
		return o.newLeader(p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch)
	case p.ErrorCode == kerr.OffsetOutOfRange.Code:
		o.log.Warn("the metadata log does not have the position any more, starting over", "position", o.position)
		o.restart()
		return &retryError{err: kerr.OffsetOutOfRange, quiet: true}
	case p.ErrorCode == kerr.TopicAuthorizationFailed.Code || p.ErrorCode == kerr.ClusterAuthorizationFailed.Code:
		return retry("%w: following the metadata log needs CLUSTER_ACTION on the cluster", kerr.ErrorForCode(p.ErrorCode))
	case p.ErrorCode != 0:
		return retry("%w", kerr.ErrorForCode(p.ErrorCode))
	case p.SnapshotID.EndOffset >= 0 && p.SnapshotID.Epoch >= 0:
		return o.loadSnapshot(ctx, p.SnapshotID.EndOffset, p.SnapshotID.Epoch)
	case p.DivergingEpoch.EndOffset >= 0 && p.DivergingEpoch.Epoch >= 0:
		return o.diverged(p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset)
	}
	if err := o.receive(p.RecordBatches); err != nil {
		return err
	}
	if p.HighWatermark >= 0 {
		o.highWatermark = p.HighWatermark
	}
	if err := o.commit(); err != nil {
		return err
	}
	if p.HighWatermark >= 0 && o.nextToApply >= p.HighWatermark && !o.f.open && !o.building {
		o.upToDate(sent)
	}
	return nil
}

func (o *Observer) fetch(ctx context.Context) (*kmsg.FetchResponseTopicPartition, error) {
	f := kmsg.NewPtrFetchRequest()
	if o.cfg.ClusterID != "" {
		f.ClusterID = &o.cfg.ClusterID
	}
	f.ReplicaID = o.cfg.ReplicaID
	f.ReplicaState.ID, f.ReplicaState.Epoch = o.cfg.ReplicaID, -1
	f.MaxWaitMillis, f.MinBytes, f.MaxBytes = int32(o.cfg.MaxWait.Milliseconds()), 1, o.cfg.MaxBytes
	f.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = logTopic, logTopicID()
	p := kmsg.NewFetchRequestTopicPartition()
	p.CurrentLeaderEpoch = o.leaderEpoch
	p.FetchOffset, p.LastFetchedEpoch = o.position, o.lastEpoch
	p.PartitionMaxBytes = o.cfg.MaxBytes
	p.ReplicaDirectoryID = o.cfg.DirectoryID
	// A controller answers at once when it knows of a higher one (KIP-1166).
	p.HighWatermark = o.highWatermark
	t.Partitions = append(t.Partitions, p)
	f.Topics = append(f.Topics, t)

	resp, err := o.request(ctx, f)
	if err != nil {
		return nil, err
	}
	r, ok := resp.(*kmsg.FetchResponse)
	if !ok {
		return nil, fmt.Errorf("fetch was answered with %T", resp)
	}
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		if errors.Is(err, kerr.InconsistentClusterID) {
			return nil, fmt.Errorf("these are not the controllers of cluster %q: %w", o.cfg.ClusterID, err)
		}
		return nil, retry("%w", err)
	}
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return nil, retry("fetch was answered for %d topics", len(r.Topics))
	}
	return &r.Topics[0].Partitions[0], nil
}

func (o *Observer) request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	rctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := o.ctl.Request(rctx, req)
	if errors.Is(err, kgo.ErrClientClosed) {
		return nil, err
	}
	if err != nil {
		// Learn the epoch anew: it may have been that which nobody agreed with. One
		// below that of the last batch makes a fetch invalid.
		o.leaderEpoch = o.lastEpoch
		return nil, retry("%w", err)
	}
	return resp, nil
}

// newLeader takes the epoch that an answer named. The answer is also how the epoch is
// learnt in the first place.
func (o *Observer) newLeader(code int16, leader, epoch int32) error {
	// A lower one comes from a controller that has not heard of the election yet.
	if epoch > o.leaderEpoch {
		o.log.Info("metadata quorum has another epoch", "leader", leader, "epoch", epoch, "was", o.leaderEpoch)
		o.leaderEpoch = epoch
	}
	return &retryError{err: kerr.ErrorForCode(code), quiet: true}
}

// receive decodes fetched batches and keeps them until they are committed. The last
// one may be cut off.
func (o *Observer) receive(b []byte) error {
	for first := true; len(b) > 0; first = false {
		bt, size, err := nextBatch(b, o.crc)
		if err != nil {
			return err
		}
		if size == 0 {
			if first {
				return retry("fetched %d bytes, not one whole batch", len(b))
			}
			break
		}
		b = b[size:]
		if bt.last < o.position {
			continue
		}
		if bt.base > o.position {
			// This log is never compacted: what is missing would be missed for good.
			return fmt.Errorf("the metadata log goes on at offset %d, expected %d", bt.base, o.position)
		}
		o.pending = append(o.pending, bt)
		o.position, o.lastEpoch = bt.last+1, bt.leaderEpoch
	}
	return nil
}

// commit applies the pending batches below the high watermark, all in one go: readers
// and subscribers need not see what came between.
func (o *Observer) commit() error {
	n := 0
	for n < len(o.pending) && o.pending[n].last < o.highWatermark {
		n++
	}
	if n > 0 {
		run := o.pending[:n]
		apply := func(_ *state, c *changes) error {
			for _, b := range run {
				if err := o.f.apply(b, o.nextToApply, c); err != nil {
					return err
				}
				o.nextToApply, o.appliedEpoch = b.last+1, b.leaderEpoch
			}
			return nil
		}
		var err error
		if o.building {
			err = apply(nil, newChanges())
		} else {
			err = o.img.apply(apply)
		}
		if err != nil {
			return err
		}
		o.pending = append([]batch(nil), o.pending[n:]...)
	}
	if o.building && o.highWatermark >= 0 && o.nextToApply >= o.highWatermark && !o.f.open {
		o.building = false
		o.img.replace(o.f.st)
	}
	return nil
}

func (o *Observer) upToDate(at time.Time) {
	o.mu.Lock()
	o.current = at
	o.mu.Unlock()
	if !o.caught {
		o.caught = true
		close(o.caughtUp)
		o.log.Info("metadata log read to its end", "offset", o.nextToApply-1)
	}
}

// diverged handles that the leader's log parted from what was fetched.
func (o *Observer) diverged(epoch int32, end int64) error {
	o.log.Warn("the metadata log of the leader has another history",
		"position", o.position, "epoch", o.lastEpoch, "leader epoch", epoch, "leader end", end)
	if len(o.pending) > 0 {
		// Usually only what was not committed is lost. If not, the next answer says so.
		o.pending = nil
		o.position, o.lastEpoch = o.nextToApply, o.appliedEpoch
	} else {
		o.restart()
	}
	return &retryError{err: errors.New("diverging epoch"), quiet: true}
}

// loadSnapshot reads a snapshot into a state beside the image's, piece by piece.
func (o *Observer) loadSnapshot(ctx context.Context, end int64, epoch int32) error {
	if end <= o.nextToApply && o.nextToApply > 0 {
		// The leader's history ends before what was applied here: begin again, with it.
		o.log.Warn("offered a snapshot that ends before what was applied, starting over", "end", end, "applied", o.nextToApply-1)
		o.restart()
		return &retryError{err: errors.New("snapshot of another history"), quiet: true}
	}
	o.log.Info("loading a snapshot of the metadata log", "end", end, "epoch", epoch, "position", o.position)
	f := follower{st: newState(o.img.virtual)}
	var got int64
	var rest []byte
	for {
		p, err := o.fetchSnapshot(ctx, end, epoch, got)
		if err != nil {
			return err
		}
		if p.Size > o.cfg.MaxSnapshotBytes {
			return fmt.Errorf("snapshot %d-%d has %d bytes, over the limit of %d", end, epoch, p.Size, o.cfg.MaxSnapshotBytes)
		}
		if p.Position != got || (len(p.Bytes) == 0 && got < p.Size) {
			return retry("snapshot %d-%d: asked for position %d, got %d bytes at %d", end, epoch, got, len(p.Bytes), p.Position)
		}
		got += int64(len(p.Bytes))
		rest = append(rest, p.Bytes...)
		for len(rest) > 0 {
			b, size, err := nextBatch(rest, o.crc)
			if err != nil {
				return fmt.Errorf("snapshot %d-%d: %w", end, epoch, err)
			}
			if size == 0 {
				break
			}
			if err := f.apply(b, 0, newChanges()); err != nil {
				return fmt.Errorf("snapshot %d-%d: %w", end, epoch, err)
			}
			rest = rest[size:]
		}
		rest = append([]byte(nil), rest...)
		if got >= p.Size {
			break
		}
	}
	if len(rest) > 0 || f.open {
		return fmt.Errorf("snapshot %d-%d ends in the middle of a batch", end, epoch)
	}
	f.st.offset = end - 1
	o.img.mu.RLock()
	f.st.inherit(o.img.st)
	o.img.mu.RUnlock()
	o.f, o.building = f, true
	o.position, o.nextToApply = end, end
	o.lastEpoch, o.appliedEpoch = epoch, epoch
	o.pending = nil
	return nil
}

func (o *Observer) fetchSnapshot(ctx context.Context, end int64, epoch int32, position int64) (*kmsg.FetchSnapshotResponseTopicPartition, error) {
	f := kmsg.NewPtrFetchSnapshotRequest()
	if o.cfg.ClusterID != "" {
		f.ClusterID = &o.cfg.ClusterID
	}
	f.ReplicaID, f.MaxBytes = o.cfg.ReplicaID, o.cfg.MaxBytes
	t := kmsg.NewFetchSnapshotRequestTopic()
	t.Topic = logTopic
	p := kmsg.NewFetchSnapshotRequestTopicPartition()
	p.CurrentLeaderEpoch = o.leaderEpoch
	p.SnapshotID.EndOffset, p.SnapshotID.Epoch = end, epoch
	p.Position = position
	p.ReplicaDirectoryID = o.cfg.DirectoryID
	t.Partitions = append(t.Partitions, p)
	f.Topics = append(f.Topics, t)
	resp, err := o.request(ctx, f)
	if err != nil {
		return nil, err
	}
	r, ok := resp.(*kmsg.FetchSnapshotResponse)
	if !ok {
		return nil, fmt.Errorf("snapshot fetch was answered with %T", resp)
	}
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return nil, retry("snapshot %d-%d: %w", end, epoch, err)
	}
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return nil, retry("snapshot fetch was answered for %d topics", len(r.Topics))
	}
	q := &r.Topics[0].Partitions[0]
	if q.ErrorCode == kerr.FencedLeaderEpoch.Code || q.ErrorCode == kerr.UnknownLeaderEpoch.Code {
		return nil, o.newLeader(q.ErrorCode, q.CurrentLeader.LeaderID, q.CurrentLeader.LeaderEpoch)
	}
	if err := kerr.ErrorForCode(q.ErrorCode); err != nil {
		// Most often: deleted in exchange for a newer one, which the next fetch names.
		return nil, retry("snapshot %d-%d at %d: %w", end, epoch, position, err)
	}
	return q, nil
}

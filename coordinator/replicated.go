package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// replicatedEvery is how often a broker is asked how far its replicas have come.
const replicatedEvery = 100 * time.Millisecond

// replicatedWait is how long a stop waits for the followers of all of a topic's partitions, once the
// markers are written: it holds up the coordinator's pass, and the next one looks again.
const replicatedWait = time.Second

// replicated tells whether all that a real leader has now is with its followers. It looks once at
// least, and again until the given time.
func (d *Destination) replicated(ctx context.Context, until time.Time, topic string, partition, leader int32) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	end, ok := d.logEnds(ctx, topic, partition, []int32{leader})[leader]
	if !ok {
		return fmt.Errorf("%s-%d: broker %d leads and does not tell its log end", topic, partition, leader)
	}
	for {
		hw, err := d.highWatermark(ctx, topic, partition, leader)
		switch {
		case err == nil && hw >= end:
			return nil
		case err != nil && !errors.Is(err, kerr.OffsetNotAvailable) && ctx.Err() == nil:
			return fmt.Errorf("high watermark of %s-%d at broker %d: %w", topic, partition, leader, err)
		}
		if !time.Now().Before(until) || !pauseFor(ctx, replicatedEvery) {
			return fmt.Errorf("%s-%d: the followers of broker %d have not got offset %d yet: %w", topic, partition, leader, end-1, kerr.NotEnoughReplicasAfterAppend)
		}
	}
}

// pauseFor waits, and tells whether ctx lived on.
func pauseFor(ctx context.Context, d time.Duration) bool {
	pause(ctx, d)
	return ctx.Err() == nil
}

func (d *Destination) highWatermark(ctx context.Context, topic string, partition, leader int32) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, -1, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := d.cl.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return 0, err
	}
	r, ok := resp.(*kmsg.ListOffsetsResponse)
	if !ok || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return 0, errors.New("unexpected answer")
	}
	return r.Topics[0].Partitions[0].Offset, kerr.ErrorForCode(r.Topics[0].Partitions[0].ErrorCode)
}

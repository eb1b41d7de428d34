package coordinator

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/placement"
)

// maxPlaced bounds the partitions that are placed at once; controllers take no more either.
const maxPlaced = 10_000

// Place returns the replicas of so many partitions of an ordinary topic from the given one
// on, on real brokers only.
func (c *Coordinator) Place(topic string, from, partitions, replicas int) ([][]int32, error) {
	brokers := placement.Brokers(c.img.Brokers(), c.cfg.Virtual)
	if len(placement.Live(brokers)) == 0 {
		return nil, refuse(kerr.InvalidReplicationFactor.Code, "All brokers are currently fenced, or have all log directories cordoned.")
	}
	if partitions > maxPlaced {
		return nil, refuse(kerr.InvalidPartitions.Code, "%d partitions of topic %s at once, at most %d", partitions, topic, maxPlaced)
	}
	lists := placement.Spread(brokers, partitions, replicas, from+hashStart(topic, len(brokers)))
	if lists == nil {
		return nil, refuse(kerr.InvalidReplicationFactor.Code,
			"Unable to replicate the partition %d time(s): The target replication factor of %d cannot be reached because only %d broker(s) are registered.",
			replicas, replicas, len(brokers))
	}
	return lists, nil
}

// Defaults returns the number of partitions and of replicas of topics that name none.
func (c *Coordinator) Defaults(ctx context.Context) (partitions, replicas int, err error) {
	if partitions, err = c.deps.Destination.intDefault(ctx, "num.partitions"); err != nil {
		return 0, 0, err
	}
	replicas, err = c.deps.Destination.intDefault(ctx, "default.replication.factor")
	return partitions, replicas, err
}

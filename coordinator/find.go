package coordinator

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// FindCoordinator returns the node id of the broker beside the sidecar that coordinates a
// mirror. KIP-1279 has the key both ways: the mirror's name, or that of a partition's state,
// mirror:topicId:partition.
func (c *Coordinator) FindCoordinator(key string) (homeID int32, err error) {
	name, _, _ := strings.Cut(key, ":")
	if _, err := c.mirror(name); err != nil {
		return -1, err
	}
	who, err := c.Of(key)
	if err != nil {
		return -1, asError(err, kerr.CoordinatorNotAvailable.Code)
	}
	return c.cfg.Virtual.Home(who), nil
}

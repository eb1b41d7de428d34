package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// Home is the real broker beside the sidecar.
type Home struct {
	ID int32
	// Listener is the name of the listener that brokers use among themselves.
	Listener string
	// ReplicaLag is replica.lag.time.max.ms and Segment log.segment.bytes, which stand in the
	// brokers' files: the metadata log does not tell them. 0 if they are not told.
	ReplicaLag time.Duration
	Segment    int
	// Session is broker.session.timeout.ms. It is a setting of the controllers, so a broker that is none
	// knows it only if its file has it too. 0 if it is not told.
	Session time.Duration
}

const (
	keyReplicaLag = "replica.lag.time.max.ms"
	keySegment    = "log.segment.bytes"
	keySession    = "broker.session.timeout.ms"
)

// FindHome finds out which registered broker answers at the client's seed address: a
// broker describes its own configs and nobody else's. The right DESCRIBE_CONFIGS on the
// cluster is needed.
func FindHome(ctx context.Context, cl *kgo.Client, image *metadata.Image, virtual ids.Virtual) (Home, error) {
	seeds := cl.SeedBrokers()
	if len(seeds) == 0 {
		return Home{}, errors.New("home.broker.bootstrap names no address")
	}
	var last error
	for _, b := range image.Brokers() {
		if virtual.Is(b.ID) {
			continue
		}
		req := kmsg.NewPtrDescribeConfigsRequest()
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeBroker, fmt.Sprint(b.ID)
		res.ConfigNames = []string{"inter.broker.listener.name", "security.inter.broker.protocol", "node.id", keyReplicaLag, keySegment, keySession}
		req.Resources = append(req.Resources, res)
		kresp, err := seeds[0].Request(ctx, req)
		if err != nil {
			return Home{}, fmt.Errorf("home broker: %w", err)
		}
		for _, r := range kresp.(*kmsg.DescribeConfigsResponse).Resources {
			switch err := kerr.ErrorForCode(r.ErrorCode); {
			case errors.Is(err, kerr.InvalidRequest): // another broker's id
			case err != nil:
				last = err
			default:
				values := map[string]string{}
				for _, c := range r.Configs {
					if c.Value != nil {
						values[c.Name] = *c.Value
					}
				}
				// The name wins; without one, the protocol is the name.
				h := Home{ID: b.ID, Listener: cmp.Or(values["inter.broker.listener.name"], values["security.inter.broker.protocol"])}
				if ms, err := strconv.ParseInt(values[keyReplicaLag], 10, 64); err == nil {
					h.ReplicaLag = time.Duration(ms) * time.Millisecond
				}
				if ms, err := strconv.ParseInt(values[keySession], 10, 64); err == nil {
					h.Session = time.Duration(ms) * time.Millisecond
				}
				if n, err := strconv.Atoi(values[keySegment]); err == nil {
					h.Segment = n
				}
				return h, nil
			}
		}
	}
	if last != nil {
		return Home{}, fmt.Errorf("home broker: describing its configs: %w", last)
	}
	return Home{}, errors.New("the broker at home.broker.bootstrap is none of this cluster's: is home.broker.bootstrap of the same cluster as controller.quorum.bootstrap.servers?")
}

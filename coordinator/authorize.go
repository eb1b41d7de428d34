package coordinator

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// Caller asks the home broker under the identity of whoever sent a mirror request, so that
// the cluster's authorizer decides.
type Caller interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// operation is an operation on the cluster, numbered as Kafka's AclOperation.
type operation int8

const (
	opCreate        operation = 5
	opAlter         operation = 7
	opDescribe      operation = 8
	opClusterAction operation = 9
)

func (o operation) String() string {
	switch o {
	case opCreate:
		return "CREATE"
	case opAlter:
		return "ALTER"
	case opDescribe:
		return "DESCRIBE"
	case opClusterAction:
		return "CLUSTER_ACTION"
	}
	return fmt.Sprintf("operation %d", int8(o))
}

// needs is what a caller must be allowed to do on the cluster (contract.md §8).
func needs(req kmsg.Request) []operation {
	switch req.(type) {
	case *protocol.CreateClusterMirrorRequest:
		return []operation{opCreate, opAlter}
	case *protocol.ListClusterMirrorsRequest, *protocol.DescribeClusterMirrorsRequest:
		return []operation{opDescribe}
	case *protocol.ReadMirrorStatesRequest, *protocol.WriteMirrorStatesRequest, *protocol.UncordonVirtualBrokerRequest:
		return []operation{opClusterAction}
	}
	return []operation{opAlter}
}

// authorize asks the cluster what the caller may do. Rights on single topics are a later
// step's.
func (c *Coordinator) authorize(ctx context.Context, req kmsg.Request) error {
	if c.deps.Caller == nil {
		return nil
	}
	refused := func(format string, args ...any) error {
		return refuse(protocol.ClusterMirrorAuthorizationFailed, protocol.Name(req.Key())+": "+format, args...)
	}
	caller, ok := c.deps.Caller(ctx)
	if !ok {
		return refused("nobody is known to ask")
	}
	ask := kmsg.NewPtrDescribeClusterRequest()
	ask.IncludeClusterAuthorizedOperations = true
	resp, err := caller.Request(ctx, ask)
	if err != nil {
		return refused("the home broker does not say what the caller may do: %v", err)
	}
	d := resp.(*kmsg.DescribeClusterResponse)
	if err := kerr.ErrorForCode(d.ErrorCode); err != nil {
		return refused("the home broker does not say what the caller may do: %v", err)
	}
	var missing []string
	for _, op := range needs(req) {
		if d.ClusterAuthorizedOperations&(1<<op) == 0 {
			missing = append(missing, op.String())
		}
	}
	if len(missing) > 0 {
		return refused("the caller lacks %s on the cluster", strings.Join(missing, " and "))
	}
	return nil
}

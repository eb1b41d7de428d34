package proxy

import (
	"context"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/rights"
)

// mirrorCoordinator is KIP-1279's key type of FindCoordinator.
const mirrorCoordinator int8 = 3

// findCoordinator relays what asks for a group's or a transaction's coordinator, and
// answers what asks for a mirror's.
func (c *conn) findCoordinator(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrFindCoordinatorRequest())
	if err != nil {
		return exchange{}, err
	}
	if req.CoordinatorType != mirrorCoordinator || c.p.deps.Coordinators == nil {
		ex := r.forward()
		ex.transform = c.p.rewriter(r.key, r.version)
		return ex, nil
	}
	ex := relayed(r.header)
	var resp *kmsg.FindCoordinatorResponse
	ex.converse = func(ctx context.Context, up *conversation) error {
		// One question for both: what the caller may do, and where it finds the brokers.
		ask := kmsg.NewPtrDescribeClusterRequest()
		ask.IncludeClusterAuthorizedOperations = true
		got, err := up.request(ctx, ask)
		if err != nil {
			return err
		}
		resp = c.p.mirrorCoordinators(req, got.(*kmsg.DescribeClusterResponse))
		return nil
	}
	ex.answer = func(context.Context) (net.Buffers, error) {
		return responseFrame(resp, r.header)
	}
	return ex, nil
}

// mirrorCoordinators answers for the coordinators of mirrors: the brokers beside the sidecars
// that do the coordinating.
func (p *Proxy) mirrorCoordinators(req *kmsg.FindCoordinatorRequest, cluster *kmsg.DescribeClusterResponse) *kmsg.FindCoordinatorResponse {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.Version = req.Version
	keys := req.CoordinatorKeys
	if req.Version < 4 {
		keys = []string{req.CoordinatorKey}
	}
	for _, key := range keys {
		co := kmsg.NewFindCoordinatorResponseCoordinator()
		co.Key, co.NodeID, co.Host, co.Port = key, -1, "", -1
		if err := p.mirrorCoordinatorOf(key, cluster, &co); err != nil {
			co.ErrorCode, co.ErrorMessage = protocol.CodeOf(err)
		}
		if req.Version < 4 {
			resp.ErrorCode, resp.ErrorMessage = co.ErrorCode, co.ErrorMessage
			resp.NodeID, resp.Host, resp.Port = co.NodeID, co.Host, co.Port
			break
		}
		resp.Coordinators = append(resp.Coordinators, co)
	}
	return resp
}

func (p *Proxy) mirrorCoordinatorOf(key string, cluster *kmsg.DescribeClusterResponse, co *kmsg.FindCoordinatorResponseCoordinator) error {
	if cluster.ErrorCode != errNone {
		return fmt.Errorf("ask the home broker for the cluster's brokers: %w", kerr.ErrorForCode(cluster.ErrorCode))
	}
	if !rights.Set(cluster.ClusterAuthorizedOperations).Has(rights.Describe) {
		return protocol.Errorf(protocol.ClusterMirrorAuthorizationFailed, "FindCoordinator of a mirror: the caller lacks %s on the cluster", rights.Describe)
	}
	home, err := p.deps.Coordinators.FindCoordinator(key)
	if err != nil {
		return err
	}
	for _, b := range cluster.Brokers {
		if b.NodeID == home {
			co.NodeID, co.Host, co.Port = b.NodeID, b.Host, b.Port
			if _, ok := p.address(b.NodeID, &co.Host, &co.Port); !ok {
				co.NodeID, co.Host, co.Port = -1, "", -1
				break
			}
			return nil
		}
	}
	return protocol.Errorf(errCoordinatorNotAvailable, "mirror %q is coordinated beside broker %d, which is not alive or has no address for clients", key, home)
}

// listGroups and listTransactions answer for the virtual broker, which coordinates nothing.
func (c *conn) listGroups(r *request) (exchange, error) {
	return c.local(r.header, kmsg.NewPtrListGroupsResponse()), nil
}

func (c *conn) listTransactions(r *request) (exchange, error) {
	return c.local(r.header, kmsg.NewPtrListTransactionsResponse()), nil
}

// describeLogDirs answers for the virtual broker, which has no log.
func (c *conn) describeLogDirs(r *request) (exchange, error) {
	return c.local(r.header, kmsg.NewPtrDescribeLogDirsResponse()), nil
}

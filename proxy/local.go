package proxy

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
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
	resp := kmsg.NewPtrFindCoordinatorResponse()
	find := func(mirror string) (int16, int32, string, int32) {
		node, host, port, ok := c.p.deps.Coordinators.Coordinator(mirror)
		if !ok {
			return errCoordinatorNotAvailable, -1, "", -1
		}
		return errNone, node, host, port
	}
	if r.version < 4 {
		resp.ErrorCode, resp.NodeID, resp.Host, resp.Port = find(req.CoordinatorKey)
	}
	for _, key := range req.CoordinatorKeys {
		co := kmsg.NewFindCoordinatorResponseCoordinator()
		co.Key = key
		co.ErrorCode, co.NodeID, co.Host, co.Port = find(key)
		resp.Coordinators = append(resp.Coordinators, co)
	}
	return c.local(r.header, resp), nil
}

// describeLogDirs answers for the virtual broker, which has no log.
func (c *conn) describeLogDirs(r *request) (exchange, error) {
	return c.local(r.header, kmsg.NewPtrDescribeLogDirsResponse()), nil
}

// describeConfigs answers for the virtual broker's own id, which has no configs of its
// own; the rest of a request is the home broker's.
func (c *conn) describeConfigs(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrDescribeConfigsRequest())
	if err != nil {
		return exchange{}, err
	}
	own := strconv.Itoa(int(c.p.cfg.IDs.Of(c.p.cfg.Home)))
	isOwn := func(res *kmsg.DescribeConfigsRequestResource) bool {
		broker := res.ResourceType == kmsg.ConfigResourceTypeBroker || res.ResourceType == kmsg.ConfigResourceTypeBrokerLogger
		return broker && res.ResourceName == own
	}
	rest := *req
	rest.Resources = nil
	for i := range req.Resources {
		if !isOwn(&req.Resources[i]) {
			rest.Resources = append(rest.Resources, req.Resources[i])
		}
	}
	if len(rest.Resources) == len(req.Resources) {
		return r.forward(), nil
	}
	merge := func(resp kmsg.Response) kmsg.Response {
		out := kmsg.NewPtrDescribeConfigsResponse()
		var answered []kmsg.DescribeConfigsResponseResource
		if got, ok := resp.(*kmsg.DescribeConfigsResponse); ok {
			*out = *got
			answered = got.Resources
		}
		out.Version = r.version
		out.Resources = nil
		for i := range req.Resources {
			if isOwn(&req.Resources[i]) {
				o := kmsg.NewDescribeConfigsResponseResource()
				o.ResourceType, o.ResourceName = req.Resources[i].ResourceType, own
				out.Resources = append(out.Resources, o)
			}
		}
		out.Resources = append(out.Resources, answered...)
		return out
	}
	if len(rest.Resources) == 0 {
		return c.split(r, nil, nil, merge), nil
	}
	return c.split(r, nil, &rest, merge), nil
}

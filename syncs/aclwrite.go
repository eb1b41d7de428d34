package syncs

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// aclsAtATime bounds one request: each of them is a record of the metadata log.
const aclsAtATime = 500

// pacer keeps changes apart: the controller has others to serve.
type pacer struct {
	every time.Duration
	last  time.Time
}

// wait returns when the next change may be made. The first is not held up.
func (p *pacer) wait(ctx context.Context) error {
	if left := p.every - time.Since(p.last); left > 0 {
		t := time.NewTimer(left)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.last = time.Now()
	return ctx.Err()
}

// createACLs creates up to aclsAtATime ACLs, and returns for each what became of it. An error means
// that this is not known of any.
func createACLs(ctx context.Context, cl *kgo.Client, acls []acl) ([]error, error) {
	req := kmsg.NewPtrCreateACLsRequest()
	for _, a := range acls {
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.ResourcePatternType = a.resource, a.name, a.pattern
		c.Principal, c.Host, c.Operation, c.PermissionType = a.principal, a.host, a.operation, a.permission
		req.Creations = append(req.Creations, c)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("create %d ACLs: %w", len(acls), err)
	}
	if len(resp.Results) != len(acls) {
		return nil, fmt.Errorf("create %d ACLs: the answer is about %d", len(acls), len(resp.Results))
	}
	out := make([]error, len(acls))
	for i, r := range resp.Results {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			out[i] = fmt.Errorf("create: %w%s", err, detail(r.ErrorMessage))
		}
	}
	return out, nil
}

// deleteACLs deletes up to aclsAtATime ACLs, and returns for each what became of it. That it was not
// there is no error.
func deleteACLs(ctx context.Context, cl *kgo.Client, acls []acl) ([]error, error) {
	req := kmsg.NewPtrDeleteACLsRequest()
	for _, a := range acls {
		// With every field given a filter is one ACL.
		f := kmsg.NewDeleteACLsRequestFilter()
		f.ResourceType, f.ResourceName, f.ResourcePatternType = a.resource, &a.name, a.pattern
		f.Principal, f.Host, f.Operation, f.PermissionType = &a.principal, &a.host, a.operation, a.permission
		req.Filters = append(req.Filters, f)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("delete %d ACLs: %w", len(acls), err)
	}
	if len(resp.Results) != len(acls) {
		return nil, fmt.Errorf("delete %d ACLs: the answer is about %d", len(acls), len(resp.Results))
	}
	out := make([]error, len(acls))
	for i, r := range resp.Results {
		err, msg := kerr.ErrorForCode(r.ErrorCode), r.ErrorMessage
		for _, m := range r.MatchingACLs {
			if err == nil {
				err, msg = kerr.ErrorForCode(m.ErrorCode), m.ErrorMessage
			}
		}
		if err != nil {
			out[i] = fmt.Errorf("delete: %w%s", err, detail(msg))
		}
	}
	return out, nil
}

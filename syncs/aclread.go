package syncs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

const (
	// maxACLs bounds what is read of one cluster.
	maxACLs = 100_000
	// maxACLText bounds one ACL: what is created is written down.
	maxACLText = 2048
	// mirrorResource is the KIP's type of resource for mirrors, which franz-go does not know.
	mirrorResource kmsg.ACLResourceType = 8
)

// errNoAuthorizer says that a cluster has no ACLs at all.
var errNoAuthorizer = errors.New("there is no authorizer")

// acl is one ACL of a cluster. It is comparable.
type acl struct {
	resource   kmsg.ACLResourceType
	name       string
	pattern    kmsg.ACLResourcePatternType
	principal  string
	host       string
	operation  kmsg.ACLOperation
	permission kmsg.ACLPermissionType
}

func (a acl) binding() *policyv1.AclBinding {
	return &policyv1.AclBinding{
		ResourceType: a.resource.String(), ResourceName: a.name, PatternType: a.pattern.String(), Principal: a.principal,
		Host: a.host, Operation: a.operation.String(), PermissionType: a.permission.String(),
	}
}

// item names it, for the ledger and the state topic.
func (a acl) item() string { return policy.ACLItem(a.binding()) }

// aclOf reads what a policy has made of an ACL.
func aclOf(b *policyv1.AclBinding) (acl, error) {
	a := acl{name: b.GetResourceName(), principal: b.GetPrincipal(), host: b.GetHost()}
	var errs [4]error
	a.resource, errs[0] = kmsg.ParseACLResourceType(b.GetResourceType())
	a.pattern, errs[1] = kmsg.ParseACLResourcePatternType(b.GetPatternType())
	a.operation, errs[2] = kmsg.ParseACLOperation(b.GetOperation())
	a.permission, errs[3] = kmsg.ParseACLPermissionType(b.GetPermissionType())
	return a, errors.Join(errs[:]...)
}

// unknown tells whether it has something that this build has no name for. Nobody is asked about it.
func (a acl) unknown() bool {
	return a.resource < kmsg.ACLResourceTypeTopic || a.resource > kmsg.ACLResourceTypeUser ||
		a.pattern != kmsg.ACLResourcePatternTypeLiteral && a.pattern != kmsg.ACLResourcePatternTypePrefixed ||
		a.operation < kmsg.ACLOperationAll || a.operation > kmsg.ACLOperationDescribeTokens ||
		a.permission != kmsg.ACLPermissionTypeAllow && a.permission != kmsg.ACLPermissionTypeDeny
}

// bound says why an ACL is not created here whatever the policies say; empty if it may be.
func (a acl) bound(allowHosts bool) string {
	switch {
	case a.resource == mirrorResource:
		return "ACLs of mirrors are each cluster's own"
	case a.unknown():
		return "it has a type, pattern, operation or permission that no ACL here has"
	case a.host != "*" && !allowHosts:
		return fmt.Sprintf("it is for host %s, and behind a sidecar brokers see its address instead of the client's; the sidecars' allow.host.rules.ignored mirrors it all the same", a.host)
	case strings.Contains(a.principal, ";"):
		return "its principal has a semicolon, which cannot be told from the end of a field"
	case a.name == "" || a.principal == "":
		return "it has no resource name, or no principal"
	case a.resource == kmsg.ACLResourceTypeTopic && a.name == protocol.StateTopic,
		a.resource == kmsg.ACLResourceTypeTransactionalId && strings.HasPrefix(a.name, protocol.StateTransactions):
		return "it is about what each cluster's sidecars keep for themselves"
	case len(a.item()) > maxACLText:
		return fmt.Sprintf("it is longer than %d bytes", maxACLText)
	}
	return ""
}

// readACLs returns all ACLs of a cluster, each once, or errNoAuthorizer.
func readACLs(ctx context.Context, cl *kgo.Client) (map[acl]bool, error) {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType = kmsg.ACLResourceTypeAny
	req.ResourcePatternType = kmsg.ACLResourcePatternTypeAny
	req.Operation = kmsg.ACLOperationAny
	req.PermissionType = kmsg.ACLPermissionTypeAny
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("read ACLs: %w", err)
	}
	switch err := kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(err, kerr.SecurityDisabled):
		return nil, errNoAuthorizer
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return nil, fmt.Errorf("read ACLs: DESCRIBE on the cluster is needed: %w", err)
	case err != nil:
		return nil, fmt.Errorf("read ACLs: %w%s", err, detail(resp.ErrorMessage))
	}
	out := map[acl]bool{}
	for _, r := range resp.Resources {
		for _, a := range r.ACLs {
			out[acl{
				resource: r.ResourceType, name: r.ResourceName, pattern: r.ResourcePatternType,
				principal: a.Principal, host: a.Host, operation: a.Operation, permission: a.PermissionType,
			}] = true
		}
		if len(out) > maxACLs {
			return nil, fmt.Errorf("read ACLs: there are more than %d", maxACLs)
		}
	}
	return out, nil
}

// detail words an answer's own message for the end of an error.
func detail(msg *string) string {
	if msg == nil || *msg == "" {
		return ""
	}
	return " (" + *msg + ")"
}

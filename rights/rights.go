package rights

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Asker sends requests to a broker under the identity whose rights are asked.
type Asker interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// Operation is what an authorizer allows or denies, numbered as Kafka's AclOperation.
type Operation int8

// The operations that something here needs.
const (
	Read            Operation = 3
	Write           Operation = 4
	Create          Operation = 5
	Delete          Operation = 6
	Alter           Operation = 7
	Describe        Operation = 8
	ClusterAction   Operation = 9
	DescribeConfigs Operation = 10
	AlterConfigs    Operation = 11
)

func (o Operation) String() string {
	switch o {
	case Read:
		return "READ"
	case Write:
		return "WRITE"
	case Create:
		return "CREATE"
	case Delete:
		return "DELETE"
	case Alter:
		return "ALTER"
	case Describe:
		return "DESCRIBE"
	case ClusterAction:
		return "CLUSTER_ACTION"
	case DescribeConfigs:
		return "DESCRIBE_CONFIGS"
	case AlterConfigs:
		return "ALTER_CONFIGS"
	}
	return fmt.Sprintf("operation %d", int8(o))
}

// Set is a set of operations as Kafka's responses carry it.
type Set int32

// Has tells whether an operation is in the set.
func (s Set) Has(o Operation) bool { return s > 0 && s&(1<<o) != 0 }

// OnCluster asks which operations the cluster allows on itself. Who lacks DESCRIBE is told
// of none: Kafka does not say then.
func OnCluster(ctx context.Context, a Asker) (Set, error) {
	d, err := describeCluster(ctx, a)
	if err != nil {
		return 0, err
	}
	return Set(d.ClusterAuthorizedOperations), nil
}

func describeCluster(ctx context.Context, a Asker) (*kmsg.DescribeClusterResponse, error) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeClusterAuthorizedOperations = true
	resp, err := a.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("ask what is allowed on the cluster: %w", err)
	}
	d, ok := resp.(*kmsg.DescribeClusterResponse)
	if !ok {
		return nil, errUnexpected
	}
	if err := kerr.ErrorForCode(d.ErrorCode); err != nil {
		return nil, fmt.Errorf("ask what is allowed on the cluster: %w", err)
	}
	return d, nil
}

var errUnexpected = errors.New("an answer of another kind than was asked for")

// DescribesClusterConfigs asks whether DESCRIBE_CONFIGS is allowed on the cluster. That is
// not taken from the set of OnCluster, which is empty for who may do this and nothing
// else.
func DescribesClusterConfigs(ctx context.Context, a Asker) (bool, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version = 1
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType = kmsg.ConfigResourceTypeBroker // of all brokers: no name
	res.ConfigNames = []string{"log.retention.ms"}   // any
	req.Resources = append(req.Resources, res)
	resp, err := a.Request(ctx, req)
	if err != nil {
		return false, fmt.Errorf("ask whether DESCRIBE_CONFIGS is allowed on the cluster: %w", err)
	}
	d, ok := resp.(*kmsg.DescribeConfigsResponse)
	if !ok || len(d.Resources) != 1 {
		return false, errUnexpected
	}
	return allowed(d.Resources[0].ErrorCode, "DESCRIBE_CONFIGS on the cluster")
}

// AltersClusterConfigs asks whether ALTER_CONFIGS is allowed on the cluster.
func AltersClusterConfigs(ctx context.Context, a Asker) (bool, error) {
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType = kmsg.ConfigResourceTypeBroker
	codes, err := alterNothing(ctx, a, res)
	if err != nil {
		return false, fmt.Errorf("ask whether ALTER_CONFIGS is allowed on the cluster: %w", err)
	}
	return allowed(codes[0], "ALTER_CONFIGS on the cluster")
}

// chunk bounds how many topics one request asks about.
const chunk = 1000

// DeniedTopics asks for which of some topics ALTER_CONFIGS is not allowed, and returns
// those, in the order given.
//
// The question is an alteration of nothing that is not carried out. Unlike the authorized
// operations in Metadata it needs no DESCRIBE, and it works for topics that do not
// exist: the authorizer is asked first.
func DeniedTopics(ctx context.Context, a Asker, topics []string) ([]string, error) {
	var denied []string
	names := slices.Clone(topics)
	slices.Sort(names)
	names = slices.Compact(names) // Kafka refuses a resource that is there twice
	no := map[string]bool{}
	for part := range slices.Chunk(names, chunk) {
		var ask []kmsg.IncrementalAlterConfigsRequestResource
		for _, name := range part {
			res := kmsg.NewIncrementalAlterConfigsRequestResource()
			res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, name
			ask = append(ask, res)
		}
		codes, err := alterNothing(ctx, a, ask...)
		if err != nil {
			return nil, fmt.Errorf("ask whether ALTER_CONFIGS is allowed on topics: %w", err)
		}
		for i, code := range codes {
			ok, err := allowed(code, "ALTER_CONFIGS on topic "+part[i])
			if err != nil {
				return nil, err
			}
			no[part[i]] = !ok
		}
	}
	for _, name := range topics {
		if no[name] {
			denied = append(denied, name)
		}
	}
	return denied, nil
}

// alterNothing returns the error codes of an alteration without changes, in order.
func alterNothing(ctx context.Context, a Asker, resources ...kmsg.IncrementalAlterConfigsRequestResource) ([]int16, error) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = true
	req.Resources = resources
	resp, err := a.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	r, ok := resp.(*kmsg.IncrementalAlterConfigsResponse)
	if !ok {
		return nil, errUnexpected
	}
	codes := map[string]int16{}
	for _, res := range r.Resources {
		codes[res.ResourceName] = res.ErrorCode
	}
	var out []int16
	for _, res := range resources {
		code, ok := codes[res.ResourceName]
		if !ok {
			return nil, fmt.Errorf("no answer about %q", res.ResourceName)
		}
		out = append(out, code)
	}
	return out, nil
}

// allowed reads an error as the authorizer's verdict. Only what is refused after the
// authorizer has agreed, or by it, is one; anything else says that the question was
// not answered.
func allowed(code int16, what string) (bool, error) {
	switch err := kerr.ErrorForCode(code); {
	case err == nil,
		errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.InvalidTopicException),
		errors.Is(err, kerr.InvalidConfig), errors.Is(err, kerr.PolicyViolation):
		return true, nil
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return false, nil
	default:
		return false, fmt.Errorf("ask whether %s is allowed: %w", what, err)
	}
}

package fetcher

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// TopicInfo is what a mirror needs to know of a source topic.
type TopicInfo struct {
	ID         ids.UUID // zero if the source has no topic ids
	Partitions int32
	// Configs are the topic's own configs, not the broker's defaults that apply to it.
	Configs  map[string]string
	Internal bool
	// Err is a *SourceError if the source has no such topic, or does not let us see it.
	Err error
}

// Topics describes source topics by name, nil for all that the source lets us see. A
// name that cannot be described is in the answer with its Err.
func (f *Fetcher) Topics(ctx context.Context, names []string) (map[string]TopicInfo, error) {
	found, err := f.metadata(ctx, names)
	if err != nil {
		return nil, err
	}
	out := make(map[string]TopicInfo, len(found))
	req := kmsg.NewPtrDescribeConfigsRequest()
	for name, t := range found {
		if t.ErrorCode != 0 {
			out[name] = TopicInfo{Err: &SourceError{Topic: name, Partition: -1, Code: t.ErrorCode, LogStart: -1, LogEnd: -1}}
			continue
		}
		out[name] = TopicInfo{ID: ids.UUID(t.TopicID), Partitions: int32(len(t.Partitions)), Internal: t.IsInternal, Configs: map[string]string{}}
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, name
		req.Resources = append(req.Resources, r)
	}
	if len(req.Resources) == 0 {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	resp, err := req.RequestWith(ctx, f.ctl)
	if err != nil {
		return nil, fmt.Errorf("mirror %s: ask the source for topic configs: %w", f.cfg.Mirror, err)
	}
	for _, r := range resp.Resources {
		info := out[r.ResourceName]
		if r.ErrorCode != 0 {
			info.Err = &SourceError{Topic: r.ResourceName, Partition: -1, Code: r.ErrorCode, LogStart: -1, LogEnd: -1}
			out[r.ResourceName] = info
			continue
		}
		for _, c := range r.Configs {
			if c.Source == kmsg.ConfigSourceDynamicTopicConfig && c.Value != nil {
				info.Configs[c.Name] = *c.Value
			}
		}
	}
	return out, nil
}

// ClusterID returns the id of the source cluster.
func (f *Fetcher) ClusterID(ctx context.Context) (string, error) {
	if f.ctlErr != nil {
		return "", f.ctlErr
	}
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none: only the cluster is asked about
	resp, err := req.RequestWith(ctx, f.ctl)
	if err != nil {
		return "", fmt.Errorf("mirror %s: ask the source for its cluster id: %w", f.cfg.Mirror, err)
	}
	if resp.ClusterID == nil || *resp.ClusterID == "" {
		return "", fmt.Errorf("mirror %s: the source does not tell its cluster id", f.cfg.Mirror)
	}
	return *resp.ClusterID, nil
}

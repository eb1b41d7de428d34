package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/rights"
)

// SourceTopic is what the source says of one of its topics.
type SourceTopic struct {
	Name       string
	ID         ids.UUID // zero where the source is older than topic ids
	Partitions int32
	Configs    map[string]string // dynamic topic configs only
	Defaults   map[string]string // of those that are not set on the topic
	// linked: the source has mirrored the topic from here before, see failback.go.
	linked bool
	// Err says why no more is known of a topic that exists.
	Err error
}

// Source asks a source cluster about itself.
type Source interface {
	ClusterID(ctx context.Context) (string, error)
	// Topics returns the topics of these names that exist, with their configs.
	Topics(ctx context.Context, names []string) (map[string]SourceTopic, error)
	// List returns all topics by name, without their configs.
	List(ctx context.Context) ([]SourceTopic, error)
	Close()
}

// OpenSource connects to the source of a mirror. Nothing is dialled before the first
// question.
type OpenSource func(m *config.Mirror) (Source, error)

// KafkaSource returns the OpenSource for real clusters.
func KafkaSource(p config.Providers, nodeID int32) OpenSource {
	return func(m *config.Mirror) (Source, error) {
		opts, err := m.Options(p)
		if err != nil {
			return nil, err
		}
		cl, err := kgo.NewClient(append(opts,
			kgo.ClientID(fmt.Sprintf("mirror-src-admin-%d", nodeID)),
			kgo.RetryTimeout(m.RequestTimeout),
			kgo.DialTimeout(min(m.RequestTimeout, 5*time.Second)),
			kgo.MetadataMinAge(250*time.Millisecond),
			kgo.DisableClientMetrics(),
			kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())),
		)...)
		if err != nil {
			return nil, fmt.Errorf("client for the source: %w", err)
		}
		return &kafkaSource{cl: cl, adm: kadm.NewClient(cl), timeout: m.RequestTimeout}, nil
	}
}

type kafkaSource struct {
	cl      *kgo.Client
	adm     *kadm.Client
	timeout time.Duration
}

func (s *kafkaSource) Close() { s.cl.Close() }

func (s *kafkaSource) ClusterID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	m, err := s.adm.BrokerMetadata(ctx)
	if err != nil {
		return "", err
	}
	if m.Cluster == "" {
		return "", errors.New("the source does not tell its cluster id")
	}
	return m.Cluster, nil
}

func (s *kafkaSource) List(ctx context.Context) ([]SourceTopic, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	all, err := s.adm.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]SourceTopic, 0, len(all))
	for _, t := range all.Sorted() {
		out = append(out, SourceTopic{Name: t.Topic, ID: ids.UUID(t.ID), Partitions: int32(len(t.Partitions)), Err: t.Err})
	}
	return out, nil
}

// topicsAtATime bounds one question about topics: the answer has every config of each.
const topicsAtATime = 1000

func (s *kafkaSource) Topics(ctx context.Context, names []string) (map[string]SourceTopic, error) {
	out := make(map[string]SourceTopic, len(names))
	for chunk := range slices.Chunk(names, topicsAtATime) {
		if err := s.topics(ctx, chunk, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *kafkaSource) topics(ctx context.Context, names []string, out map[string]SourceTopic) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &n
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return err
	}
	var found []string
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			continue
		case err != nil:
			// One topic that is not ours to see must not hold up the others.
			out[*t.Topic] = SourceTopic{Name: *t.Topic, Err: rights.Lacking(err, rights.MirrorUser, rights.OfTopic(rights.Describe, *t.Topic, ""))}
			continue
		}
		out[*t.Topic] = SourceTopic{Name: *t.Topic, ID: ids.UUID(t.TopicID), Partitions: int32(len(t.Partitions))}
		found = append(found, *t.Topic)
	}
	if len(found) == 0 {
		return nil
	}
	// Not by kadm, for which one topic without the right fails all.
	ask := kmsg.NewPtrDescribeConfigsRequest()
	for _, n := range found {
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, n
		ask.Resources = append(ask.Resources, res)
	}
	configs, err := ask.RequestWith(ctx, s.cl)
	if err != nil {
		return fmt.Errorf("topic configs at the source: %w", err)
	}
	for _, c := range configs.Resources {
		t := out[c.ResourceName]
		if err := kerr.ErrorForCode(c.ErrorCode); err != nil {
			t.Err = fmt.Errorf("its configs: %w", rights.Lacking(err, rights.MirrorUser, rights.OfTopic(rights.DescribeConfigs, c.ResourceName, "")))
			out[c.ResourceName] = t
			continue
		}
		t.Configs, t.Defaults = map[string]string{}, map[string]string{}
		for _, kv := range c.Configs {
			switch {
			case kv.Value == nil:
			case kv.Source == kmsg.ConfigSourceDynamicTopicConfig:
				t.Configs[kv.Name] = *kv.Value
			default:
				t.Defaults[kv.Name] = *kv.Value
			}
		}
		out[c.ResourceName] = t
	}
	return nil
}

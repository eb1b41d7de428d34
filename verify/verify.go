package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
)

// TopicPartition names a partition, which has the same name in both clusters.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Options say what to compare and how. The zero value compares all that the source
// holds at this moment.
type Options struct {
	// UpTo ends the comparison of a partition before the source's end: at the last
	// mirror offset of a mirror that was stopped and is written to since. The end is
	// otherwise the source's high watermark when its turn comes.
	UpTo map[TopicPartition]int64
	// Wait is how long a mirror may stand still below the end before that counts as a
	// difference: 30 s when 0, not at all when negative.
	Wait time.Duration
	// Parallel is how many partitions are compared at a time, 4 when 0.
	Parallel int
	// MaxBytes is how much is read at once of one partition, 4 MiB when 0. Twice that is
	// held for each partition that is being compared.
	MaxBytes int32
	// SourceBroker and MirrorBroker choose which broker to read a partition from: any
	// real replica will do. Nil, or a negative answer, is the leader.
	SourceBroker, MirrorBroker func(TopicPartition) int32
	// Tagger maps the producer ids; nil means by the two clusters' ids.
	Tagger *batch.Tagger
	// Progress is told, one call at a time, how far each partition is.
	Progress func(Progress)
}

// Progress is how far the comparison of a partition is.
type Progress struct {
	Topic          string
	Partition      int32
	Start, At, End int64
}

// Report is the outcome.
type Report struct {
	SourceClusterID string            `json:"sourceClusterId"`
	MirrorClusterID string            `json:"mirrorClusterId"`
	Partitions      []PartitionReport `json:"partitions"`
}

// Equal tells whether everything was compared and nothing differed.
func (r Report) Equal() bool {
	return !slices.ContainsFunc(r.Partitions, func(p PartitionReport) bool { return p.Difference != nil || p.Error != "" })
}

// PartitionReport is the outcome for one partition: offsets Start to End were compared,
// up to the Difference if there is one.
type PartitionReport struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Batches   int64  `json:"batches"`
	Records   int64  `json:"records"`
	Bytes     int64  `json:"bytes"`
	// SourceStart and MirrorStart are the two log starts.
	SourceStart int64 `json:"sourceStart"`
	MirrorStart int64 `json:"mirrorStart"`
	// Compacted topics are cleaned by each cluster on its own, so a difference may be
	// one of time only.
	Compacted  bool        `json:"compacted,omitempty"`
	Difference *Difference `json:"difference,omitempty"`
	// Error is why the partition could not be compared.
	Error string `json:"error,omitempty"`
}

// Compare compares topics of the source with their mirrors. It returns an error when
// something could not be compared; the Report then still has all that could.
func Compare(ctx context.Context, src, dst *kgo.Client, topics []string, opts Options) (Report, error) {
	s, err := describeCluster(ctx, src, topics)
	if err != nil {
		return Report{}, fmt.Errorf("verify: describe the source: %w", err)
	}
	d, err := describeCluster(ctx, dst, topics)
	if err != nil {
		return Report{}, fmt.Errorf("verify: describe the mirror: %w", err)
	}
	compacted, err := compactedTopics(ctx, src, topics)
	if err != nil {
		return Report{}, fmt.Errorf("verify: describe the source: %w", err)
	}
	report := Report{SourceClusterID: s.id, MirrorClusterID: d.id}
	tagger := batch.NewTagger(s.id, d.id)
	if opts.Tagger != nil {
		tagger = *opts.Tagger
	}
	var errs []error
	for _, topic := range topics {
		st, dt := s.topics[topic], d.topics[topic]
		n := int32(0)
		switch {
		case st.err != nil:
			errs = append(errs, fmt.Errorf("topic %s at the source: %w", topic, st.err))
		case dt.err != nil && !errors.Is(dt.err, kerr.UnknownTopicOrPartition):
			errs = append(errs, fmt.Errorf("topic %s in the mirror: %w", topic, dt.err))
		default:
			n = max(st.partitions, dt.partitions)
		}
		for p := range n {
			r := PartitionReport{Topic: topic, Partition: p, Compacted: compacted[topic]}
			if p >= st.partitions || p >= dt.partitions {
				r.Difference = &Difference{Field: FieldPartition, Source: present(p < st.partitions), Mirror: present(p < dt.partitions)}
			}
			report.Partitions = append(report.Partitions, r)
		}
	}

	var mu sync.Mutex // guards errs and opts.Progress
	var g errgroup.Group
	g.SetLimit(orDefault(opts.Parallel, 4))
	for i := range report.Partitions {
		r := &report.Partitions[i]
		if r.Difference != nil {
			continue
		}
		g.Go(func() error {
			tp := TopicPartition{r.Topic, r.Partition}
			progress := func(at int64) {
				if opts.Progress != nil {
					mu.Lock()
					defer mu.Unlock()
					opts.Progress(Progress{Topic: r.Topic, Partition: r.Partition, Start: r.Start, At: at, End: r.End})
				}
			}
			sr := newReader(src, tp, opts.SourceBroker, opts.MaxBytes)
			dr := newReader(dst, tp, opts.MirrorBroker, opts.MaxBytes)
			if err := comparePartition(ctx, sr, dr, tp, opts, tagger, r, progress); err != nil {
				r.Error = err.Error()
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("topic %s partition %d: %w", r.Topic, r.Partition, err))
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	if len(errs) > 0 {
		return report, fmt.Errorf("verify: %w", errors.Join(errs...))
	}
	return report, nil
}

// restarts is how often a partition is begun anew because retention moved a log start
// past the place of the comparison.
const restarts = 5

func comparePartition(ctx context.Context, src, dst Reader, tp TopicPartition, opts Options, tagger batch.Tagger, r *PartitionReport, progress func(int64)) error {
	wait := opts.Wait
	if wait == 0 {
		wait = 30 * time.Second
	}
	for try := 0; ; try++ {
		start, end, err := src.Bounds(ctx)
		if err != nil {
			return fmt.Errorf("ask the source for its offsets: %w", err)
		}
		mirrorStart, _, err := dst.Bounds(ctx)
		if err != nil {
			return fmt.Errorf("ask the mirror for its offsets: %w", err)
		}
		if upTo, ok := opts.UpTo[tp]; ok {
			end = upTo
		}
		r.SourceStart, r.MirrorStart = start, mirrorStart
		r.Start = max(start, mirrorStart)
		r.End = max(end, r.Start)
		n, diff, err := compare(ctx, src, dst, r.Start, r.End, wait, tagger, progress)
		if errors.Is(err, ErrOffsetOutOfRange) && try < restarts {
			continue
		}
		r.Batches, r.Records, r.Bytes, r.Difference = n.batches, n.records, n.bytes, diff
		return err
	}
}

func present(is bool) string {
	if is {
		return "present"
	}
	return "absent"
}

func orDefault[T int | int32](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

type cluster struct {
	id     string
	topics map[string]topic
}

type topic struct {
	partitions int32
	err        error
}

func describeCluster(ctx context.Context, cl *kgo.Client, topics []string) (cluster, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return cluster{}, err
	}
	c := cluster{topics: map[string]topic{}}
	if resp.ClusterID != nil {
		c.id = *resp.ClusterID
	}
	for _, t := range resp.Topics {
		if t.Topic != nil {
			c.topics[*t.Topic] = topic{partitions: int32(len(t.Partitions)), err: kerr.ErrorForCode(t.ErrorCode)}
		}
	}
	return c, nil
}

// compactedTopics tells which topics the source compacts. A source that does not let
// us see configs is taken to compact none: it is a hint only.
func compactedTopics(ctx context.Context, cl *kgo.Client, topics []string) (map[string]bool, error) {
	out := map[string]bool{}
	if len(topics) == 0 {
		return out, nil
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range topics {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, name, []string{"cleanup.policy"}
		req.Resources = append(req.Resources, r)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	for _, r := range resp.Resources {
		for _, c := range r.Configs {
			if c.Name == "cleanup.policy" && c.Value != nil && strings.Contains(*c.Value, "compact") {
				out[r.ResourceName] = true
			}
		}
	}
	return out, nil
}

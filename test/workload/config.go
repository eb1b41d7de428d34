package workload

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Kind says how a topic is written.
type Kind int

const (
	// Plain is a producer without idempotence, as old clients are: a retry may double records.
	Plain Kind = iota
	// Idempotent is what every current client does by default.
	Idempotent
	// Transactional commits three transactions out of four and aborts the others.
	Transactional
	// OpenTransaction has one transaction that nobody ends, and records of an idempotent
	// producer that go on behind it, which read_committed consumers must not see.
	OpenTransaction
	// Compacted has few keys and settings under which the cleaner makes gaps within seconds.
	// Producers change now and then, so that empty batches stay behind.
	Compacted
	// CompactedTransactional is compacted and written in transactions.
	CompactedTransactional
	// Shapes has tombstones, headers, empty values, no keys, and timestamps that jump
	// between the past and the future.
	Shapes
	// AppendTime has timestamps set by the broker.
	AppendTime
)

var kindNames = [...]string{
	"plain", "idempotent", "transactional", "open-transaction",
	"compacted", "compacted-transactional", "shapes", "append-time",
}

func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return kindNames[k]
}

func (k Kind) compacted() bool { return k == Compacted || k == CompactedTransactional }

// AllKinds returns every kind.
func AllKinds() []Kind {
	kinds := make([]Kind, len(kindNames))
	for i := range kinds {
		kinds[i] = Kind(i)
	}
	return kinds
}

// Config of a load. Only Bootstrap has no default.
type Config struct {
	Bootstrap []string
	// Opts are added to every client: security, a dialer.
	Opts []kgo.Opt
	// Prefix of the topics' names, "load" by default.
	Prefix string
	// Kinds of topics; all if empty. Plain makes five topics, one for each codec, the others one each.
	Kinds []Kind
	// Partitions of each topic, 2 by default, and their replication factor, 1 by default.
	Partitions  int32
	Replication int16
	// Rate is the records per second of each topic, 100 by default; Rates are those of topics of a kind.
	Rate  int
	Rates map[Kind]int
	// ValueBytes is the size of a value, 200 by default.
	ValueBytes int
	// TuneCleaner makes the cluster's log cleaner look for work twice a second instead of
	// every 15 seconds, a cluster-wide dynamic config. Without it gaps take a while.
	TuneCleaner bool
	// TopicConfigs, if any, gives configs for the topics of a kind, over what the kind sets.
	TopicConfigs func(Kind) map[string]string
	Log          *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if len(c.Bootstrap) == 0 {
		return c, errors.New("workload: no bootstrap servers")
	}
	if c.Prefix == "" {
		c.Prefix = "load"
	}
	if len(c.Kinds) == 0 {
		c.Kinds = AllKinds()
	}
	for i, k := range c.Kinds {
		if k < 0 || int(k) >= len(kindNames) {
			return c, fmt.Errorf("workload: unknown kind %d", int(k))
		}
		if slices.Contains(c.Kinds[:i], k) {
			return c, fmt.Errorf("workload: kind %s twice", k)
		}
	}
	if c.Partitions == 0 {
		c.Partitions = 2
	}
	if c.Replication == 0 {
		c.Replication = 1
	}
	if c.Rate == 0 {
		c.Rate = 100
	}
	if c.ValueBytes == 0 {
		c.ValueBytes = 200
	}
	if c.Partitions < 0 || c.Replication < 0 || c.Rate < 0 || c.ValueBytes < 0 {
		return c, errors.New("workload: negative partitions, replication, rate or value size")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func (c Config) rate(k Kind) int {
	if r := c.Rates[k]; r > 0 {
		return r
	}
	return c.Rate
}

// topicSpec is one topic of a load.
type topicSpec struct {
	name    string
	kind    Kind
	codec   kgo.CompressionCodec
	configs map[string]string
}

func (c Config) specs() []topicSpec {
	codecs := []struct {
		name  string
		codec kgo.CompressionCodec
	}{
		{"none", kgo.NoCompression()},
		{"gzip", kgo.GzipCompression()},
		{"snappy", kgo.SnappyCompression()},
		{"lz4", kgo.Lz4Compression()},
		{"zstd", kgo.ZstdCompression()},
	}
	// Data must not go away while it is compared.
	keep := map[string]string{"retention.ms": "-1"}
	compact := map[string]string{
		"cleanup.policy":            "compact",
		"min.cleanable.dirty.ratio": "0.01",
		"min.compaction.lag.ms":     "0",
		// Brokers from 4.0 on refuse segments below 1 MiB, so time closes them.
		"segment.ms": "500",
		// Removed tombstones leave empty batches and gaps of their own.
		"delete.retention.ms": "1000",
	}

	var specs []topicSpec
	for _, kind := range c.Kinds {
		spec := topicSpec{name: c.Prefix + "-" + kind.String(), kind: kind, codec: kgo.SnappyCompression(), configs: keep}
		switch kind {
		case Plain:
			for _, co := range codecs {
				specs = append(specs, topicSpec{name: spec.name + "-" + co.name, kind: kind, codec: co.codec, configs: keep})
			}
			continue
		case Transactional:
			spec.codec = kgo.Lz4Compression()
		case Compacted:
			spec.codec, spec.configs = kgo.NoCompression(), compact
		case CompactedTransactional:
			spec.codec, spec.configs = kgo.ZstdCompression(), compact
		case Shapes:
			spec.configs = map[string]string{
				"retention.ms":                    "-1",
				"message.timestamp.after.max.ms":  "9223372036854775807",
				"message.timestamp.before.max.ms": "9223372036854775807",
				// Segments are closed by the timestamps of their records, which jump by decades here.
				"segment.ms": "9223372036854775807",
			}
		case AppendTime:
			spec.configs = map[string]string{"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
		}
		specs = append(specs, spec)
	}
	return specs
}

package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
	"github.com/cluster-mirroring/mirror-sidecar/rights"
)

// adminTimeout bounds one request to this cluster's brokers.
const adminTimeout = 15 * time.Second

// Destination changes and asks this cluster. Changes go to the controller.
type Destination struct {
	home    int32 // node id of the broker beside this sidecar
	virtual ids.Virtual
	img     *metadata.Image
	ctl     Controllers
	cl      *kgo.Client
	adm     *kadm.Client
	log     *slog.Logger

	known  atomic.Pointer[map[string]string] // defaults, for who does not wait
	asking singleflight.Group

	mu       sync.Mutex // guards the following
	defaults map[string]string
	asked    time.Time
	// The topic configs that this cluster knows, with their defaults, and since when.
	configKeys      map[string]string
	configKeysAsked time.Time
}

// defaultsAge is how long broker-wide values are believed: they change rarely, and are
// looked at for every topic at every pass.
const defaultsAge = 30 * time.Second

// NewDestination returns a Destination; opts reach the home broker.
func NewDestination(home int32, v ids.Virtual, img *metadata.Image, ctl Controllers, opts []kgo.Opt, log *slog.Logger) (*Destination, error) {
	cl, err := kgo.NewClient(append(slices.Clone(opts),
		kgo.ClientID("mirror-dst-admin-"+itoa(home)),
		kgo.RetryTimeout(adminTimeout),
		kgo.DialTimeout(3*time.Second),
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.DisableClientMetrics(),
	)...)
	if err != nil {
		return nil, fmt.Errorf("client for the home broker: %w", err)
	}
	return &Destination{home: home, virtual: v, img: img, ctl: ctl, cl: cl, adm: kadm.NewClient(cl), log: log}, nil
}

// Close ends its connections.
func (d *Destination) Close() { d.cl.Close() }

// ClusterID returns this cluster's id.
func (d *Destination) ClusterID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	m, err := d.adm.BrokerMetadata(ctx)
	if err != nil {
		return "", fmt.Errorf("ask the home broker for the cluster id: %w", err)
	}
	return m.Cluster, nil
}

// brokerDefault returns an effective broker-wide value as the home broker has it; while
// that is dead, as another one has it.
func (d *Destination) brokerDefault(ctx context.Context, keys ...string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	who := d.home
	if others := realBrokers(d.img, d.virtual); !alive(d.img, who) && len(others) > 0 {
		who = others[0]
	}
	configs, err := d.adm.DescribeBrokerConfigs(ctx, who)
	if err != nil {
		return nil, lacking(fmt.Errorf("ask broker %d for its configuration: %w", who, err), rights.OfCluster(rights.DescribeConfigs, ""))
	}
	out := map[string]string{}
	for _, c := range configs {
		if c.Err != nil {
			return nil, lacking(fmt.Errorf("ask broker %d for its configuration: %w", who, c.Err), rights.OfCluster(rights.DescribeConfigs, ""))
		}
		for _, kv := range c.Configs {
			if kv.Value != nil && slices.Contains(keys, kv.Key) {
				out[kv.Key] = *kv.Value
			}
		}
	}
	return out, nil
}

// intDefault returns a broker-wide number, 1 where there is none.
func (d *Destination) intDefault(ctx context.Context, key string) (int, error) {
	d.mu.Lock()
	m, asked := d.defaults, d.asked
	d.mu.Unlock()
	if m == nil || time.Since(asked) > defaultsAge {
		if err := d.once(ctx, "defaults", d.askDefaults); err != nil {
			return 0, err
		}
		m = *d.known.Load()
	}
	if n, err := strconv.Atoi(m[key]); err == nil && n >= 1 {
		return n, nil
	}
	return 1, nil
}

func (d *Destination) askDefaults(ctx context.Context) error {
	m, err := d.brokerDefault(ctx, configMinISR, "default.replication.factor", "num.partitions")
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.defaults, d.asked = m, time.Now()
	d.known.Store(&m)
	return nil
}

// records counts what a topic holds: the sum of its offsets, not of what is left after
// compaction.
func (d *Destination) records(ctx context.Context, topic string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	starts, err := d.adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return 0, lacking(fmt.Errorf("first offsets of topic %s: %w", topic, err), rights.OfTopic(rights.Describe, topic, ""))
	}
	ends, err := d.adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, lacking(fmt.Errorf("last offsets of topic %s: %w", topic, err), rights.OfTopic(rights.Describe, topic, ""))
	}
	var n int64
	for p, e := range ends[topic] {
		if s, ok := starts.Lookup(topic, p); ok {
			n += e.Offset - s.Offset
		}
	}
	return n, nil
}

func (d *Destination) createTopic(ctx context.Context, topic string, assignment [][]int32, configs map[string]string, validateOnly bool) error {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, -1, -1
	for p, replicas := range assignment {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(p), replicas
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	for _, k := range slices.Sorted(maps.Keys(configs)) {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		v := configs[k]
		c.Name, c.Value = k, &v
		t.Configs = append(t.Configs, c)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.ValidateOnly = validateOnly
	req.TimeoutMillis = int32(adminTimeout.Milliseconds())
	req.Topics = append(req.Topics, t)
	resp, err := d.ctl.Request(ctx, req)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	r, ok := resp.(*kmsg.CreateTopicsResponse)
	if !ok || len(r.Topics) != 1 {
		return fmt.Errorf("create topic %s: unexpected answer", topic)
	}
	if e := kerr.ErrorForCode(r.Topics[0].ErrorCode); e != nil {
		return lacking(fmt.Errorf("create topic %s: %w%s", topic, e, detail(r.Topics[0].ErrorMessage)), rights.OfTopic(rights.Create, topic, ""))
	}
	return nil
}

// alterConfigs sets the keys with a value and removes those without one.
func (d *Destination) alterConfigs(ctx context.Context, topic string, change map[string]*string) error {
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	for _, k := range slices.Sorted(maps.Keys(change)) {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = k, change[k]
		c.Op = kmsg.IncrementalAlterConfigOpSet
		if c.Value == nil {
			c.Op = kmsg.IncrementalAlterConfigOpDelete
		}
		res.Configs = append(res.Configs, c)
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, res)
	resp, err := d.ctl.Request(ctx, req)
	if err != nil {
		return fmt.Errorf("change configs of topic %s: %w", topic, err)
	}
	r, ok := resp.(*kmsg.IncrementalAlterConfigsResponse)
	if !ok || len(r.Resources) != 1 {
		return fmt.Errorf("change configs of topic %s: unexpected answer", topic)
	}
	if e := kerr.ErrorForCode(r.Resources[0].ErrorCode); e != nil {
		return lacking(fmt.Errorf("change configs of topic %s: %w%s", topic, e, detail(r.Resources[0].ErrorMessage)), rights.OfTopic(rights.AlterConfigs, topic, ""))
	}
	return nil
}

// reassign asks for new replicas of some partitions of a topic, in one request. A nil
// list cancels what is pending. It returns the partitions that were refused.
func (d *Destination) reassign(ctx context.Context, topic string, targets map[int32][]int32) error {
	t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	t.Topic = topic
	for _, p := range slices.Sorted(maps.Keys(targets)) {
		a := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		a.Partition, a.Replicas = p, targets[p]
		t.Partitions = append(t.Partitions, a)
	}
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = int32(adminTimeout.Milliseconds())
	req.Topics = append(req.Topics, t)
	resp, err := d.ctl.Request(ctx, req)
	if err != nil {
		return fmt.Errorf("reassign topic %s: %w", topic, err)
	}
	r, ok := resp.(*kmsg.AlterPartitionAssignmentsResponse)
	if !ok {
		return fmt.Errorf("reassign topic %s: unexpected answer", topic)
	}
	if e := kerr.ErrorForCode(r.ErrorCode); e != nil {
		return lacking(fmt.Errorf("reassign topic %s: %w%s", topic, e, detail(r.ErrorMessage)), rights.OfCluster(rights.Alter, ""))
	}
	var errs []error
	for _, rt := range r.Topics {
		for _, p := range rt.Partitions {
			if e := kerr.ErrorForCode(p.ErrorCode); e != nil && !errors.Is(e, kerr.NoReassignmentInProgress) {
				errs = append(errs, fmt.Errorf("reassign %s-%d to %v: %w%s", topic, p.Partition, targets[p.Partition], e, detail(p.ErrorMessage)))
			}
		}
	}
	return errors.Join(errs...)
}

// electPreferred asks for the first replicas as leaders. That one need not be elected, or
// cannot be at present, is no error: the next look decides again.
func (d *Destination) electPreferred(ctx context.Context, topic string, partitions []int32) error {
	return d.elect(ctx, topic, partitions, electionPreferred)
}

// electUncleanly asks for any leader that is alive where none of those that have all data is.
func (d *Destination) electUncleanly(ctx context.Context, topic string, partitions []int32) error {
	return d.elect(ctx, topic, partitions, electionUnclean)
}

// Kafka's types of elections.
const (
	electionPreferred int8 = 0
	electionUnclean   int8 = 1
)

func (d *Destination) elect(ctx context.Context, topic string, partitions []int32, kind int8) error {
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType = kind
	req.TimeoutMillis = int32(adminTimeout.Milliseconds())
	t := kmsg.NewElectLeadersRequestTopic()
	t.Topic, t.Partitions = topic, partitions
	req.Topics = append(req.Topics, t)
	resp, err := d.ctl.Request(ctx, req)
	if err != nil {
		return fmt.Errorf("elect leaders of topic %s: %w", topic, err)
	}
	r, ok := resp.(*kmsg.ElectLeadersResponse)
	if !ok {
		return fmt.Errorf("elect leaders of topic %s: unexpected answer", topic)
	}
	if e := kerr.ErrorForCode(r.ErrorCode); e != nil {
		return lacking(fmt.Errorf("elect leaders of topic %s: %w", topic, e), rights.OfCluster(rights.Alter, ""))
	}
	for _, rt := range r.Topics {
		for _, p := range rt.Partitions {
			if e := kerr.ErrorForCode(p.ErrorCode); e != nil {
				d.log.Debug("leader not elected", "topic", topic, "partition", p.Partition, "err", e)
			}
		}
	}
	return nil
}

// logEnds asks real replicas for their own log end, whoever leads: a debugging replica
// id gets it from followers too. Replicas that do not answer are left out.
func (d *Destination) logEnds(ctx context.Context, topic string, partition int32, replicas []int32) map[int32]int64 {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out := map[int32]int64{}
	for _, b := range replicas {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -2
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, -1, -1
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		resp, err := d.cl.Broker(int(b)).RetriableRequest(ctx, req)
		if err != nil {
			d.log.Warn("log end of a replica is not known", "topic", topic, "partition", partition, "broker", b, "err", err)
			continue
		}
		if r, ok := resp.(*kmsg.ListOffsetsResponse); ok && len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 && r.Topics[0].Partitions[0].ErrorCode == 0 {
			out[b] = r.Topics[0].Partitions[0].Offset
		}
	}
	return out
}

// abortOpenTransactions ends every mirrored transaction that is open in a partition led
// by a real broker: its producer lives at the source and will never end it here. Only
// tagged producer ids are touched; version 1 of the request writes a marker with the
// producer's own epoch (a version 2 marker would need a higher one).
//
// marked says that none is open, but that a marker was written, perhaps by an earlier try whose answer
// was lost: it may be on this broker only, and go with it (see replicated).
func (d *Destination) abortOpenTransactions(ctx context.Context, topic string, partition, leader int32) (n int, marked bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	b := d.cl.Broker(int(leader))
	dp := kmsg.NewPtrDescribeProducersRequest()
	dt := kmsg.NewDescribeProducersRequestTopic()
	dt.Topic, dt.Partitions = topic, []int32{partition}
	dp.Topics = append(dp.Topics, dt)
	resp, err := b.RetriableRequest(ctx, dp)
	if err != nil {
		return 0, false, fmt.Errorf("producers of %s-%d at broker %d: %w", topic, partition, leader, err)
	}
	r, ok := resp.(*kmsg.DescribeProducersResponse)
	if !ok || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return 0, false, fmt.Errorf("producers of %s-%d at broker %d: unexpected answer", topic, partition, leader)
	}
	answer := r.Topics[0].Partitions[0]
	if e := kerr.ErrorForCode(answer.ErrorCode); e != nil {
		return 0, false, lacking(fmt.Errorf("producers of %s-%d at broker %d: %w%s", topic, partition, leader, e, detail(answer.ErrorMessage)), rights.OfTopic(rights.Read, topic, ""))
	}
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	for _, p := range answer.ActiveProducers {
		if p.ProducerID < 0 || batch.LocalRange(p.ProducerID) {
			continue
		}
		if p.CurrentTxnStartOffset < 0 {
			marked = marked || p.CoordinatorEpoch >= 0 // a producer that only is idempotent has none
			continue
		}
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch, m.Committed = p.ProducerID, int16(p.ProducerEpoch), false
		// A transaction whose first marker is still to come has no coordinator epoch yet.
		m.CoordinatorEpoch = max(p.CoordinatorEpoch, 0)
		mt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		mt.Topic, mt.Partitions = topic, []int32{partition}
		m.Topics = append(m.Topics, mt)
		req.Markers = append(req.Markers, m)
	}
	if len(req.Markers) == 0 {
		return 0, marked, nil
	}
	// Not sent twice by itself: whether an answer that was lost came with a marker is seen by
	// who asks for the producers again.
	resp, err = b.Request(ctx, &pinned{Request: req, version: 1})
	if err != nil {
		return 0, false, fmt.Errorf("abort transactions of %s-%d at broker %d: %w", topic, partition, leader, err)
	}
	w, ok := resp.(*kmsg.WriteTxnMarkersResponse)
	if !ok {
		return 0, false, fmt.Errorf("abort transactions of %s-%d at broker %d: unexpected answer", topic, partition, leader)
	}
	var errs []error
	for _, m := range w.Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if e := kerr.ErrorForCode(p.ErrorCode); e != nil {
					errs = append(errs, lacking(fmt.Errorf("abort the transaction of producer %d in %s-%d: %w", m.ProducerID, topic, partition, e), rights.OfCluster(rights.ClusterAction, "")))
				}
			}
		}
	}
	return len(req.Markers), false, errors.Join(errs...)
}

// lacking says which right of the sidecars is missing, if that is what an error is about.
func lacking(err error, n rights.Need) error { return rights.Lacking(err, rights.Sidecars, n) }

// pinned sends a request in no later version than the given one.
type pinned struct {
	kmsg.Request
	version int16
}

func (p *pinned) MaxVersion() int16 { return min(p.version, p.Request.MaxVersion()) }

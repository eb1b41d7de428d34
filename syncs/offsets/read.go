package offsets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// groupsAtATime bounds one question about offsets: its answer has every partition that each
	// group has ever read.
	groupsAtATime = 200
	// topicsAtATime bounds one question about the ends of logs.
	topicsAtATime = 500
)

// List returns the groups of a cluster by name, without their offsets. Brokers that skip picks are
// not asked; nil picks none. With an error the list may lack groups of brokers that did not answer.
func List(ctx context.Context, cl *kgo.Client, skip func(broker int32) bool) (map[string]Group, error) {
	about, err := kadm.NewClient(cl).BrokerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]Group{}
	var errs []error
	for _, b := range about.Brokers {
		if skip != nil && skip(b.NodeID) {
			continue
		}
		resp, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, cl.Broker(int(b.NodeID)))
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("broker %d: %w", b.NodeID, err))
			continue
		}
		for _, g := range resp.Groups {
			t := Type(strings.ToLower(g.GroupType))
			if t == "" || t == "unknown" {
				t = Classic
			}
			out[g.Group] = Group{Name: g.Group, Type: t, State: g.GroupState, ProtocolType: g.ProtocolType}
		}
	}
	return out, bounded(errs)
}

// Fetch fills in the offsets of groups. Those that cannot be read are in errs, by name.
func Fetch(ctx context.Context, cl *kgo.Client, groups []Group) (filled []Group, errs map[string]error) {
	errs = map[string]error{}
	byType := map[bool][]string{}
	for _, g := range groups {
		byType[g.Type == Share] = append(byType[g.Type == Share], g.Name)
	}
	found := map[string]map[Partition]Position{}
	for names := range slices.Chunk(byType[false], groupsAtATime) {
		fetchCommitted(ctx, cl, names, found, errs)
	}
	for names := range slices.Chunk(byType[true], groupsAtATime) {
		fetchShare(ctx, cl, names, found, errs)
	}
	for _, g := range groups {
		if errs[g.Name] == nil {
			g.Positions = found[g.Name]
			filled = append(filled, g)
		}
	}
	return filled, errs
}

func fetchCommitted(ctx context.Context, cl *kgo.Client, names []string, found map[string]map[Partition]Position, errs map[string]error) {
	fetched := kadm.NewClient(cl).FetchManyOffsets(ctx, names...)
	for _, name := range names {
		r, ok := fetched[name]
		if !ok {
			errs[name] = errors.New("no answer about its offsets")
			continue
		}
		if r.Err != nil {
			if !errors.Is(r.Err, kerr.GroupIDNotFound) { // else it has none
				errs[name] = r.Err
			}
			continue
		}
		positions := map[Partition]Position{}
		r.Fetched.Each(func(o kadm.OffsetResponse) {
			switch {
			case o.Err != nil:
				errs[name] = fmt.Errorf("%s-%d: %w", o.Topic, o.Partition, o.Err)
			case o.At >= 0:
				positions[Partition{o.Topic, o.Partition}] = Position{o.At, o.Metadata}
			}
		})
		found[name] = positions
	}
}

// fetchShare asks for where share groups begin to read. What was acquired and delivered beyond
// that cannot be carried over.
func fetchShare(ctx context.Context, cl *kgo.Client, names []string, found map[string]map[Partition]Position, errs map[string]error) {
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	for _, name := range names {
		g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
		g.GroupID = name
		req.Groups = append(req.Groups, g)
	}
	for _, shard := range cl.RequestSharded(ctx, req) {
		asked, ok := shard.Req.(*kmsg.DescribeShareGroupOffsetsRequest)
		if !ok {
			asked = req
		}
		resp, ok := shard.Resp.(*kmsg.DescribeShareGroupOffsetsResponse)
		if shard.Err != nil || !ok {
			for _, g := range asked.Groups {
				errs[g.GroupID] = cmpErr(shard.Err, "unexpected answer about its offsets")
			}
			continue
		}
		for _, g := range resp.Groups {
			takeShare(g, found, errs)
		}
	}
	for _, name := range names {
		if found[name] == nil && errs[name] == nil {
			errs[name] = errors.New("no answer about its offsets")
		}
	}
}

func takeShare(g kmsg.DescribeShareGroupOffsetsResponseGroup, found map[string]map[Partition]Position, errs map[string]error) {
	positions := map[Partition]Position{}
	found[g.GroupID] = positions
	if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
		if !errors.Is(err, kerr.GroupIDNotFound) { // else it has none
			errs[g.GroupID] = err
		}
		return
	}
	for _, t := range g.Topics {
		for _, p := range t.Partitions {
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case err != nil:
				errs[g.GroupID] = fmt.Errorf("%s-%d: %w", t.Topic, p.Partition, err)
			case p.StartOffset >= 0:
				positions[Partition{t.Topic, p.Partition}] = Position{At: p.StartOffset}
			}
		}
	}
}

func cmpErr(err error, otherwise string) error {
	if err != nil {
		return err
	}
	return errors.New(otherwise)
}

// Ranges returns what can be committed for the partitions of topics. A partition whose leader does
// not answer is left out, and named in the error.
func Ranges(ctx context.Context, cl *kgo.Client, topics []string) (map[Partition]Range, error) {
	adm := kadm.NewClient(cl)
	out := map[Partition]Range{}
	var errs []error
	for chunk := range slices.Chunk(topics, topicsAtATime) {
		starts, err := adm.ListStartOffsets(ctx, chunk...)
		if err != nil {
			errs = append(errs, fmt.Errorf("where logs begin: %w", err))
		}
		ends, err := adm.ListEndOffsets(ctx, chunk...)
		if err != nil {
			errs = append(errs, fmt.Errorf("where logs end: %w", err))
		}
		ends.Each(func(end kadm.ListedOffset) {
			start, ok := starts.Lookup(end.Topic, end.Partition)
			switch {
			case end.Err != nil:
				errs = append(errs, fmt.Errorf("the end of %s-%d: %w", end.Topic, end.Partition, end.Err))
			case !ok:
			case start.Err != nil:
				errs = append(errs, fmt.Errorf("the start of %s-%d: %w", end.Topic, end.Partition, start.Err))
			case end.Offset >= 0 && start.Offset >= 0:
				// The start may have moved on between the two questions.
				out[Partition{end.Topic, end.Partition}] = Range{start.Offset, max(start.Offset, end.Offset)}
			}
		})
	}
	return out, bounded(errs)
}

// bounded joins the first errors: with a dead broker every partition has one.
func bounded(errs []error) error {
	const shown = 3
	if len(errs) > shown {
		errs = append(slices.Clone(errs[:shown]), fmt.Errorf("and %d more", len(errs)-shown))
	}
	return errors.Join(errs...)
}

package offsets

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/rights"
)

// movesAtATime bounds one commit.
const movesAtATime = 1000

// ErrActive says that a group has got members since it was looked at.
var ErrActive = errors.New("active here: members have joined it meanwhile")

// Commit commits offsets of one group, as nobody's member, which brokers take for groups without
// members only. It returns the moves that are done, also with an error.
func Commit(ctx context.Context, cl *kgo.Client, g Group, moves []Move) (done []Move, err error) {
	commit := commitOffsets
	if g.Type == Share {
		commit = alterShare
	}
	for chunk := range slices.Chunk(moves, movesAtATime) {
		d, err := commit(ctx, cl, g.Name, chunk)
		done = append(done, d...)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func commitOffsets(ctx context.Context, cl *kgo.Client, group string, moves []Move) (done []Move, err error) {
	all := kadm.Offsets{}
	for _, m := range moves {
		all.Add(kadm.Offset{Topic: m.Topic, Partition: m.Partition.Partition, At: m.To, LeaderEpoch: m.LeaderEpoch, Metadata: m.Metadata})
	}
	resp, err := kadm.NewClient(cl).CommitOffsets(ctx, group, all)
	if err != nil {
		return nil, active(err)
	}
	var errs []error
	for _, m := range moves {
		r, ok := resp.Lookup(m.Topic, m.Partition.Partition)
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%s-%d: no answer", m.Topic, m.Partition.Partition))
		case errors.Is(active(r.Err), ErrActive):
			return done, ErrActive
		case r.Err != nil:
			errs = append(errs, fmt.Errorf("%s-%d: %w", m.Topic, m.Partition.Partition, lacking(r.Err, group, m.Topic)))
		default:
			done = append(done, m)
		}
	}
	return done, bounded(errs)
}

// alterShare sets where a share group begins to read. It has no epochs, and no metadata.
func alterShare(ctx context.Context, cl *kgo.Client, group string, moves []Move) (done []Move, err error) {
	req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	req.GroupID = group
	for _, m := range moves {
		p := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
		p.Partition, p.StartOffset = m.Partition.Partition, m.To
		n := len(req.Topics)
		if n == 0 || req.Topics[n-1].Topic != m.Topic {
			t := kmsg.NewAlterShareGroupOffsetsRequestTopic()
			t.Topic = m.Topic
			req.Topics = append(req.Topics, t)
			n++
		}
		req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, p)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, active(lacking(withMessage(err, resp.ErrorMessage), group, "*"))
	}
	failed := map[Partition]error{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			failed[Partition{t.Topic, p.Partition}] = withMessage(kerr.ErrorForCode(p.ErrorCode), p.ErrorMessage)
		}
	}
	var errs []error
	for _, m := range moves {
		err, ok := failed[m.Partition]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%s-%d: no answer", m.Topic, m.Partition.Partition))
		case err != nil:
			errs = append(errs, fmt.Errorf("%s-%d: %w", m.Topic, m.Partition.Partition, lacking(err, group, m.Topic)))
		default:
			done = append(done, m)
		}
	}
	return done, bounded(errs)
}

// lacking says which right is missing, if that is what an error is about: commits need READ on the group
// and on the topic.
func lacking(err error, group, topic string) error {
	need := rights.OfGroup(rights.Read, group, "")
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		need = rights.OfTopic(rights.Read, topic, "")
	}
	return rights.Lacking(err, rights.Sidecars, need)
}

func withMessage(err error, message *string) error {
	if err == nil || message == nil || *message == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, *message)
}

// active turns what brokers say of a group that has members into ErrActive.
func active(err error) error {
	for _, known := range []error{kerr.UnknownMemberID, kerr.NonEmptyGroup, kerr.StaleMemberEpoch, kerr.IllegalGeneration, kerr.RebalanceInProgress} {
		if errors.Is(err, known) {
			return ErrActive
		}
	}
	return err
}

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// described is one partition. Numbers that are not known are -1.
type described struct {
	Mirror            string `json:"mirror"`
	Topic             string `json:"topic"`
	Partition         int32  `json:"partition"`
	SourceOffset      int64  `json:"sourceOffset"`
	DestinationOffset int64  `json:"destinationOffset"`
	Lag               int64  `json:"lag"`
	LagMs             int64  `json:"lagMs"`
	State             string `json:"state"`
	Detail            string `json:"detail,omitempty"`
	StateSince        int64  `json:"stateSince"`
	Leader            int32  `json:"leader"`
	LastMirrorEpoch   int32  `json:"lastMirrorEpoch"`
	LastMirrorOffset  int64  `json:"lastMirrorOffset"`
	RetryAttempt      int16  `json:"retryAttempt"`
	ErrorMessage      string `json:"errorMessage,omitempty"`
}

func partitionLag(p protocol.DescribedPartition) int64 {
	if p.SourceOffset < 0 || p.DestinationOffset < 0 {
		return -1
	}
	return max(p.SourceOffset-p.DestinationOffset, 0)
}

func (o *options) describe(ctx context.Context, cl *kgo.Client, out io.Writer) error {
	mirrors, err := o.fetchMirrors(ctx, cl)
	if err != nil {
		return err
	}
	if o.policies {
		return o.writePolicies(out, mirrors)
	}
	rows, err := o.describedRows(mirrors)
	if err != nil {
		return err
	}
	switch {
	case o.json:
		return writeJSON(out, rows)
	case len(mirrors) == 0:
		_, err := fmt.Fprintln(out, "No mirrors found.")
		return err
	case o.failed:
		return writeFailed(out, rows)
	}
	return writeDescribed(out, rows)
}

// describedRows are the partitions that were asked for. A name that is no topic of a mirror is an error.
func (o *options) describedRows(mirrors []protocol.DescribedMirror) ([]described, error) {
	pick, err := newSelector(o.topics)
	if err != nil {
		return nil, usageError{err}
	}
	rows := []described{}
	found := map[string]bool{}
	for _, m := range mirrors {
		for _, t := range m.Topics {
			if !pick.match(t.TopicName) {
				continue
			}
			found[t.TopicName] = true
			parts := t.Partitions
			if len(parts) == 0 { // not created here yet
				p := protocol.NewDescribedPartition()
				p.PartitionIndex = -1
				parts = append(parts, p)
			}
			for _, p := range parts {
				if o.failed && coordinator.State(p.State) != coordinator.Failed {
					continue
				}
				rows = append(rows, described{
					m.MirrorName, t.TopicName, p.PartitionIndex, p.SourceOffset, p.DestinationOffset, partitionLag(p), p.LagMs,
					coordinator.State(p.State).String(), deref(p.Detail), p.StateSince, p.LeaderID,
					p.LastMirrorEpoch, p.LastMirrorOffset, p.RetryAttempt, deref(p.ErrorMessage),
				})
			}
		}
	}
	for n := range pick.names {
		if !found[n] {
			return nil, fmt.Errorf("topic %s is in no mirror that was asked for", n)
		}
	}
	if len(found) == 0 && !pick.all {
		return nil, fmt.Errorf("no mirrored topic matches %s", strings.Join(o.topics, ","))
	}
	return rows, nil
}

func writeFailed(out io.Writer, rows []described) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MIRROR\tTOPIC\tPARTITION\tRETRY\tERROR")
	for _, r := range rows {
		retry := fmt.Sprint(r.RetryAttempt)
		if r.RetryAttempt < 0 {
			retry = "NonRetryable"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Mirror, r.Topic, number(int64(r.Partition)), retry, dash(oneLine(r.ErrorMessage)))
	}
	return w.Flush()
}

func writeDescribed(out io.Writer, rows []described) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MIRROR\tTOPIC\tPARTITION\tSOURCE-OFFSET\tDESTINATION-OFFSET\tLAG\tSTATE")
	for _, r := range rows {
		state := r.State
		if r.Detail != "" {
			state += " (" + r.Detail + ")"
		}
		if r.ErrorMessage != "" {
			state += ": " + oneLine(r.ErrorMessage)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Mirror, r.Topic, number(int64(r.Partition)),
			number(r.SourceOffset), number(r.DestinationOffset), number(r.Lag), state)
	}
	return w.Flush()
}

// oneLine keeps a row of a table a row.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

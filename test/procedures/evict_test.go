package procedures

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// The hooks of the pages that take mirroring away.

func (w *world) endSidecars(ctx context.Context, _ []string) error {
	var errs []error
	for _, c := range w.dst.Sidecars {
		errs = append(errs, c.Terminate(ctx))
	}
	return errors.Join(errs...)
}

func (w *world) endSidecar(ctx context.Context, args []string) error {
	for _, c := range w.dst.Sidecars {
		if fmt.Sprint(c.Broker) == args[0] {
			return c.Terminate(ctx)
		}
	}
	return fmt.Errorf("there is no sidecar %s", args[0])
}

func (w *world) killSidecars(context.Context, []string) error {
	var errs []error
	for _, c := range w.dst.Sidecars {
		errs = append(errs, c.Kill())
	}
	return errors.Join(errs...)
}

func (w *world) startSidecars(ctx context.Context, _ []string) error { return w.dst.StartSidecars(ctx) }

// ordinary looks whether a topic is what it is without mirrors, and holds so many records.
func (w *world) ordinary(ctx context.Context, args []string) error {
	adm, err := admin(w.dst)
	if err != nil {
		return err
	}
	defer adm.Close()
	topic := args[0]
	topics, err := adm.ListTopics(ctx, topic)
	if err == nil {
		err = topics[topic].Err
	}
	if err != nil {
		return err
	}
	for _, p := range topics[topic].Partitions.Sorted() {
		if slices.ContainsFunc(append(p.Replicas, p.Leader), func(b int32) bool { return b < 0 || b > stack.VirtualOffset }) || len(p.Replicas) != len(w.dst.Cluster.Brokers()) {
			return fmt.Errorf("%s-%d is led by %d, replicas %v", topic, p.Partition, p.Leader, p.Replicas)
		}
	}
	configs, err := adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	for _, c := range configs[0].Configs {
		lock := []string{"max.message.bytes", "min.insync.replicas", "unclean.leader.election.enable", "remote.storage.enable"}
		if slices.Contains(lock, c.Key) && c.Source == kmsg.ConfigSourceDynamicTopicConfig {
			return fmt.Errorf("%s still has %s=%s", topic, c.Key, *c.Value)
		}
	}
	cl, err := w.dst.Cluster.Client(append(quick(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	var want int
	if _, err := fmt.Sscan(args[1], &want); err != nil {
		return err
	}
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return err
	}
	var have int64
	ends.Each(func(o kadm.ListedOffset) { have += o.Offset })
	if have < int64(want) {
		return fmt.Errorf("%s ends at %d in sum, want %d", topic, have, want)
	}
	// It can be written to: what is written here is not in the count of the next look.
	return await(ctx, func() error {
		return cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("written after it was handed back")}).FirstErr()
	})
}

// noVirtualBrokers looks whether the controllers know no virtual broker any more.
func (w *world) noVirtualBrokers(ctx context.Context, _ []string) error {
	cl, err := w.dst.Cluster.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType, req.IncludeFencedBrokers = 1, true
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return err
	}
	for _, b := range resp.Brokers {
		if b.NodeID > stack.VirtualOffset {
			return fmt.Errorf("virtual broker %d is still registered", b.NodeID)
		}
	}
	return nil
}

// mirroredAgain starts a topic anew, and waits until it is mirrored. What was written here since
// goes.
func (w *world) mirroredAgain(ctx context.Context, args []string) error {
	_, err := w.dst.CLI(ctx, "--start", "--mirror", args[0], "--topics", args[1], "--allow-truncate", "--wait")
	return err
}

// stillMirrored looks whether everything that a mirror has goes on, without the broker that left.
func (w *world) stillMirrored(ctx context.Context, args []string) error {
	return w.describes(ctx, args[0], "MIRRORING")
}

// staysStopped looks whether sidecars take a hand-back by hand for the stop that it is.
func (w *world) staysStopped(ctx context.Context, args []string) error {
	return w.describes(ctx, args[0], "STOPPED")
}

// describes waits until all partitions of a mirror are in a state.
func (w *world) describes(ctx context.Context, mirror, state string) error {
	return await(ctx, func() error {
		out, err := w.dst.CLI(ctx, "--describe", "--mirror", mirror)
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")[1:]
		if len(lines) == 0 {
			return errors.New("nothing is described")
		}
		for _, l := range lines {
			// What happened to the data before, such as what a recovery let go, stands behind the state.
			if f := strings.Fields(l); len(f) < 7 || f[6] != state {
				return errors.New(l)
			}
		}
		return nil
	})
}

// mirrored creates a mirror and starts a topic.
func (w *world) mirrored(ctx context.Context, args []string) error {
	file, err := w.mirrorConfig(args[0])
	if err != nil {
		return err
	}
	for _, line := range []string{
		"--create --mirror " + args[0] + " --mirror-config " + file,
		"--start --wait --mirror " + args[0] + " --topics " + args[1],
	} {
		if _, err := w.dst.CLI(ctx, strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// openTransaction leaves a transaction open at the source, and returns when its record is here.
func (w *world) openTransaction(ctx context.Context, args []string) error {
	cl, err := kgo.NewClient(append(quick(), kgo.SeedBrokers(w.src.Proxies()...), kgo.TransactionalID("left-open"),
		kgo.TransactionTimeout(10*time.Minute), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	r := &kgo.Record{Topic: args[0], Value: []byte("in a transaction that nobody ends")}
	if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
		return err
	}
	adm, err := admin(w.dst)
	if err != nil {
		return err
	}
	defer adm.Close()
	return await(ctx, func() error {
		ends, err := adm.ListEndOffsets(ctx, args[0])
		if err == nil {
			err = ends.Error()
		}
		if err != nil {
			return err
		}
		if o, _ := ends.Lookup(args[0], r.Partition); o.Offset <= r.Offset {
			return fmt.Errorf("%s-%d ends at %d, at the source at %d", args[0], r.Partition, o.Offset, r.Offset+1)
		}
		return nil
	})
}

// ledByReal returns when no virtual broker leads anything any more.
func (w *world) ledByReal(ctx context.Context, _ []string) error {
	adm, err := admin(w.dst)
	if err != nil {
		return err
	}
	defer adm.Close()
	return await(ctx, func() error {
		topics, err := adm.ListTopics(ctx)
		if err != nil {
			return err
		}
		for _, t := range topics {
			for _, p := range t.Partitions {
				if p.Leader < 0 || p.Leader > stack.VirtualOffset {
					return fmt.Errorf("%s-%d is led by %d", t.Topic, p.Partition, p.Leader)
				}
			}
		}
		return nil
	})
}

// readsCommitted reads a topic as consumers of committed records do: no transaction holds them up.
func (w *world) readsCommitted(ctx context.Context, args []string) error {
	adm, err := admin(w.dst)
	if err != nil {
		return err
	}
	defer adm.Close()
	all, err := adm.ListEndOffsets(ctx, args[0])
	if err != nil {
		return err
	}
	committed, err := adm.ListCommittedOffsets(ctx, args[0])
	if err != nil {
		return err
	}
	for p, o := range all[args[0]] {
		if c, _ := committed.Lookup(args[0], p); c.Offset != o.Offset {
			return fmt.Errorf("%s-%d ends at %d, and readers of committed records see it up to %d", args[0], p, o.Offset, c.Offset)
		}
	}
	return nil
}

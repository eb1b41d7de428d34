package procedures

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// TestLastBroker loses a broker for good, which needs a cluster of its own.
func TestLastBroker(t *testing.T) {
	if os.Getenv(envLong) == "" {
		t.Skip("only with " + envLong)
	}
	w := newWorld(t, false, shape{brokers: 3, controllers: 1})
	w.execute(t, "lastbroker", nil)
}

// The hooks of the page about the last broker.

// brokersDie kills brokers one after the other; in between the mirror goes on.
func (w *world) brokersDie(ctx context.Context, args []string) error {
	for i, arg := range args {
		id, err := brokerID(arg)
		if err != nil {
			return err
		}
		for _, wr := range w.writers {
			if err := wr.more(ctx, 50); err != nil {
				return err
			}
		}
		if err := w.dst.Cluster.Node(id).Kill(); err != nil {
			return err
		}
		if i == len(args)-1 {
			break
		}
		if err := w.eachPartition(ctx, "", func(p kadm.PartitionDetail) bool { return !slices.Contains(p.ISR, id) }); err != nil {
			return fmt.Errorf("broker %d is dead, and still in sync: %w", id, err)
		}
	}
	return nil
}

func (w *world) startBroker(ctx context.Context, args []string) error {
	id, err := brokerID(args[0])
	if err != nil {
		return err
	}
	return w.dst.Cluster.Node(id).Start(ctx)
}

// restartSidecars starts all sidecars anew, which then know nothing but what the clusters tell them: one
// that lives on has what its last follower had, and waits for nobody.
func (w *world) restartSidecars(ctx context.Context, _ []string) error {
	for _, c := range w.dst.Sidecars {
		if err := c.Kill(); err != nil {
			return err
		}
	}
	for _, c := range w.dst.Sidecars {
		if err := c.Launch(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waitsFor returns when describe says that a broker is waited for.
func (w *world) waitsFor(ctx context.Context, args []string) error {
	return await(ctx, func() error {
		// The first sidecars' brokers may be dead.
		out, err := w.dst.CLIAt(ctx, strings.Join(w.dst.Proxies(), ","), "--describe", "--mirror", args[0])
		if err != nil && strings.Contains(err.Error(), "bring back broker "+args[1]) {
			return nil
		}
		return fmt.Errorf("%w\n%s", cmp.Or(err, errors.New("it is described")), out)
	})
}

// inSync returns when brokers are in sync: of a topic, or, if none is named, of all partitions of
// Kafka's own topics and the mirrors' state.
func (w *world) inSync(ctx context.Context, args []string) error {
	topic := "__"
	if _, err := brokerID(args[0]); err != nil {
		topic, args = args[0], args[1:]
	}
	return w.eachPartition(ctx, topic, func(p kadm.PartitionDetail) bool {
		return !slices.ContainsFunc(args, func(a string) bool {
			id, err := brokerID(a)
			return err != nil || !slices.Contains(p.ISR, id)
		})
	})
}

// eachPartition returns when all partitions of the topics that begin so are as they have to be.
func (w *world) eachPartition(ctx context.Context, topics string, is func(kadm.PartitionDetail) bool) error {
	adm, err := admin(w.dst)
	if err != nil {
		return err
	}
	defer adm.Close()
	return await(ctx, func() error {
		all, err := adm.ListTopicsWithInternal(ctx)
		if err != nil {
			return err
		}
		seen := false
		for _, t := range all.Sorted() {
			if !strings.HasPrefix(t.Topic, topics) {
				continue
			}
			for _, p := range t.Partitions.Sorted() {
				seen = true
				if !is(p) {
					return fmt.Errorf("%s-%d is led by %d, in sync %v of %v", t.Topic, p.Partition, p.Leader, p.ISR, p.Replicas)
				}
			}
		}
		if !seen {
			return fmt.Errorf("there is no topic %s*", topics)
		}
		return nil
	})
}

// writtenOnceHere ends the writer at the source, and looks here for all that it has written.
func (w *world) writtenOnceHere(ctx context.Context, args []string) error {
	w.writers[args[0]].end()
	return await(ctx, func() error { return w.writtenOnce(ctx, args) })
}

func brokerID(arg string) (int32, error) {
	id, err := strconv.ParseInt(arg, 10, 32)
	return int32(id), err
}

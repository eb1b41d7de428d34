package procedures

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

const (
	partitions = 2
	perTopic   = 1000
)

type hookFunc func(ctx context.Context, args []string) error

// hooks are what pages may ask the test for.
func (w *world) hooks() map[string]hookFunc {
	return map[string]hookFunc{
		"topics":            w.topics,
		"group":             w.group,
		"copied":            w.copied,
		"kill source":       w.killSource,
		"holds":             w.holds,
		"start writer":      w.startWriter,
		"move writer":       w.moveWriter,
		"written once":      w.writtenOnce,
		"parted":            w.parted,
		"start mirrormaker": w.startMirrorMaker,
		"stop mirrormaker":  w.stopMirrorMaker,

		"end sidecars":     w.endSidecars,
		"end sidecar":      w.endSidecar,
		"kill sidecars":    w.killSidecars,
		"start sidecars":   w.startSidecars,
		"ordinary":         w.ordinary,
		"no virtual":       w.noVirtualBrokers,
		"mirrored again":   w.mirroredAgain,
		"still mirrored":   w.stillMirrored,
		"open transaction": w.openTransaction,
		"reads committed":  w.readsCommitted,
		"mirrored":         w.mirrored,
		"configure":        w.configure,
		"led by":           w.ledByReal,
		"stays stopped":    w.staysStopped,

		"brokers die":      w.brokersDie,
		"restart sidecars": w.restartSidecars,
		"start broker":     w.startBroker,
		"waits for":        w.waitsFor,
		"in sync":          w.inSync,
		"all here":         w.writtenOnceHere,
	}
}

// findHook finds the hook that words begin with, and what runs it.
func findHook(known map[string]hookFunc, words []string) (string, func(context.Context) error) {
	for n := min(2, len(words)); n > 0; n-- {
		name := strings.Join(words[:n], " ")
		if f, ok := known[name]; ok {
			return name, func(ctx context.Context) error { return f(ctx, words[n:]) }
		}
	}
	return "", nil
}

// topics creates topics at the source, with records.
func (w *world) topics(ctx context.Context, names []string) error {
	cl, err := w.src.Cluster.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, n := range names {
		if err := createTopic(ctx, cl, n, partitions); err != nil {
			return err
		}
		if err := produce(ctx, w.src.Direct(), n, partitions, perTopic, "source"); err != nil {
			return err
		}
	}
	return nil
}

func createTopic(ctx context.Context, cl *kgo.Client, name string, partitions int32) error {
	r, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, -1, nil, name)
	if err == nil {
		err = r.Err
	}
	if err == nil {
		err = harness.AwaitTopic(ctx, cl, name)
	}
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

// group commits an offset for all partitions: of a topic of the source, or, if there is none, of
// the destination.
func (w *world) group(ctx context.Context, args []string) error {
	group, topic := args[0], args[1]
	at, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	for _, s := range []*stack.Stack{w.src, w.dst} {
		adm, err := admin(s)
		if err != nil {
			return err
		}
		defer adm.Close()
		if _, err := adm.ListTopics(ctx, topic); err != nil {
			return err
		}
		if t, err := adm.ListTopics(ctx, topic); err != nil || t[topic].Err != nil {
			continue
		}
		offsets := kadm.Offsets{}
		for p := range int32(partitions) {
			offsets.AddOffset(topic, p, at, -1)
		}
		return adm.CommitAllOffsets(ctx, group, offsets)
	}
	return fmt.Errorf("no cluster has topic %s", topic)
}

// copied waits until a group stands at an offset in all partitions of a topic here.
func (w *world) copied(ctx context.Context, args []string) error {
	group, topic := args[0], args[1]
	want, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	adm, err := admin(w.dst)
	if err != nil {
		return err
	}
	defer adm.Close()
	return harness.Await(ctx, patience, func(ctx context.Context) error {
		got, err := adm.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		for p := range int32(partitions) {
			if o, ok := got.Lookup(topic, p); !ok || o.Err != nil || o.At != want {
				return fmt.Errorf("group %s stands at %d (%t) in %s-%d: %w", group, o.At, ok, topic, p, o.Err)
			}
		}
		return nil
	})
}

// killSource takes the source away, its sidecars too.
func (w *world) killSource(context.Context, []string) error {
	var errs []error
	for _, c := range w.src.Sidecars {
		errs = append(errs, c.Kill())
	}
	for _, n := range w.src.Cluster.Brokers() {
		errs = append(errs, n.Kill())
	}
	return errors.Join(errs...)
}

// holds looks how many records a topic has at the destination.
func (w *world) holds(ctx context.Context, args []string) error {
	want, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	values, err := readAll(ctx, w.dst, args[0])
	if err != nil {
		return err
	}
	if len(values) != want {
		return fmt.Errorf("%s holds %d records, want %d", args[0], len(values), want)
	}
	return nil
}

// writer is an application that writes numbers, a few at a time, until each is acknowledged.
type writer struct {
	topic string
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu    sync.Mutex
	acked int // all below are
	err   error
}

func (wr *writer) end() {
	if wr.stop != nil {
		wr.stop()
		wr.done.Wait()
		wr.stop = nil
	}
}

func (wr *writer) count() (int, error) {
	wr.mu.Lock()
	defer wr.mu.Unlock()
	return wr.acked, wr.err
}

// begin goes on with what is not acknowledged yet. A mirror topic is a refusal, and ends it; a fence
// is not.
func (wr *writer) begin(seeds []string) error {
	cl, err := kgo.NewClient(append(quick(), kgo.SeedBrokers(seeds...), kgo.RecordRetries(1<<30))...)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	// What may have been sent is not given up for a context, and its cluster may be gone: only the
	// client's end is the end of it.
	wr.stop = func() { stop(); cl.Close() }
	wr.done.Go(func() {
		defer cl.Close()
		const few = 5
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for next, _ := wr.count(); ; next += few {
			var records []*kgo.Record
			for i := range few {
				records = append(records, &kgo.Record{Topic: wr.topic, Value: fmt.Appendf(nil, "written-%d", next+i)})
			}
			err := cl.ProduceSync(ctx, records...).FirstErr()
			wr.mu.Lock()
			if err == nil {
				wr.acked = next + few
			} else if ctx.Err() == nil {
				wr.err = err
			}
			wr.mu.Unlock()
			if err != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return nil
}

func (w *world) startWriter(ctx context.Context, args []string) error {
	wr := &writer{topic: args[0]}
	w.writers[wr.topic] = wr
	if err := wr.begin(w.src.Proxies()); err != nil {
		return err
	}
	return wr.more(ctx, 50)
}

// more waits until that many more are acknowledged.
func (wr *writer) more(ctx context.Context, n int) error {
	first, _ := wr.count()
	return await(ctx, func() error {
		now, err := wr.count()
		if err == nil && now < first+n {
			err = fmt.Errorf("%d of %d records to %s are acknowledged", now-first, n, wr.topic)
		}
		return err
	})
}

// moveWriter starts the writer anew at the destination, as an operator would.
func (w *world) moveWriter(ctx context.Context, args []string) error {
	wr := w.writers[args[0]]
	before, err := wr.count()
	if err != nil {
		return fmt.Errorf("the writer at the source has failed: %w", err)
	}
	if before == 0 {
		return errors.New("the writer at the source has written nothing")
	}
	wr.end()
	if err := wr.begin(w.dst.Proxies()); err != nil {
		return err
	}
	return wr.more(ctx, 50)
}

// writtenOnce ends the writer, and looks whether the destination has every record of it once.
func (w *world) writtenOnce(ctx context.Context, args []string) error {
	wr := w.writers[args[0]]
	wr.end()
	acked, err := wr.count()
	if err != nil {
		return err
	}
	values, err := readAll(ctx, w.dst, args[0])
	if err != nil {
		return err
	}
	times := map[string]int{}
	for _, v := range values {
		times[v]++
	}
	for i := range acked {
		if n := times[fmt.Sprintf("written-%d", i)]; n != 1 {
			return fmt.Errorf("record %d of %d is there %d times", i, acked, n)
		}
	}
	return nil
}

// parted makes a topic that was failed over: the source has seven records that were lost
// to the destination, and the destination nine since.
func (w *world) parted(ctx context.Context, args []string) error {
	const mirror = "there"
	topic := args[0]
	cl, err := w.src.Cluster.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := createTopic(ctx, cl, topic, 1); err != nil {
		return err
	}
	if err := produce(ctx, w.src.Proxies(), topic, 1, 500, "both"); err != nil {
		return err
	}
	file, err := w.mirrorConfig(mirror)
	if err != nil {
		return err
	}
	for _, line := range []string{
		"--create --mirror " + mirror + " --mirror-config " + file,
		"--start --wait --mirror " + mirror + " --topics " + topic,
		"--stop --wait --mirror " + mirror + " --topics " + topic,
	} {
		if _, err := w.dst.CLI(ctx, strings.Fields(line)...); err != nil {
			return err
		}
	}
	if err := produce(ctx, w.src.Proxies(), topic, 1, 7, "lost"); err != nil {
		return err
	}
	return produce(ctx, w.dst.Proxies(), topic, 1, 9, "since")
}

// mirrorConfig writes the properties of a mirror at the destination.
func (w *world) mirrorConfig(mirror string) (string, error) {
	file := filepath.Join(w.dst.Dir(), mirror+".properties")
	return file, os.WriteFile(file, []byte("bootstrap.servers="+strings.Join(w.src.Proxies(), ",")+"\n"), 0o600)
}

// startMirrorMaker copies a topic from the source with MirrorMaker 2, as it is shipped.
func (w *world) startMirrorMaker(ctx context.Context, args []string) error {
	topic := args[0]
	install, err := harness.InstallMirrorMaker(ctx, harness.MirrorMakerVersion)
	if err != nil {
		return err
	}
	file := filepath.Join(w.dst.Dir(), "mm2.properties")
	text := strings.Join([]string{
		"clusters=source,target",
		"source.bootstrap.servers=" + strings.Join(w.src.Proxies(), ","),
		"target.bootstrap.servers=" + strings.Join(w.dst.Proxies(), ","),
		"source->target.enabled=true", "source->target.topics=" + topic, "target->source.enabled=false",
		"replication.factor=1", "offset-syncs.topic.replication.factor=1", "offset-syncs.topic.location=target",
		"checkpoints.topic.replication.factor=1", "heartbeats.topic.replication.factor=1",
		"config.storage.replication.factor=1", "offset.storage.replication.factor=1", "status.storage.replication.factor=1",
		"refresh.topics.interval.seconds=5", "",
	}, "\n")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	w.maker, err = install.StartTool(ctx, "mirrormaker", harness.ToolRun{Class: harness.MirrorMakerClass, Args: []string{file}, HeapMB: 512},
		filepath.Join(w.dst.Dir(), "mirrormaker.log"))
	if err != nil {
		return err
	}
	adm, err := admin(w.dst)
	if err != nil {
		return err
	}
	defer adm.Close()
	return await(ctx, func() error {
		if !w.maker.Running() {
			return fmt.Errorf("mirrormaker has ended:\n%s", w.maker.LogTail())
		}
		ends, err := adm.ListEndOffsets(ctx, "source."+topic)
		if err == nil {
			err = ends.Error()
		}
		var have int64
		ends.Each(func(o kadm.ListedOffset) { have += o.Offset })
		if err == nil && have < perTopic {
			err = fmt.Errorf("mirrormaker has copied %d of %d records", have, perTopic)
		}
		return err
	})
}

func (w *world) stopMirrorMaker(ctx context.Context, _ []string) error {
	defer func() { w.maker = nil }()
	return w.maker.Stop(ctx)
}

// await waits until cond returns no error. A refusal is not waited out.
func await(ctx context.Context, cond func() error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil || errors.Is(err, kerr.PolicyViolation) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// The ways to a broker.
const (
	direct  = 0
	proxied = 1
)

var wayNames = [2]string{"direct", "proxy"}

const (
	backlogTopic = "backlog"
	latencyTopic = "latency"
	// pacedClient is the client id that the broker's quota holds back.
	pacedClient = "bench-paced"
)

type proxyConfig struct {
	bin, out, details string
	gigabytes         float64 // of one round
	partitions        int
	recordBytes       int
	warmups, rounds   int // pairs of a round each way
	pace              float64
	pacedRounds       int
	probeEvery        time.Duration
	probeLength       time.Duration
	idleLength        time.Duration
	log               *slog.Logger
}

func (c proxyConfig) check() error {
	if c.gigabytes <= 0 || c.gigabytes > 20 || c.partitions < 1 || c.recordBytes < 1 || c.warmups < 0 || c.rounds < 1 {
		return errors.New("sizes and rounds must be positive, and a round at most 20 GB")
	}
	if c.pace <= 0 || c.pace >= 1 || c.pacedRounds < 0 || c.probeEvery <= 0 || c.probeLength <= 0 || c.idleLength <= 0 {
		return errors.New("the pace must be between 0 and 1, and what is timed longer than nothing")
	}
	return nil
}

func (c proxyConfig) records() int64 { return int64(c.gigabytes * 1e9 / float64(c.recordBytes)) }

// proxyRig is one broker with its sidecar, and nothing mirrored.
type proxyRig struct {
	cfg    proxyConfig
	stack  *stack.Stack
	client *kgo.Client
	admin  *kadm.Client
	// idle is what the sidecar uses while no client is there: the share of one core.
	idle float64
	n    int // of topics made so far
}

// passed is one round one way.
type passed struct {
	MBPerS  float64 `json:"mb_per_s"`
	Seconds float64 `json:"seconds"` // with the start of the client's JVM
	// CPU seconds for each GB (10^9 bytes) of records. What is neither the broker's nor the
	// proxy's is nearly all the client's.
	Proxy  float64 `json:"proxy_cpu_s_per_gb"`
	Broker float64 `json:"broker_cpu_s_per_gb"`
	Rest   float64 `json:"client_cpu_s_per_gb"`
	// Busy is the share of all cores that was in use.
	Busy float64 `json:"cores_busy"`
	// What kafka-producer-perf-test says of latency, in whole milliseconds.
	P50 float64 `json:"perf_test_p50_ms,omitempty"`
	P99 float64 `json:"perf_test_p99_ms,omitempty"`
}

func (p passed) String() string {
	return fmt.Sprintf("%7.1f MB/s, CPU s/GB: proxy %.2f, broker %.2f, client %.2f; cores %.0f %% busy", p.MBPerS, p.Proxy, p.Broker, p.Rest, 100*p.Busy)
}

// both are the rounds of one measurement, of the direct way and through the proxy.
type both [2][]passed

func proxyBench(ctx context.Context, cfg proxyConfig) (err error) {
	if err := cfg.check(); err != nil {
		return err
	}
	r := &proxyRig{cfg: cfg}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.start(ctx); err != nil {
		return err
	}
	var rep proxyDetails
	if r.idle, err = r.measureIdle(ctx); err != nil {
		return err
	}
	rep.IdleCores = r.idle
	fmt.Printf("idle: the sidecar uses %.2f %% of a core\n", 100*r.idle)
	if rep.Produce, err = r.inTurn(ctx, "produce", cfg.rounds, r.produceAt(-1)); err != nil {
		return err
	}
	if err := r.fillBacklog(ctx); err != nil {
		return fmt.Errorf("write what consumers read: %w", err)
	}
	if rep.Consume, err = r.inTurn(ctx, "consume", cfg.rounds, r.consume("bench")); err != nil {
		return err
	}
	if cfg.pacedRounds > 0 {
		pace := cfg.pace * median1(rep.Produce[direct])
		rep.PaceProduce = pace
		if rep.PacedProduce, err = r.inTurn(ctx, fmt.Sprintf("produce at %.0f MB/s", pace), cfg.pacedRounds, r.produceAt(int(pace*1e6/float64(cfg.recordBytes)))); err != nil {
			return err
		}
		pace = cfg.pace * median1(rep.Consume[direct])
		rep.PaceConsume = pace
		if err := r.quota(ctx, pace*1e6); err != nil {
			return err
		}
		if rep.PacedConsume, err = r.inTurn(ctx, fmt.Sprintf("consume at %.0f MB/s", pace), cfg.pacedRounds, r.consume(pacedClient)); err != nil {
			return err
		}
	}
	if rep.Latency, err = r.latency(ctx); err != nil {
		return err
	}
	for way, l := range rep.Latency {
		fmt.Printf("latency %-7s p50 %.3f ms, p99 %.3f ms, p99.9 %.3f ms of %d records\n", wayNames[way], l.P50, l.P99, l.P999, l.Samples)
	}
	return rep.write(r)
}

// inTurn runs one measurement both ways: A B, B A, A B … so that neither is always the first.
func (r *proxyRig) inTurn(ctx context.Context, name string, rounds int, one func(ctx context.Context, bootstrap string) (passed, error)) (both, error) {
	var out both
	for i := range r.cfg.warmups + rounds {
		for j := range 2 {
			way := (i + j) % 2
			// What the round before has left to write must not slow down this one.
			syscall.Sync()
			p, err := one(ctx, r.bootstrap(way))
			if err != nil {
				return out, fmt.Errorf("%s, %s: %w", name, wayNames[way], err)
			}
			what := "warm-up:"
			if i >= r.cfg.warmups {
				out[way] = append(out[way], p)
				what = fmt.Sprintf("round %d:", len(out[way]))
			}
			fmt.Printf("%s, %-7s %s %s\n", name, wayNames[way]+",", what, p)
		}
	}
	return out, nil
}

func (r *proxyRig) start(ctx context.Context) error {
	var err error
	r.stack, err = stack.Start(ctx, stack.Config{
		Kafka: harness.Config{
			Brokers: 1, FullJIT: true, HeapMB: 1024, Log: r.cfg.log,
			// Kafka's own defaults where the harness saves threads for small tests.
			Properties: map[string]string{
				"num.network.threads": "3", "num.io.threads": "8",
				// What a round wrote is deleted before the next one, not a minute later in its middle.
				"log.segment.delete.delay.ms": "0",
				// With the 11 seconds that it is by default, a quota lets a round go by before it holds
				// anybody back.
				"quota.window.num": "2",
			},
		},
		Bin: r.cfg.bin, Log: r.cfg.log,
	})
	if err != nil {
		return err
	}
	if r.client, err = r.stack.Cluster.Client(); err != nil {
		return err
	}
	r.admin = kadm.NewClient(r.client)
	return nil
}

func (r *proxyRig) stop() error {
	if r.client != nil {
		r.client.Close()
	}
	if r.stack != nil {
		return r.stack.Stop()
	}
	return nil
}

// bootstrap is where a way's clients start, and stay: INTERNAL advertises the broker itself,
// CLIENT the proxy. Both are without TLS and SASL.
func (r *proxyRig) bootstrap(way int) string {
	if way == direct {
		return strings.Join(r.stack.Direct(), ",")
	}
	return strings.Join(r.stack.Proxies(), ",")
}

func (r *proxyRig) broker() *harness.Node { return r.stack.Cluster.Brokers()[0] }

// usage is what had been used at a moment.
type usage struct {
	at             time.Time
	proxy, broker  time.Duration
	machine, cores time.Duration // in use, and in all
}

func (r *proxyRig) usage() (usage, error) {
	t, err := cpuTimes([]int{r.stack.Sidecars[0].Process().PID(), r.broker().PID()})
	if err != nil {
		return usage{}, err
	}
	busy, all, err := machineTime()
	return usage{at: time.Now(), proxy: t[0], broker: t[1], machine: busy, cores: all}, err
}

// measure runs one round and adds what was used meanwhile. run returns the bytes of the records.
func (r *proxyRig) measure(run func() (passed, float64, error)) (passed, error) {
	before, err := r.usage()
	if err != nil {
		return passed{}, err
	}
	p, size, err := run()
	if err != nil {
		return passed{}, err
	}
	after, err := r.usage()
	if err != nil {
		return passed{}, err
	}
	took := after.at.Sub(before.at)
	gb := size / 1e9
	proxy := (after.proxy - before.proxy).Seconds()
	broker := (after.broker - before.broker).Seconds()
	machine := (after.machine - before.machine).Seconds()
	p.Seconds = took.Seconds()
	p.Proxy = max(0, proxy-r.idle*took.Seconds()) / gb
	p.Broker = broker / gb
	p.Rest = max(0, machine-proxy-broker) / gb
	p.Busy = machine / (after.cores - before.cores).Seconds()
	return p, nil
}

// measureIdle returns the share of a core that the sidecar uses for itself.
func (r *proxyRig) measureIdle(ctx context.Context) (float64, error) {
	before, err := r.usage()
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(r.cfg.idleLength):
	}
	after, err := r.usage()
	return (after.proxy - before.proxy).Seconds() / after.at.Sub(before.at).Seconds(), err
}

func (r *proxyRig) produceAt(perSecond int) func(ctx context.Context, bootstrap string) (passed, error) {
	return func(ctx context.Context, bootstrap string) (passed, error) {
		r.n++
		name := fmt.Sprintf("produced-%d", r.n)
		if err := r.create(ctx, name, r.cfg.partitions); err != nil {
			return passed{}, err
		}
		p, err := r.measure(func() (passed, float64, error) {
			records := r.cfg.records()
			got, err := perfProduce(ctx, r.broker().Installation(), bootstrap, name, records, records/5, r.cfg.recordBytes, perSecond)
			return passed{MBPerS: got.MBPerS, P50: got.P50Ms, P99: got.P99Ms}, float64(records) * float64(r.cfg.recordBytes), err
		})
		if err != nil {
			return p, err
		}
		return p, r.remove(ctx, name)
	}
}

func (r *proxyRig) consume(clientID string) func(ctx context.Context, bootstrap string) (passed, error) {
	return func(ctx context.Context, bootstrap string) (passed, error) {
		return r.measure(func() (passed, float64, error) {
			got, err := perfConsume(ctx, r.broker().Installation(), bootstrap, backlogTopic, r.cfg.records(), clientID)
			return passed{MBPerS: got.MBPerS}, got.Bytes, err
		})
	}
}

func (r *proxyRig) fillBacklog(ctx context.Context) error {
	if err := r.create(ctx, backlogTopic, r.cfg.partitions); err != nil {
		return err
	}
	_, err := perfProduce(ctx, r.broker().Installation(), r.bootstrap(direct), backlogTopic, r.cfg.records(), 0, r.cfg.recordBytes, -1)
	return err
}

func (r *proxyRig) latency(ctx context.Context) (out [2]latencies, err error) {
	if err := r.create(ctx, latencyTopic, 1); err != nil {
		return out, err
	}
	var clients [2]*kgo.Client
	for way := range clients {
		clients[way], err = kgo.NewClient(
			kgo.SeedBrokers(strings.Split(r.bootstrap(way), ",")...), kgo.ProducerLinger(0),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
		if err != nil {
			return out, err
		}
		defer clients[way].Close()
		if err := harness.AwaitTopic(ctx, clients[way], latencyTopic); err != nil {
			return out, err
		}
	}
	return probe(ctx, clients, latencyTopic, r.cfg.recordBytes, r.cfg.probeEvery, r.cfg.probeLength)
}

func (r *proxyRig) create(ctx context.Context, name string, partitions int) error {
	if err := createOn(ctx, r.client, name, partitions, r.broker().ID()); err != nil {
		return err
	}
	return harness.AwaitTopic(ctx, r.client, name)
}

func (r *proxyRig) remove(ctx context.Context, name string) error {
	resp, err := r.admin.DeleteTopic(ctx, name)
	if err == nil {
		err = resp.Err
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return until(ctx, name+" to go away", func() (bool, error) {
		n, err := logBytes(r.broker(), name, r.cfg.partitions)
		return n == 0, err
	})
}

// quota lets the broker hold the paced consumer back: kafka-consumer-perf-test cannot do so
// itself.
func (r *proxyRig) quota(ctx context.Context, bytesPerS float64) error {
	name := pacedClient
	got, err := r.admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "consumer_byte_rate", Value: math.Round(bytesPerS)}},
	}})
	if err == nil && len(got) == 1 {
		err = got[0].Err
	}
	if err != nil {
		return fmt.Errorf("set a quota for the paced consumer: %w", err)
	}
	return nil
}

// machineTime is what all cores together have done, and could have.
func machineTime() (busy, all time.Duration, err error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("CPU time of the machine: %w", err)
	}
	return parseMachine(string(raw))
}

func parseMachine(text string) (busy, all time.Duration, err error) {
	line, _, _ := strings.Cut(text, "\n")
	cells := strings.Fields(line)
	const wanted = 8 // user nice system idle iowait irq softirq steal; what follows is part of them
	if len(cells) < 1+wanted || cells[0] != "cpu" {
		return 0, 0, fmt.Errorf("an odd line in /proc/stat: %q", line)
	}
	f, err := floats(cells[1 : 1+wanted])
	if err != nil {
		return 0, 0, err
	}
	for i, n := range f {
		d := time.Duration(n) * clockTick
		all += d
		if i != 3 && i != 4 {
			busy += d
		}
	}
	return busy, all, nil
}

// Command bench measures. `bench throughput` copies one backlog with this system, with
// MirrorMaker 2 and with native replication, in one run and into destinations of the same
// shape: one broker, one replica. `bench proxy` runs Kafka's own performance tools against a
// broker directly and through the proxy. Both write what they saw as JSON.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	benches := map[string]func(*flag.FlagSet, *common) func(context.Context) error{"throughput": throughputFlags, "proxy": proxyFlags}
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	bench, ok := benches[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "usage: bench throughput|proxy [flags]")
		os.Exit(2)
	}
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	var c common
	flags.StringVar(&c.bin, "bin", ownFolder(), "folder of mirror-sidecar and kafka-cluster-mirrors")
	limit := flags.Duration("limit", 30*time.Minute, "give up after this")
	verbose := flags.Bool("v", false, "log what the clusters do")
	run := bench(flags, &c)
	if err := flags.Parse(os.Args[2:]); err != nil {
		os.Exit(2)
	}
	c.log = slog.New(slog.DiscardHandler)
	if *verbose {
		c.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("the benchmark took longer than %s", *limit))
	err := run(ctx)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", name, err)
		os.Exit(1)
	}
}

// common is what all benchmarks are told.
type common struct {
	bin string
	log *slog.Logger
}

func throughputFlags(flags *flag.FlagSet, c *common) func(context.Context) error {
	var cfg throughputConfig
	flags.StringVar(&cfg.out, "out", "build/bench/throughput.json", "file for the figures")
	flags.Float64Var(&cfg.gigabytes, "gb", 2, "size of the backlog in GB (10^9 bytes)")
	flags.IntVar(&cfg.partitions, "partitions", 4, "partitions of the backlog")
	flags.IntVar(&cfg.recordBytes, "record-bytes", 1000, "size of a record's value")
	flags.IntVar(&cfg.batchBytes, "batch-bytes", 64<<10, "largest batch of the backlog's producer")
	flags.IntVar(&cfg.warmups, "warmups", 3, "rounds before them that do not count")
	flags.IntVar(&cfg.rounds, "rounds", 7, "rounds of this system and of native replication, in turn; the median counts")
	flags.IntVar(&cfg.mirrorMakerRounds, "mirrormaker-rounds", 1, "rounds of MirrorMaker 2, which takes long")
	systems := flags.String("systems", strings.Join(allSystems(), ","), "which to measure")
	return func(ctx context.Context) error {
		cfg.systems = strings.Split(*systems, ",")
		cfg.bin, cfg.log = c.bin, c.log
		return throughput(ctx, cfg)
	}
}

func proxyFlags(flags *flag.FlagSet, c *common) func(context.Context) error {
	var cfg proxyConfig
	flags.StringVar(&cfg.out, "out", "build/bench/proxy.json", "file for the figures")
	flags.StringVar(&cfg.details, "details", "build/bench/proxy-details.json", "file for what they were made of")
	flags.Float64Var(&cfg.gigabytes, "gb", 1, "what a round writes or reads, in GB (10^9 bytes)")
	flags.IntVar(&cfg.partitions, "partitions", 4, "partitions of the topics")
	flags.IntVar(&cfg.recordBytes, "record-bytes", 1000, "size of a record's value")
	flags.IntVar(&cfg.warmups, "warmups", 1, "rounds of each measurement that do not count, each way")
	flags.IntVar(&cfg.rounds, "rounds", 6, "rounds at full speed, each way; the median counts")
	flags.Float64Var(&cfg.pace, "pace", 0.6, "share of the direct full speed that the paced rounds are held to")
	flags.IntVar(&cfg.pacedRounds, "paced-rounds", 2, "paced rounds, each way")
	flags.DurationVar(&cfg.probeEvery, "probe-every", 2*time.Millisecond, "one record this often for latency, to and fro between the ways")
	flags.DurationVar(&cfg.probeLength, "probe-length", time.Minute, "how long latency is measured")
	flags.DurationVar(&cfg.idleLength, "idle-length", 10*time.Second, "how long the sidecar's own CPU is measured")
	return func(ctx context.Context) error {
		cfg.bin, cfg.log = c.bin, c.log
		return proxyBench(ctx, cfg)
	}
}

// ownFolder is where this binary is: the others are built beside it.
func ownFolder() string {
	self, err := os.Executable()
	if err != nil {
		return "."
	}
	return filepath.Dir(self)
}

// Command bench measures. `bench throughput` copies one backlog with this system, with
// MirrorMaker 2 and with native replication, in one run and into destinations of the same
// shape: one broker, one replica. It writes what it saw as JSON.
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
	if len(os.Args) < 2 || os.Args[1] != "throughput" {
		fmt.Fprintln(os.Stderr, "usage: bench throughput [flags]")
		os.Exit(2)
	}
	flags := flag.NewFlagSet("throughput", flag.ExitOnError)
	var cfg throughputConfig
	flags.StringVar(&cfg.bin, "bin", ownFolder(), "folder of mirror-sidecar and kafka-cluster-mirrors")
	flags.StringVar(&cfg.out, "out", "build/bench/throughput.json", "file for the figures")
	flags.Float64Var(&cfg.gigabytes, "gb", 2, "size of the backlog in GB (10^9 bytes)")
	flags.IntVar(&cfg.partitions, "partitions", 4, "partitions of the backlog")
	flags.IntVar(&cfg.recordBytes, "record-bytes", 1000, "size of a record's value")
	flags.IntVar(&cfg.batchBytes, "batch-bytes", 64<<10, "largest batch of the backlog's producer")
	flags.IntVar(&cfg.warmups, "warmups", 3, "rounds before them that do not count")
	flags.IntVar(&cfg.rounds, "rounds", 7, "rounds of this system and of native replication, in turn; the median counts")
	flags.IntVar(&cfg.mirrorMakerRounds, "mirrormaker-rounds", 1, "rounds of MirrorMaker 2, which takes long")
	systems := flags.String("systems", strings.Join(allSystems(), ","), "which to measure")
	limit := flags.Duration("limit", 30*time.Minute, "give up after this")
	verbose := flags.Bool("v", false, "log what the clusters do")
	if err := flags.Parse(os.Args[2:]); err != nil {
		os.Exit(2)
	}
	cfg.systems = strings.Split(*systems, ",")
	cfg.log = slog.New(slog.DiscardHandler)
	if *verbose {
		cfg.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("the benchmark took longer than %s", *limit))
	err := throughput(ctx, cfg)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench throughput:", err)
		os.Exit(1)
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

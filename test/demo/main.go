// Command demo is what `make demo` runs: a live source cluster, a destination of two
// brokers with two sidecars, a mirror from start to stop, refused writes, and a comparison
// at the end. It prints DEMO OK last, or why not, and leaves nothing running.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	bin := flag.String("bin", ownFolder(), "folder of mirror-sidecar and kafka-cluster-mirrors")
	version := flag.String("kafka", "", "Kafka version of the destination; empty: the newest that is tested")
	limit := flag.Duration("limit", 8*time.Minute, "give up after this; a first run downloads Kafka")
	verbose := flag.Bool("v", false, "log what the parts do")
	flag.Parse()

	log := slog.New(slog.DiscardHandler)
	if *verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	// A signal ends the context, and everything started is ended on the way out.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("the demo took longer than %s", *limit))
	d := &demo{bin: *bin, version: *version, log: log, out: os.Stdout, begun: time.Now()}
	err := d.run(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	err = errors.Join(err, d.cleanUp())
	cancel()
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\nDEMO FAILED: %v\n", err)
		os.Exit(1)
	}
	fmt.Println("DEMO OK")
}

// ownFolder is where this binary is: the others are built beside it.
func ownFolder() string {
	self, err := os.Executable()
	if err != nil {
		return "."
	}
	return filepath.Dir(self)
}

// demo is one run.
type demo struct {
	bin, version string
	log          *slog.Logger
	out          io.Writer
	begun        time.Time
	// undo holds what must be ended, in the order in which it was started.
	undo []func() error
}

// say prints one line of progress.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "%6.1fs  %s\n", time.Since(d.begun).Seconds(), fmt.Sprintf(format, args...))
}

// title prints what comes next.
func (d *demo) title(text string) { fmt.Fprintf(d.out, "\n== %s\n", text) }

// later ends something when the demo ends, whatever its outcome.
func (d *demo) later(undo func() error) { d.undo = append(d.undo, undo) }

func (d *demo) cleanUp() error {
	var errs []error
	for i := len(d.undo) - 1; i >= 0; i-- {
		errs = append(errs, d.undo[i]())
	}
	d.undo = nil
	return errors.Join(errs...)
}

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

// commit is set by the linker.
var commit = "unknown"

// options of a run.
type options struct {
	bin    string // folder of the two binaries
	report string // file for the report as JSON
	keep   string // folder for transcripts
	quick  bool
	only   []string // ids of clients
	// control runs both legs at the brokers, plant meddles with racks.
	control, plant bool
	log            *slog.Logger
	say            func(format string, args ...any)
}

// limit of a whole run.
const limit = 40 * time.Minute

func main() {
	var opt options
	flag.StringVar(&opt.bin, "bin", ownFolder(), "folder of mirror-sidecar and kafka-cluster-mirrors")
	flag.StringVar(&opt.report, "report", "", "file for the report as JSON")
	flag.StringVar(&opt.keep, "keep", "", "folder for the transcripts of all scripts")
	flag.BoolVar(&opt.quick, "quick", false, "one client for each language, and the tools that are used most")
	only := flag.String("only", "", "ids of clients, between commas")
	flag.BoolVar(&opt.control, "control", false, "both legs straight at the brokers: must be equal, too")
	flag.BoolVar(&opt.plant, "plant", false, "plant a difference: every client must notice, and nothing else may differ")
	verbose := flag.Bool("v", false, "log what the parts do")
	flag.Parse()
	if *only != "" {
		opt.only = strings.Split(*only, ",")
	}
	opt.log = discard()
	if *verbose {
		opt.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	begun := time.Now()
	opt.say = func(format string, args ...any) {
		fmt.Printf("%7.1fs  %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("took longer than %s", limit))
	defer cancel()
	r, err := run(ctx, opt)
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
	r.Duration = time.Since(begun).Round(100 * time.Millisecond).String()
	if err := r.write(opt.report); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
	fmt.Print("\n", r.text())
	if r.Failed > 0 || r.Passed == 0 {
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

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/evict"
	"github.com/cluster-mirroring/mirror-sidecar/replica/controller"
)

const evictUsage = `mirror-sidecar evict hands everything back: it stops every mirror topic, so that real brokers lead
it and it can be written to, and takes the virtual brokers out of the cluster. No sidecar has to
run; where one does, it is told to hand back, and its virtual broker stays until it is ended.

It needs controller.quorum.bootstrap.servers and whatever a client needs to reach the brokers; a
sidecar's own properties file will do. It may be run again at any time, and then goes on.

The exit status is 0 when nothing is left, 3 when something is, which is then named, 1 when it
could not begin, and 2 for a wrong command line.

`

// evictLeft is the exit status when something is left to do.
const evictLeft = 3

func runEvict(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("mirror-sidecar evict", pflag.ContinueOnError)
	only := brokerFlag(flags)
	dryRun := flags.Bool("dry-run", false, "say what would be done, and change nothing")
	asJSON := flags.Bool("json", false, "print the report as JSON")
	wait := flags.Duration("timeout", 2*time.Minute, "how long to wait for what is under way")
	flags.Usage = func() {
		fmt.Fprint(stderr, evictUsage)
		fmt.Fprint(stderr, flags.FlagUsages())
	}
	cfg, err := parseFlags(flags, args, stderr, config.ParseEvict)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return 0
	case err == nil && *wait <= 0:
		err = errors.New("--timeout must be above 0")
	}
	var broker *int32
	if err == nil {
		broker, err = only()
	}
	if err != nil {
		fmt.Fprintf(stderr, "mirror-sidecar: %v\n", err)
		return 2
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: max(cfg.LogLevel, slog.LevelWarn)}))
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	report, err := evictAll(ctx, cfg, evict.Config{
		Broker: broker, DryRun: *dryRun, Wait: *wait,
		Progress: func(what string) { fmt.Fprintln(stderr, "waiting:", what) },
	}, log)
	if report != nil {
		if printErr := printReport(report, *asJSON, stdout); err == nil {
			err = printErr
		}
	}
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "mirror-sidecar: evict: %v\n", err)
		return 1
	case !report.Done():
		return evictLeft
	}
	return 0
}

// brokerFlag adds --broker, and returns what tells which broker it names; nil, all of them, if it
// was not given: 0 is a broker like any other.
func brokerFlag(flags *pflag.FlagSet) func() (*int32, error) {
	const name = "broker"
	broker := flags.Int32(name, 0, "evict only the virtual broker of this broker, or with this id; other sidecars take its partitions")
	return func() (*int32, error) {
		switch {
		case !flags.Changed(name):
			return nil, nil
		case *broker < 0:
			return nil, errors.New("--broker must not be below 0")
		}
		return broker, nil
	}
}

func printReport(r *evict.Report, asJSON bool, stdout io.Writer) error {
	if !asJSON {
		r.Print(stdout)
		return nil
	}
	e := json.NewEncoder(stdout)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func evictAll(ctx context.Context, cfg *config.Sidecar, ec evict.Config, log *slog.Logger) (*evict.Report, error) {
	controllerOpts, err := cfg.ClientOptions(cfg.ControllerSecurity)
	if err != nil {
		return nil, err
	}
	if ec.Opts, err = cfg.ClientOptions(cfg.InterBrokerSecurity); err != nil {
		return nil, err
	}
	ctl, err := controller.New(cfg.Controllers, controllerOpts, log)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	ec.Virtual, ec.StopReplicaWait = cfg.VirtualOffset, cfg.StopReplicaWait
	return evict.Run(ctx, ec, ctl, log)
}

// Command mirror-sidecar runs beside one broker of a Kafka cluster: it proxies the
// broker's clients and joins the cluster as a virtual broker that leads mirror partitions.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/dig"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/cluster-mirroring/mirror-sidecar/config"
)

// version is set by the linker.
var version = "dev"

const usage = `Usage:
  mirror-sidecar run --config FILE [--KEY=VALUE ...]
  mirror-sidecar evict --config FILE [--broker ID] [--dry-run] [--json] [--timeout DURATION]
  mirror-sidecar plugin check -- COMMAND [ARGUMENT ...]
  mirror-sidecar version

Every configuration key is also a flag, with dashes for dots. Flags win over the file.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit status: 0 after an orderly end, 1 when the sidecar could not start
// or failed, 2 for a wrong command line or configuration.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	switch args[0] {
	case "version", "--version":
		fmt.Fprintln(stdout, "mirror-sidecar", buildVersion())
		return 0
	case "help", "--help", "-h":
		fmt.Fprint(stdout, usage)
		return 0
	case "evict":
		return runEvict(args[1:], stdout, stderr)
	case "plugin":
		return runPlugin(args[1:], stdout, stderr)
	case "run":
	default:
		fmt.Fprintf(stderr, "mirror-sidecar: unknown command %q\n%s", args[0], usage)
		return 2
	}
	cfg, err := parse(args[1:], stderr)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "mirror-sidecar: %v\n", err)
		return 2
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: cfg.LogLevel}))
	cfg.Providers.Log = log
	log.Info("mirror-sidecar", "version", buildVersion())
	ended, end := context.WithCancel(context.Background())
	defer end()
	limitMemory(ended, cfg.BufferMemory)
	ctx, stopSignals := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stopSignals()
	r, err := prepare(ctx, cfg, log)
	if err != nil {
		log.Error("the sidecar cannot start", "error", err)
		return 1
	}
	defer r.stop()
	app := fx.New(
		fx.Supply(cfg, log, r),
		fx.WithLogger(func() fxevent.Logger { return fxevent.NopLogger }),
		fx.StartTimeout(startTimeout), fx.StopTimeout(stopTimeout),
		wiring(),
	)
	if err := app.Err(); err != nil {
		if ctx.Err() != nil {
			log.Info("the sidecar was asked to end before it had started")
			return 0
		}
		// How the parts hang together says nothing to whom a wrong address has befallen.
		log.Error("the sidecar cannot start", "error", dig.RootCause(err))
		return 1
	}
	start, cancel := ctx, context.CancelFunc(func() {})
	if !r.early { // with clients to serve, it waits for what there is to wait for
		start, cancel = context.WithTimeout(ctx, startTimeout)
	}
	defer cancel()
	if err := app.Start(start); err != nil {
		if ctx.Err() != nil {
			log.Info("the sidecar was asked to end before it had started")
			return 0
		}
		log.Error("the sidecar cannot start", "error", err)
		return 1
	}
	var why fx.ShutdownSignal
	select {
	case why = <-app.Wait():
	case <-ctx.Done():
	}
	if r.data.succeeded() {
		r.stopListening()
	}
	stop, cancelStop := context.WithTimeout(context.Background(), stopTimeout)
	defer cancelStop()
	if err := app.Stop(stop); err != nil {
		log.Warn("the sidecar did not stop in order", "error", err)
	}
	r.stop()
	log.Info("the sidecar has stopped")
	return why.ExitCode
}

// prepare does what comes before the parts of the sidecar, which wait for the cluster: the
// relay serves clients if a former process has left what it needs, a former process that
// still runs is asked to end, and /livez answers.
func prepare(ctx context.Context, cfg *config.Sidecar, log *slog.Logger) (_ *front, err error) {
	data, err := openDataDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	if data != nil && !data.locked && !cfg.TakeOver {
		return nil, fmt.Errorf("data.dir %s is in use by process %s; --take-over lets this one take its place", cfg.DataDir, data.holder())
	}
	r, err := newFront(ctx, cfg, data, log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.stop()
		}
	}()
	if r.early {
		if err := r.open(ctx, r.home, r.listeners); err != nil {
			return nil, err
		}
	}
	if err := data.takeOver(ctx, log); err != nil {
		return nil, err
	}
	if err := r.health.Start(ctx); err != nil {
		return nil, err
	}
	r.answers = true
	return r, nil
}

const (
	startTimeout = 90 * time.Second
	stopTimeout  = 20 * time.Second
)

func buildVersion() string {
	if version != "dev" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return version
}

// parse reads the properties file and lets flags win over it.
func parse(args []string, stderr io.Writer) (*config.Sidecar, error) {
	flags := pflag.NewFlagSet("mirror-sidecar run", pflag.ContinueOnError)
	return parseFlags(flags, args, stderr, config.ParseSidecar)
}

// parseFlags adds the configuration's flags to those of a command.
func parseFlags(flags *pflag.FlagSet, args []string, stderr io.Writer, check func(config.Properties) (*config.Sidecar, error)) (*config.Sidecar, error) {
	flags.SetOutput(stderr)
	flags.SortFlags = false
	file := flags.String("config", "", "properties file")
	keys := config.SidecarKeys()
	for _, k := range keys {
		if k.Repeatable {
			flags.StringArray(k.Flag(), nil, k.Doc)
			continue
		}
		flags.String(k.Flag(), k.Default, k.Doc)
		if k.Default == "false" {
			flags.Lookup(k.Flag()).NoOptDefVal = "true" // --allow-uncordoned is --allow-uncordoned=true
		}
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	props := config.Properties{}
	if *file != "" {
		var err error
		if props, err = config.ReadPropertiesFile(*file); err != nil {
			return nil, err
		}
	}
	for _, k := range keys {
		f := flags.Lookup(k.Flag())
		switch list, repeated := f.Value.(pflag.SliceValue); {
		case !f.Changed:
		case repeated:
			props[k.Name] = strings.Join(list.GetSlice(), ";")
		default:
			props[k.Name] = f.Value.String()
		}
	}
	cfg, err := check(props)
	if err != nil {
		return nil, fmt.Errorf("configuration:\n%w", err)
	}
	return cfg, nil
}

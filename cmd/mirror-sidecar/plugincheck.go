package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/kit"
)

// runPluginCheck asks a plugin everything that a sidecar may ask.
func runPluginCheck(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("mirror-sidecar plugin check", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.SortFlags = false
	flags.SetInterspersed(false) // what follows is the plugin's
	timeout := flags.Duration("timeout", 5*time.Second, "how long an answer may take, as plugin.<name>.timeout.ms of a sidecar")
	plugin := flags.StringArray("config", nil, "KEY=VALUE of the plugin's own configuration, as plugin.<name>.config.KEY of a sidecar; may be repeated")
	mirror := flags.StringArray("mirror-config", nil, "KEY=VALUE of the configuration of the mirror that it is asked for; may be repeated")
	verbose := flags.Bool("verbose", false, "show what the plugin says, and what becomes of its process")
	flags.Usage = func() {
		fmt.Fprintf(stderr, "Usage:\n  mirror-sidecar plugin check [FLAGS] -- COMMAND [ARGUMENT ...]\n\nFlags:\n%s", flags.FlagUsages())
	}
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	cfg := kit.Config{Command: flags.Args(), Timeout: *timeout}
	if err == nil && len(cfg.Command) == 0 {
		err = errors.New("no COMMAND is given")
	}
	if err == nil {
		cfg.Plugin, err = pairs(*plugin)
	}
	if err == nil {
		cfg.Mirror, err = pairs(*mirror)
	}
	if err != nil {
		fmt.Fprintf(stderr, "mirror-sidecar plugin check: %v\n", err)
		return 2
	}
	if *verbose {
		cfg.Log = slog.New(slog.NewTextHandler(stderr, nil))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r, err := kit.Run(ctx, cfg, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "mirror-sidecar plugin check: %v\n", err)
		return 2
	}
	if r.Failed > 0 {
		return 1
	}
	return 0
}

// pairs reads KEY=VALUE.
func pairs(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, item := range list {
		k, v, ok := strings.Cut(item, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("%q is not KEY=VALUE", item)
		}
		out[k] = v
	}
	return out, nil
}

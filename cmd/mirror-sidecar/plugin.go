package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/builtin"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/host"
)

const pluginUsage = `Usage:
  mirror-sidecar plugin new [--lang go|python] [--kind KIND] [--dir DIR] [--sdk DIR] NAME
  mirror-sidecar plugin check [--timeout DURATION] [--config KEY=VALUE ...] -- COMMAND [ARGUMENT ...]
`

func runPlugin(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, pluginUsage)
		return 2
	}
	switch args[0] {
	case config.PluginBuiltIn: // not in the usage: nobody but the sidecar has a use for it
		plugins.Serve(builtin.Policy(buildVersion()))
		return 0
	case "check":
		return runPluginCheck(args[1:], stdout, stderr)
	case "new":
		return runPluginNew(args[1:], stdout, stderr)
	case "help", "--help", "-h":
		fmt.Fprint(stdout, pluginUsage)
		return 0
	}
	fmt.Fprintf(stderr, "mirror-sidecar plugin: unknown command %q\n%s", args[0], pluginUsage)
	return 2
}

// newPlugins starts nothing: a plugin runs from the first question on that a mirror has for it.
func newPlugins(lc fx.Lifecycle, cfg *config.Sidecar, reg *prometheus.Registry, log *slog.Logger) (*host.Host, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("the program that the built-in plugin is part of: %w", err)
	}
	h, err := host.New(host.Config{
		Plugins: cfg.Plugins, BuiltIn: []string{self, "plugin", config.PluginBuiltIn}, Version: buildVersion(), Folder: cfg.DataDir,
	}, reg, log)
	if err != nil {
		return nil, err
	}
	if err := h.Folder(); err != nil {
		log.Warn("no plugin can be started, the built-in one neither: records go on, and no mirror begins with anything", "error", err)
	}
	lc.Append(fx.Hook{OnStop: h.Stop})
	return h, nil
}

package main

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/fx"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/health"
	"github.com/cluster-mirroring/mirror-sidecar/hostrules"
)

// watchHostRules keeps the sidecar from being ready while brokers decide by the address of
// clients, which they do not see.
func watchHostRules(lc fx.Lifecycle, cfg *config.Sidecar, c *cluster, listeners []config.ClientListener, t *transport, h *health.Server, log *slog.Logger) error {
	opts, err := config.ClientOptionsVia(cfg.Live(cfg.Security), t.home)
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(cfg.HomeBroker[0]), kgo.DisableClientMetrics())...)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(listeners))
	for _, l := range listeners {
		names = append(names, l.Name)
	}
	w := hostrules.NewWatch(hostrules.Config{
		Home: cl.SeedBrokers()[0], Broker: c.home.ID, Listeners: names, Every: cfg.RefreshInterval, Ignored: cfg.AllowHostRulesIgnored,
	}, log)
	lc.Append(fx.Hook{OnStart: w.Start, OnStop: func(ctx context.Context) error {
		defer cl.Close()
		return w.Stop(ctx)
	}})
	h.Ready("host rules", w.Ready)
	h.Warn("host rules", w.Warn)
	return nil
}

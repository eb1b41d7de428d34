package main

import (
	"context"
	"errors"
	"log/slog"

	"go.uber.org/fx"

	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/host"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// newHerald tells plugins what happens to the mirrors that are coordinated here.
func newHerald(lc fx.Lifecycle, co *coordinator.Coordinator, h *host.Host, policies *policy.Engine, log *slog.Logger) *coordinator.Herald {
	told := policy.NewEventDispatch(h, policies.Ledger(), log)
	herald := coordinator.NewHerald(co, told, log)
	lc.Append(fx.Hook{OnStart: herald.Start, OnStop: func(ctx context.Context) error {
		return errors.Join(herald.Stop(ctx), told.Stop(ctx))
	}})
	return herald
}

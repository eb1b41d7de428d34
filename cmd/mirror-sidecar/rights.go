package main

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/fx"

	"github.com/cluster-mirroring/mirror-sidecar/certs"
	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/health"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/rights"
)

const (
	// askedTopics bounds the topics that are asked about at each look.
	askedTopics = 1000
	// askedGroup is no group: who may read all groups may read it.
	askedGroup = "mirror-sidecar-asks-for-rights"
)

// watchRights tells which rights the sidecar lacks at the destination.
func watchRights(lc fx.Lifecycle, cfg *config.Sidecar, c *cluster, cl *clients, t *transport, store *coordinator.Store, h *health.Server, log *slog.Logger) {
	w := rights.NewWatch(rights.WatchConfig{
		Asker: homeAsker{cl, c.home.ID}, Principal: principal(cfg, t), Every: cfg.RefreshInterval,
		What: func() rights.Destination { return atDestination(c.home.ID, store.View()) },
	}, log)
	lc.Append(fx.Hook{OnStart: w.Start, OnStop: w.Stop})
	h.Warn("rights", w.Warn)
}

// homeAsker asks the home broker, at the listener that brokers use among themselves.
type homeAsker struct {
	cl   *clients
	home int32
}

func (a homeAsker) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return a.cl.calls.Request(ctx, a.home, req)
}

// principal is who the sidecar is for brokers, as far as it can know: they may map names.
func principal(cfg *config.Sidecar, t *transport) string {
	if user := config.LoginName(cfg.InterBrokerSecurity); user != "" {
		return "User:" + user
	}
	if p := cfg.InterBrokerProtocol(); p == config.SSL && t.among.TLS != nil {
		if leaf := t.among.TLS.Leaf(); leaf != nil {
			return "User:" + certs.Principal(leaf)
		}
	}
	return "<" + rights.Sidecars + ">"
}

// atDestination is what the mirrors need there.
func atDestination(home int32, view *coordinator.View) rights.Destination {
	d := rights.Destination{Broker: home, State: coordinator.StateTopic, Transactions: protocol.StateTransactions + "0"}
	for _, m := range view.Mirrors() {
		d.Group = askedGroup
		d.Quotas = d.Quotas || m.Configs[config.QuotasIncludeKey] != ""
		for _, topic := range view.Topics(m.Name) {
			if topic.Desired != coordinator.Stopped && len(d.Topics) < askedTopics {
				d.Topics = append(d.Topics, topic.Name)
			}
		}
	}
	return d
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/fx"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/syncs"
)

// syncTimeout bounds one request of a sync to this cluster's brokers.
const syncTimeout = 15 * time.Second

// newSyncer mirrors what is not records, for the mirrors whose names are coordinated here.
func newSyncer(lc fx.Lifecycle, cfg *config.Sidecar, c *cluster, cl *clients, co *coordinator.Coordinator, policies *policy.Engine, reg *prometheus.Registry, log *slog.Logger) (*syncs.Syncer, error) {
	here, err := kgo.NewClient(append(slices.Clone(cl.seeds),
		kgo.ClientID(fmt.Sprintf("mirror-dst-sync-%d", c.home.ID)),
		kgo.RetryTimeout(syncTimeout),
		kgo.DialTimeout(3*time.Second),
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.DisableClientMetrics(),
	)...)
	if err != nil {
		return nil, fmt.Errorf("client for this cluster's brokers: %w", err)
	}
	common := syncs.Here{Destination: here, ClusterID: c.id, Mirrors: co, Ledger: policies.Ledger(), Log: log}
	s := syncs.New(syncs.Config{Interval: cfg.RefreshInterval, Source: syncs.KafkaSource(cfg.Providers, c.home.ID)}, co, policies.Ledger(), log,
		syncs.NewGroups(syncs.GroupsConfig{Here: common, Virtual: cfg.VirtualOffset, Policies: policies}),
		syncs.NewACLs(syncs.ACLsConfig{Here: common, Policies: policies, AllowHosts: cfg.AllowHostRulesIgnored}),
		syncs.NewQuotas(syncs.QuotasConfig{Here: common, Policies: policies, AllowHosts: cfg.AllowHostRulesIgnored}),
	)
	co.UseSyncs(s)
	lc.Append(fx.Hook{OnStart: s.Start, OnStop: func(ctx context.Context) error {
		err := s.Stop(ctx)
		here.Close()
		return err
	}})
	return s, reg.Register(s)
}

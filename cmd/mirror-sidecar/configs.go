package main

import (
	"context"

	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/proxy"
)

// configs lets the proxy describe and change what the coordinator keeps as configuration.
type configs struct{ co *coordinator.Coordinator }

func (c configs) Authorize(ctx context.Context, who proxy.Caller, alter bool) (string, error) {
	return c.co.AuthorizeConfigs(ctx, who, who.ClientID(), alter)
}

func (c configs) Describe(ctx context.Context, mirror string, keys []string) ([]proxy.ConfigEntry, error) {
	entries, err := c.co.DescribeConfigs(ctx, mirror, keys)
	out := make([]proxy.ConfigEntry, 0, len(entries))
	for _, e := range entries {
		out = append(out, proxy.ConfigEntry(e))
	}
	return out, err
}

func (c configs) Alter(ctx context.Context, clientID, mirror string, ops []proxy.ConfigOp, validateOnly bool) error {
	changes := make([]coordinator.ConfigOp, 0, len(ops))
	for _, op := range ops {
		changes = append(changes, coordinator.ConfigOp(op))
	}
	return c.co.AlterConfigs(ctx, clientID, mirror, changes, validateOnly)
}

func (c configs) TopicMirror(topic string) (string, bool) { return c.co.TopicMirrorName(topic) }

func (c configs) Wanted(topic string) (map[string]*string, bool) { return c.co.WantedConfigs(topic) }

package main

import (
	"context"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// The ways.
const (
	legDirect  = "direct"
	legProxied = "proxied"
	legControl = "control"
)

// leg is one of the two ways.
type leg struct {
	// Token is what tells names of the legs apart: they are equally long, and letters
	// that an even number parts, so that a group has the same coordinator under both names.
	Name, Token string
	// seeds are where clients start, mirrorSeeds where they read the mirrored topic.
	seeds, mirrorSeeds []string
}

// names of a client's topics and groups.
func (l leg) prefix(c *client) string { return c.ID + "-" + l.Token }

// topicsOf are there before the script begins, known to every broker: two partitions, led by broker 1 and broker 2.
func (l leg) topicsOf(c *client) []string {
	var out []string
	for _, t := range strings.Fields("main codec tx group newgroup share admin extra") {
		out = append(out, l.prefix(c)+"-"+t)
	}
	return out
}

// client is a row of the matrix.
type client struct {
	ID      string // short, and part of names
	Name    string // of the row
	Version string
	Tools   bool // a table of its own: its parts are tools
	// Quick says that it is part of the short form.
	Quick bool
	// prepare fetches what the client needs, once, before anything runs.
	prepare func(ctx context.Context, c *client, w *world) error
	run     func(ctx context.Context, c *client, w *world, l leg) (*transcript, error)

	// of Java clients
	install *harness.Installation
	classes string
	// of librdkafka
	python string
}

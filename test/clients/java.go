package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

//go:embed java/*.java
var javaSources embed.FS

// javaClients are Kafka's own. Files are what a version can compile, brokerKey a dynamic config of brokers that no
// other client touches.
func javaClients() []*client {
	make := func(id, version, brokerKey string, quick bool, files ...string) *client {
		return &client{
			ID: id, Name: "Java", Version: version, Quick: quick,
			prepare: func(ctx context.Context, c *client, w *world) error { return prepareJava(ctx, c, version, files) },
			run: func(ctx context.Context, c *client, w *world, l leg) (*transcript, error) {
				return runJava(ctx, c, "Script", strings.Join(l.seeds, ","), strings.Join(l.mirrorSeeds, ","), mirrored, l.prefix(c), brokerKey)
			},
		}
	}
	return []*client{
		make("java44", harness.Version44, "max.connections", true, "Script.java", "Later.java", "Newest.java"),
		make("java39", harness.Version39, "max.connections.per.ip", false, "Script.java", "Later.java"),
		make("java30", "3.0.2", "producer.id.expiration.ms", false, "Script.java"),
		make("java28", "2.8.2", "log.cleaner.backoff.ms", false, "Script.java"),
	}
}

func prepareJava(ctx context.Context, c *client, version string, files []string) error {
	in, err := harness.Install(ctx, version)
	if err != nil {
		return err
	}
	sources := map[string][]byte{}
	for _, f := range files {
		if sources[f], err = javaSources.ReadFile("java/" + f); err != nil {
			return err
		}
	}
	c.install = in
	c.classes, err = in.Compile(ctx, sources)
	return err
}

// runJava runs a program that prints a transcript.
func runJava(ctx context.Context, c *client, class string, args ...string) (*transcript, error) {
	res, err := c.install.Tool(ctx, harness.ToolRun{Class: class, Args: args, Classes: c.classes})
	t := parseTranscript(res.Stdout)
	var failed *harness.ToolError
	switch {
	case errors.As(err, &failed):
		t.Broken = fmt.Sprintf("%s: %v", t.Broken, err)
	case err != nil:
		return t, err
	}
	return t, nil
}

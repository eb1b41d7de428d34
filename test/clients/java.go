package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

//go:embed java/*.java
var javaSources embed.FS

// touchedBrokerKeys are the dynamic configs that scripts set on broker 1 and delete again, each its own, while others look
// at that broker: for them such a config is the default's or another's by chance.
var touchedBrokerKeys = map[string]string{
	"java44": "max.connections",
	"java39": "max.connections.per.ip",
	"java30": "producer.id.expiration.ms",
	"java28": "log.cleaner.backoff.ms",
}

// withoutTouched takes the lines of those configs out of what a client sees of a broker's. They go by their names: to
// leave out what is dynamic would leave them out in some runs only, and hide what a sidecar sets.
func withoutTouched(configs string) string {
	lines := slices.DeleteFunc(strings.Split(configs, "\n"), func(line string) bool {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "=")
		for _, touched := range touchedBrokerKeys {
			if name == touched {
				return true
			}
		}
		return false
	})
	return strings.Join(lines, "\n")
}

// javaClients are Kafka's own. Files are what a version can compile.
func javaClients() []*client {
	make := func(id, version string, quick bool, files ...string) *client {
		return &client{
			ID: id, Name: "Java", Version: version, Quick: quick,
			prepare: func(ctx context.Context, c *client, w *world) error { return prepareJava(ctx, c, version, files) },
			run: func(ctx context.Context, c *client, w *world, l leg) (*transcript, error) {
				t, err := runJava(ctx, c, "Script", strings.Join(l.seeds, ","), strings.Join(l.mirrorSeeds, ","), mirrored, l.prefix(c), touchedBrokerKeys[id])
				if p := t.part("configs"); p != nil {
					for i, o := range p.Seen {
						if o.Step == "broker" {
							p.Seen[i].Value = withoutTouched(o.Value)
						}
					}
				}
				return t, err
			},
		}
	}
	return []*client{
		make("java44", harness.Version44, true, "Script.java", "Later.java", "Newest.java"),
		make("java39", harness.Version39, false, "Script.java", "Later.java"),
		make("java30", "3.0.2", false, "Script.java"),
		make("java28", "2.8.2", false, "Script.java"),
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

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

//go:embed python/script.py
var pythonScript string

// librdkafkaNewest has the new group protocol, librdkafkaOld is what other tests use, too.
const (
	librdkafkaNewest = "2.16.1"
	librdkafkaOld    = harness.LibrdkafkaVersion
)

func librdkafkaClients() []*client {
	make := func(id, version string, quick bool) *client {
		return &client{
			ID: id, Name: "librdkafka (Python)", Version: version, Quick: quick,
			prepare: func(ctx context.Context, c *client, _ *world) (err error) {
				if c.python, err = harness.LibrdkafkaOf(ctx, version); err != nil {
					return fmt.Errorf("%w: %w", errNotHere, err)
				}
				return nil
			},
			run: runPython,
		}
	}
	return []*client{make("rdnew", librdkafkaNewest, true), make("rdold", librdkafkaOld, false)}
}

func runPython(ctx context.Context, c *client, _ *world, l leg) (*transcript, error) {
	cmd := exec.CommandContext(ctx, c.python, "-", strings.Join(l.seeds, ","), strings.Join(l.mirrorSeeds, ","), mirrored, l.prefix(c))
	cmd.Stdin = strings.NewReader(pythonScript)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	t := parseTranscript(string(out))
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		t.Broken = fmt.Sprintf("%s: %v: %s", t.Broken, err, failed.Stderr)
		err = nil
	}
	return t, err
}

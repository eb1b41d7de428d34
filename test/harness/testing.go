package harness

import (
	"context"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// StartT starts a cluster for a test and stops it at the test's end. The ends
// of the nodes' logs are shown if the test failed. Under -short it skips.
func StartT(tb testing.TB, cfg Config) *Cluster {
	tb.Helper()
	SkipShort(tb)
	c, err := Start(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			for _, n := range c.nodes {
				tb.Logf("the end of the log of %s:\n%s", n, n.LogTail())
			}
		}
		if err := c.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// SkipShort skips tests that need Java when -short is given.
func SkipShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a real Kafka cluster; not with -short")
	}
}

// ClientT makes a client on the INTERNAL listener and closes it at the test's end.
func (c *Cluster) ClientT(tb testing.TB, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	cl, err := c.Client(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cl.Close)
	return cl
}

// ToolT runs a program as [Installation.Tool] does and fails the test if that fails.
func (in *Installation) ToolT(tb testing.TB, stdin io.Reader, class string, args ...string) ToolResult {
	tb.Helper()
	res, err := in.Tool(tb.Context(), ToolRun{Class: class, Args: args, Stdin: stdin})
	if err != nil {
		tb.Fatal(err)
	}
	return res
}

// StartProcessT starts a program for a test and kills it at the test's end.
func StartProcessT(tb testing.TB, name string, argv, env []string, logFile string) *Process {
	tb.Helper()
	p, err := StartProcess(context.WithoutCancel(tb.Context()), name, argv, env, logFile)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the end of the log of %s:\n%s", name, p.LogTail())
		}
		if err := p.Kill(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

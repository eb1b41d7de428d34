package harness

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testLog(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func TestCluster(t *testing.T) {
	SkipShort(t)
	for _, tt := range []struct {
		name string
		cfg  Config
	}{
		{"combined 4.4", Config{Version: Version44, Brokers: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Log = testLog(t)
			begun := time.Now()
			c := StartT(t, tt.cfg)
			t.Logf("a cluster of %d nodes took %s", len(c.Nodes()), time.Since(begun).Round(time.Millisecond))
			cl := c.ClientT(t)
			createTopic(t, c, "t", 1, 2, nil)
			produce(t, cl, "t", 10)
		})
	}
}

func createTopic(t *testing.T, c *Cluster, topic string, partitions int32, rf int16, configs map[string]*string) {
	t.Helper()
	cl := c.ClientT(t)
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), partitions, rf, configs, topic); err != nil {
		t.Fatal(err)
	}
}

func produce(t *testing.T, cl *kgo.Client, topic string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range n {
		r := &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "value %d", i)}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

var _ = os.Stdout

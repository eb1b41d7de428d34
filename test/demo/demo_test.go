package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/goleak"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLag(t *testing.T) {
	offsets := func(by map[int32]int64) kadm.ListedOffsets {
		l := kadm.ListedOffsets{"t": {}}
		for p, o := range by {
			l["t"][p] = kadm.ListedOffset{Topic: "t", Partition: p, Offset: o}
		}
		return l
	}
	source := offsets(map[int32]int64{0: 10, 1: 20})
	for name, tt := range map[string]struct {
		dest    kadm.ListedOffsets
		missing int64
	}{
		"no topic yet":             {nil, 30},
		"one partition is missing": {offsets(map[int32]int64{0: 10}), 20},
		"behind":                   {offsets(map[int32]int64{0: 4, 1: 20}), 6},
		"equal":                    {source, 0},
		"ahead of what was asked":  {offsets(map[int32]int64{0: 12, 1: 20}), 0},
	} {
		if missing, total := lag(source, tt.dest); missing != tt.missing || total != 30 {
			t.Errorf("%s: missing %d of %d, want %d of 30", name, missing, total, tt.missing)
		}
	}
}

// TestRawProduceIsTaken: a refusal means something only if the same bytes are taken elsewhere.
func TestRawProduceIsTaken(t *testing.T) {
	cluster := harness.StartT(t, harness.Config{Brokers: 1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl := cluster.ClientT(t)
	admin := kadm.NewClient(cl)
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, target); err != nil {
		t.Fatal(err)
	}
	var topic kadm.TopicDetail
	for ctx.Err() == nil {
		details, err := admin.ListTopics(ctx, target)
		if err != nil {
			t.Fatal(err)
		}
		if topic = details[target]; topic.Err == nil && len(topic.Partitions) == 1 {
			break
		}
	}
	// A broker tells of a new topic a moment before it leads it.
	harness.AwaitT(t, time.Minute, "the record is taken", func(ctx context.Context) error {
		code, message, err := produceRaw(ctx, cl.SeedBrokers()[0], topic, 0)
		if err == nil && code != nil && !errors.Is(code, kerr.NotLeaderForPartition) {
			t.Fatalf("%v %q", code, message)
		}
		return errors.Join(code, err)
	})
	ends, err := admin.ListEndOffsets(ctx, target)
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := ends.Lookup(target, 0); o.Offset != 1 {
		t.Fatalf("log end %d after one record", o.Offset)
	}
}

// TestDemoSaysWhyAndCleansUp runs the demo without the binaries that it needs.
func TestDemoSaysWhyAndCleansUp(t *testing.T) {
	harness.SkipShort(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	if os.Getenv(harness.EnvCache) == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(harness.EnvCache, filepath.Join(cache, "mirror-sidecar"))
	}
	var out strings.Builder
	d := &demo{bin: filepath.Join(tmp, "nothing"), out: &out, begun: time.Now(), log: testLog(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	err := d.run(ctx)
	if err == nil || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "sidecar") {
		t.Errorf("error %v, want that the sidecar's binary does not exist\n%s", err, out.String())
	}
	if err := d.cleanUp(); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if e.Name() == harness.PortsFolder {
			continue // of all harnesses of this machine
		}
		t.Errorf("%s was left behind", e.Name())
	}
}

func testLog(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

package e2e

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A follower that was away for longer than the buffer reaches back catches up from the
// real replica that is in sync; the source is read once.
func TestLaggingFollower(t *testing.T) {
	dst := destination("", 2)
	dst.Kafka.Controllers = 1 // the quorum outlives a broker
	dst.Sidecar["mirror.buffer.memory.bytes"] = strconv.Itoa(16 << 20)
	e := start(t, dst)
	const topic = "lagging"
	e.createSource(t, 1, topic)
	e.createMirror(t, "m")
	e.mirrorTopics(t, "m", topic)

	before := e.counters(t)
	victim := e.dst.Cluster.Brokers()[1]
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("x", 10_000)
	const records = 6000
	write(t, e.writer(t, e.src.Bootstrap("INTERNAL"), kgo.ProducerBatchCompression(kgo.NoCompression())), topic, 1, records, value)
	eventually(t, "the broker that is left has all", func(context.Context) error {
		log, err := e.dst.Cluster.Brokers()[0].ReadLog(topic, 0)
		if err == nil && log.EndOffset() < records {
			err = errShort
		}
		return err
	})
	if err := victim.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.sameReplicas(t, topic)
	eventually(t, "back in the ISR", func(ctx context.Context) error {
		d, err := e.topic(ctx, topic)
		if err == nil && !slices.Contains(d.Partitions[0].ISR, victim.ID()) {
			err = errShort
		}
		return err
	})
	after := e.counters(t)
	written := float64(records * len(value))
	fetched := after["kafka_mirror_fetched_bytes_total"] - before["kafka_mirror_fetched_bytes_total"]
	helped := after[`kafka_mirror_served_bytes_total{from="replica"}`]
	t.Logf("written %.0f, read from the source %.0f, read from a real replica %.0f", written, fetched, helped)
	if fetched > written*1.1 {
		t.Errorf("%.0f bytes were read from the source for %.0f written", fetched, written)
	}
	if helped < written/2 {
		t.Errorf("only %.0f bytes came from the in-sync replica", helped)
	}
}

// counters sums up the sidecars' counters, by name with labels but for the mirror's.
func (e *env) counters(t *testing.T) map[string]float64 {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second}
	out := map[string]float64{}
	for _, c := range e.dst.Sidecars {
		resp, err := client.Get("http://" + c.HTTP + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			name, value, ok := strings.Cut(lines.Text(), " ")
			if v, err := strconv.ParseFloat(value, 64); ok && err == nil && strings.HasPrefix(name, "kafka_mirror_") {
				out[strings.TrimSuffix(name, `{mirror="m"}`)] += v
			}
		}
		resp.Body.Close()
	}
	return out
}

// errShort says that what is waited for is not there yet.
var errShort = errors.New("not yet")

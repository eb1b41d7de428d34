package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// failback tests mirrors in the opposite direction, and in rows.
func failback() []row {
	return []row{
		{proves: "C4.34 after a delete", run: backAfterDelete, reverse: true},
		{proves: "C4.37 divergent tails", run: backDivergent, reverse: true},
		{proves: "C4.38 clean failback", run: backClean, reverse: true, alone: true},
		{proves: "C4.39 loop", run: backLoop, reverse: true},
		{proves: "C4.40 two ways", run: backTwoWays, reverse: true},
		{proves: "C4.40 chain", run: backChain},
	}
}

// backMirror creates a mirror at the source that reads from the destination.
func (e *env) backMirror(t *testing.T, name string) string {
	t.Helper()
	// By way of the sidecars, which know what was mirrored.
	props := clusterConfig(e.dst.Cluster)
	props["bootstrap.servers"] = strings.Join(e.dst.Proxies(), ",")
	mirrorAt(t, e.back, name, props)
	return name
}

// startAt starts a topic at a stack.
func startAt(t *testing.T, s *stack.Stack, mirror, topic string, allowTruncate bool) error {
	t.Helper()
	req := protocol.NewStartMirrorTopicsRequest()
	req.MirrorName, req.Topics, req.AllowTruncate = mirror, []string{topic}, allowTruncate
	return sendAt(t, s.Sidecars[0].Proxy, &req, topic)
}

// waitFailedAt waits until a partition is FAILED at a stack, and returns what it says.
func waitFailedAt(t *testing.T, s *stack.Stack, mirror, topic string) string {
	t.Helper()
	said := ""
	cl := apiClient(t, s.Sidecars[0].Proxy)
	eventually(t, topic+" is FAILED", func(ctx context.Context) error {
		d, err := describe(ctx, cl, mirror)
		if err != nil {
			return err
		}
		parts := d.topic(topic).Partitions
		if len(parts) == 0 {
			return errors.New("not described")
		}
		p := parts[0]
		if p.State != failed {
			return fmt.Errorf("state %d (%s %s)", p.State, text(p.Detail), text(p.ErrorMessage))
		}
		said = text(p.ErrorMessage)
		return nil
	})
	return said
}

func backAfterDelete(t *testing.T, e *env) {
	m := e.mirrored(t, "c4-34", 1, 6)
	e.ended(t, m, m)
	req := protocol.NewDeleteClusterMirrorRequest()
	req.MirrorName = m
	r := ask[*protocol.DeleteClusterMirrorResponse](t, e, 0, &req)
	if err := protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage); err != nil {
		t.Fatal(err)
	}
	back := e.backMirror(t, "c4-34.back")
	if err := startAt(t, e.back, back, m, false); err != nil {
		if !strings.Contains(err.Error(), "6") {
			t.Errorf("refused with %v, without the number of records", err)
		}
	} else if said := waitFailedAt(t, e.back, back, m); !strings.Contains(said, "6") {
		t.Errorf("FAILED says %q, without the number of records", said)
	}
	if got := endsT(t, e.srcAdmin, m)[0]; got != 6 {
		t.Errorf("the old source ends at %d", got)
	}
}

func backDivergent(t *testing.T, e *env) {
	m := e.mirrored(t, "c4-37", 1, 10)
	e.ended(t, m, m)
	e.write(t, m, 1, 7)
	if err := produce(t.Context(), writer(t, e.dst.Proxies()), m, 1, 4, "new"); err != nil {
		t.Fatal(err)
	}
	back := e.backMirror(t, "c4-37.other-name")
	if err := startAt(t, e.back, back, m, false); err != nil {
		t.Fatal(err)
	}
	if said := waitFailedAt(t, e.back, back, m); !strings.Contains(said, "7") {
		t.Errorf("FAILED says %q, without the number of records", said)
	}
	if got := endsT(t, e.srcAdmin, m)[0]; got != 17 {
		t.Errorf("the old source ends at %d without consent, want 17", got)
	}
	if err := startAt(t, e.back, back, m, true); err != nil {
		t.Fatal(err)
	}
	waitStateAt(t, e.back, back, mirroring, m)
	sameEnds(t, e.dstAdmin, e.srcAdmin, m)
	equal(t, e.dstClient, e.srcClient, m)
}

func backClean(t *testing.T, e *env) {
	m := e.mirror(t, "c4-38")
	createTopic(t, e.srcClient, 1, 1, m, "retention.ms", "-1")
	const records, size = 200, 10_000
	w := writer(t, e.src.Bootstrap(harness.ListenerInternal), kgo.ProducerBatchCompression(kgo.NoCompression()))
	for i := range records {
		w.Produce(t.Context(), &kgo.Record{Topic: m, Value: fmt.Appendf(nil, "%0*d", size, i)}, nil)
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.started(t, m, m)
	e.copied(t, m)
	e.ended(t, m, m)
	if err := produce(t.Context(), writer(t, e.dst.Proxies(), kgo.ProducerBatchCompression(kgo.NoCompression())), m, 1, 4, "new"); err != nil {
		t.Fatal(err)
	}
	// The counter counts: what came here was counted.
	if there := fetched(t, e.dst, m); there < records*size {
		t.Errorf("%.0f bytes were counted for %d records of %d bytes", there, records, size)
	}
	back := e.backMirror(t, "c4-38.back")
	if err := startAt(t, e.back, back, m, false); err != nil {
		t.Fatal(err)
	}
	waitStateAt(t, e.back, back, mirroring, m)
	sameEnds(t, e.dstAdmin, e.srcAdmin, m)
	equal(t, e.dstClient, e.srcClient, m)
	took := fetched(t, e.back, back)
	t.Logf("%.0f bytes were fetched for 4 new records after %d of %d bytes", took, records, size)
	// A batch of four small records, and not one of the old ones.
	if took < 61 || took >= size {
		t.Errorf("%.0f bytes were fetched", took)
	}
}

// fetched is what a stack's sidecars have read for a mirror.
func fetched(t *testing.T, s *stack.Stack, mirror string) float64 {
	t.Helper()
	return metric(t, s, fmt.Sprintf("kafka_mirror_fetched_bytes_total{mirror=%q}", mirror))
}

// metric sums a metric over the sidecars of a stack. With labels, they are all it has.
func metric(t *testing.T, s *stack.Stack, name string) float64 {
	t.Helper()
	sum, found := 0.0, false
	for _, c := range s.Sidecars {
		for _, line := range metrics(t, c) {
			if rest, ok := strings.CutPrefix(line, name); ok && (strings.HasPrefix(rest, "{") || strings.HasPrefix(rest, " ")) {
				v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
				if err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				sum, found = sum+v, true
			}
		}
	}
	if !found {
		t.Errorf("no sidecar has the metric %s", name)
	}
	return sum
}

func metrics(t *testing.T, c *stack.Sidecar) []string {
	t.Helper()
	resp, err := http.Get("http://" + c.HTTP + "/metrics") //nolint:noctx // a local question with a short answer
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out []string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		out = append(out, lines.Text())
	}
	return out
}

func backLoop(t *testing.T, e *env) {
	m := e.mirrored(t, "c4-39", 1, 3)
	back := e.backMirror(t, "c4-39.back")
	var said string
	if err := startAt(t, e.back, back, m, true); err != nil {
		said = err.Error()
	} else {
		said = waitFailedAt(t, e.back, back, m)
	}
	if !strings.Contains(said, m) {
		t.Errorf("refused with %q, which does not name the mirror %s", said, m)
	}
	if got := endsT(t, e.srcAdmin, m)[0]; got != 3 {
		t.Errorf("the source ends at %d", got)
	}
	e.write(t, m, 1, 2)
	e.copied(t, m)
}

func backTwoWays(t *testing.T, e *env) {
	m := e.mirrored(t, "c4-40", 1, 3)
	const other = "c4-40.back"
	createTopic(t, e.dstClient, 1, 2, other)
	if err := produce(t.Context(), writer(t, e.dst.Proxies()), other, 1, 5, "there"); err != nil {
		t.Fatal(err)
	}
	back := e.backMirror(t, other)
	if err := startAt(t, e.back, back, other, false); err != nil {
		t.Fatal(err)
	}
	waitStateAt(t, e.back, back, mirroring, other)
	e.write(t, m, 1, 3)
	if err := produce(t.Context(), writer(t, e.dst.Proxies()), other, 1, 5, "there"); err != nil {
		t.Fatal(err)
	}
	e.copied(t, m)
	sameEnds(t, e.dstAdmin, e.srcAdmin, other)
	e.equal(t, m)
	equal(t, e.dstClient, e.srcClient, other)
}

// backChain mirrors from the source to the destination to a third cluster.
func backChain(t *testing.T, e *env) {
	s := e.secured(t)
	m := e.mirror(t, "c4-40.chain")
	createTopic(t, e.srcClient, 1, 1, m, "retention.ms", "-1")
	if err := produce(t.Context(), writer(t, e.src.Bootstrap(harness.ListenerInternal)), m, 1, 10, "idempotent"); err != nil {
		t.Fatal(err)
	}
	e.started(t, m, m)
	admin := s.as(userAdmin)
	req := createRequest("c4-40.c", clusterConfig(e.dst.Cluster))
	r := askAt[*protocol.CreateClusterMirrorResponse](t, s.stack.Sidecars[0].Proxy, req, admin)
	if err := protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage); err != nil {
		t.Fatal(err)
	}
	if err := sendAt(t, s.stack.Sidecars[0].Proxy, vStart.request("c4-40.c", m), m, admin); err != nil {
		t.Fatal(err)
	}
	e.write(t, m, 1, 5)
	e.copied(t, m)
	cl := s.client(t, userAdmin)
	sameEnds(t, e.dstAdmin, s.admin(t), m)
	equal(t, e.dstClient, cl, m)
	// What the third one got is what the first one has.
	equal(t, e.srcClient, cl, m)
	if err := sendAt(t, s.stack.Sidecars[0].Proxy, vStop.request("c4-40.c", m), m, admin); err != nil {
		t.Error(err)
	}
}

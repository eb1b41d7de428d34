package lastreplica

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// testRogue: no sidecar is alive, a real broker leads, and a client writes to it around
// the proxies. The write lock refuses that; where a policy has refused the lock, what got in is
// removed exactly when the sidecars return, and counted.
func (e *env) testRogue(t *testing.T) {
	const topic = "rogue"
	src := e.flowing(t, topic)
	e.mirrored(t, topic)
	for _, c := range e.dst.Sidecars {
		if text, err := os.ReadFile(c.LogFile()); err == nil && strings.Contains(string(text), "the write lock of a mirror topic is refused, it is mirrored without") {
			break
		} else if c == e.dst.Sidecars[brokers-1] {
			t.Error("no sidecar has logged that the write lock is refused")
		}
	}
	leaders := 1
	if harness.Full() {
		leaders = brokers - 1
	}
	e.sidecarsDie(t)
	total := e.rogues(t, topic, leaders)
	if total == 0 {
		t.Fatal("nothing got in: the test shows nothing")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.dst.StartSidecars(ctx); err != nil {
		t.Fatal(err)
	}
	e.wellAgain(t, topic)
	eventually(t, "what was removed is told", func(ctx context.Context) error {
		d, err := e.described(ctx, topic)
		if err == nil && (text(d.Detail) != "FOREIGN_RECORDS" || !strings.Contains(text(d.ErrorMessage), fmt.Sprintf("%d records that clients wrote here", total))) {
			err = errors.New(told(d))
		}
		return err
	})
	if got := e.counted(t, "kafka_mirror_foreign_records_total"); got != float64(total) {
		t.Errorf("%.0f foreign records were counted, %d got in", got, total)
	}
	e.equal(t, topic, src.end())
}

// sidecarsDie kills all sidecars at once.
func (e *env) sidecarsDie(t *testing.T) {
	t.Helper()
	var all errgroup.Group
	for _, c := range e.dst.Sidecars {
		all.Go(c.Kill)
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}

// rogues has n real brokers lead one after the other, lets a client write to each, and returns
// how many records got in. All brokers are alive at the end, and in sync.
func (e *env) rogues(t *testing.T, topic string, n int) (total int) {
	t.Helper()
	for i := range n {
		var leader int32
		eventually(t, "a real broker leads", func(context.Context) error {
			p, err := e.partition(topic)
			if err == nil && (p.Leader < 0 || isVirtual(p.Leader)) {
				err = fmt.Errorf("led by %d, in sync %v", p.Leader, p.ISR)
			}
			leader = p.Leader
			return err
		})
		const records = 7
		cl := client(t, e.dst.Direct(), manual(), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.RecordDeliveryTimeout(30*time.Second))
		var rs []*kgo.Record
		for j := range records {
			rs = append(rs, &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "rogue %d %d", i, j)})
		}
		for _, r := range cl.ProduceSync(t.Context(), rs...) {
			if r.Err != nil {
				t.Fatalf("write to broker %d: %v", leader, r.Err)
			}
			total++
		}
		// They are copied, as ordinary records are, before the next one leads.
		eventually(t, "every replica has what got in", func(context.Context) error {
			var ends []int64
			for _, b := range e.dst.Cluster.Brokers() {
				l, err := b.ReadLog(topic, 0)
				if err != nil {
					return err
				}
				ends = append(ends, l.EndOffset())
			}
			for _, end := range ends {
				if end != ends[0] {
					return fmt.Errorf("logs end at %v", ends)
				}
			}
			return nil
		})
		if i+1 < n {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if err := e.dst.Cluster.Node(leader).Restart(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
	}
	return total
}

// counted sums up a counter of all sidecars.
func (e *env) counted(t *testing.T, name string) (sum float64) {
	t.Helper()
	cl := http.Client{Timeout: 5 * time.Second}
	for _, c := range e.dst.Sidecars {
		resp, err := cl.Get("http://" + c.HTTP + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if n, value, ok := strings.Cut(lines.Text(), " "); ok && n == name {
				v, err := strconv.ParseFloat(value, 64)
				if err != nil {
					t.Error(err)
				}
				sum += v
			}
		}
		resp.Body.Close()
	}
	return sum
}

// TestLockHolds: with the write lock in place the broker itself refuses what a client writes
// while no sidecar is alive.
func TestLockHolds(t *testing.T) {
	if !harness.Full() {
		t.Skip("the long form only (MIRROR_FULL=1)")
	}
	e := start(t, nil)
	const topic = "locked"
	src := e.flowing(t, topic)
	e.mirrored(t, topic)
	e.sidecarsDie(t)
	eventually(t, "a real broker leads", func(context.Context) error {
		p, err := e.partition(topic)
		if err == nil && (p.Leader < 0 || isVirtual(p.Leader)) {
			err = fmt.Errorf("led by %d, in sync %v", p.Leader, p.ISR)
		}
		return err
	})
	for _, acks := range []kgo.Acks{kgo.LeaderAck(), kgo.AllISRAcks()} {
		cl := client(t, e.dst.Direct(), manual(), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(acks), kgo.RecordRetries(1), kgo.RecordDeliveryTimeout(20*time.Second))
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("rogue")}).FirstErr(); err == nil {
			t.Errorf("a write with acks %v was taken", acks)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.dst.StartSidecars(ctx); err != nil {
		t.Fatal(err)
	}
	e.wellAgain(t, topic)
	e.equal(t, topic, src.end())
	if got := e.counted(t, "kafka_mirror_foreign_records_total"); got != 0 {
		t.Errorf("%.0f foreign records", got)
	}
}

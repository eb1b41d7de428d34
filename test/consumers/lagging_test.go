package consumers

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// testLagging cuts the replica that clients are shown as the leader off from the virtual brokers, so that
// it falls out of the ISR while it lives: consumers go to another one, and miss nothing.
func (e *env) testLagging(t *testing.T) {
	if !harness.Full() {
		t.Skip("takes the time that a replica may be late; in the full form")
	}
	src := e.srcClient(t)
	n := 0
	write := func(count int) {
		t.Helper()
		for range count {
			n++
			if err := src.ProduceSync(t.Context(), &kgo.Record{Topic: lagging, Value: fmt.Append(nil, n)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(10)
	e.mirrored(t, lagging)
	const total = 60
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	readers := e.readers(t, lagging)
	got := make([][]int64, len(readers))
	var group errgroup.Group
	for i, r := range readers {
		group.Go(func() (err error) {
			if got[i], err = r.read(ctx, total); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			return nil
		})
	}
	shown := e.shown(t)
	cut, err := e.net.Between(fmt.Sprintf("dest-%d", shown), "sidecar-*")
	if err != nil {
		t.Fatal(err)
	}
	cut.Cut()
	write(20)
	harness.AwaitT(t, patience, "the replica that is shown falls out of the ISR, and another one is shown", func(ctx context.Context) error {
		topics, err := e.dstAdmin.ListTopics(ctx, lagging)
		if err != nil {
			return err
		}
		if isr := topics[lagging].Partitions[0].ISR; slices.Contains(isr, shown) {
			return fmt.Errorf("in sync are %v", isr)
		}
		if now := e.shown(t); now == shown {
			return fmt.Errorf("%d is shown", now)
		}
		return nil
	})
	write(10)
	s := e.proxies(t)[slices.IndexFunc(e.proxies(t), func(s side) bool { return s.name == fmt.Sprintf("proxy %d", shown) })]
	// Leaders change until the sidecars believe that the replica does not come back.
	harness.AwaitT(t, patience, "what is behind answers no consumer", func(context.Context) error {
		for version := minFetch; version <= maxFetch; version++ {
			for _, offset := range []int64{0, 35, 1000} {
				p := fetchOne(t, s, addFetch(fetchRequest(version, 0, -1, 0), s, lagging, 0, offset))
				if p.ErrorCode != kerr.NotLeaderForPartition.Code {
					return fmt.Errorf("v%d at %d: error %d", version, offset, p.ErrorCode)
				}
			}
		}
		p := s.ask(t, offsetsRequest(7, lagging, 0, 0, -1)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if p.ErrorCode != kerr.NotLeaderForPartition.Code {
			return fmt.Errorf("ListOffsets: error %d, offset %d", p.ErrorCode, p.Offset)
		}
		return nil
	})
	cut.Restore()
	e.whole(t, lagging)
	write(20)
	e.mirrored(t, lagging)
	harness.AwaitT(t, patience, "in sync again, it answers", func(context.Context) error {
		p := fetchOne(t, s, addFetch(fetchRequest(maxFetch, 0, -1, 0), s, lagging, 0, 55))
		if p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
			return fmt.Errorf("error %d, %d bytes", p.ErrorCode, len(p.RecordBatches))
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	want := e.offsetsAt(t, []string{e.srcAddr}, lagging, 0, false)
	for i, r := range readers {
		sameOffsets(t, r.name, want, got[i])
	}
}

// shown gives the replica that clients are told leads.
func (e *env) shown(t *testing.T) int32 {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(lagging)
	req.Topics = append(req.Topics, rt)
	return e.proxies(t)[0].ask(t, req).(*kmsg.MetadataResponse).Topics[0].Partitions[0].Leader
}

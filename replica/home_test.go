package replica

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/batch/batchtest"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher"
	"github.com/cluster-mirroring/mirror-sidecar/replica/internal/scripted"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestHomeTellsWhatItsFileSays: how long a follower may lag and how large a segment may be are
// settings of a broker that the metadata log does not hold.
func TestHomeTellsWhatItsFileSays(t *testing.T) {
	configs := map[string]string{"inter.broker.listener.name": "INTERNAL", keyReplicaLag: "10000", keySegment: "1048576", keySession: "18000"}
	c, err := scripted.Listen("127.0.0.1:0", nil, func(req kmsg.Request) kmsg.Response {
		describe, ok := req.(*kmsg.DescribeConfigsRequest)
		if !ok {
			return nil
		}
		resp := describe.ResponseKind().(*kmsg.DescribeConfigsResponse)
		r := kmsg.NewDescribeConfigsResponseResource()
		if describe.Resources[0].ResourceName != "2" {
			r.ErrorCode = kerr.InvalidRequest.Code
		} else {
			for key, value := range configs {
				if !slices.Contains(describe.Resources[0].ConfigNames, key) {
					continue
				}
				rc := kmsg.NewDescribeConfigsResponseResourceConfig()
				rc.Name, rc.Value = key, &value
				r.Configs = append(r.Configs, rc)
			}
		}
		resp.Resources = append(resp.Resources, r)
		return resp
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addr()), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	image := metadata.NewImage(10000)
	image.Set(nil, []metadata.Broker{{ID: 1}, {ID: 2}, {ID: 10001}}, nil)
	h, err := FindHome(t.Context(), cl, image, 10000)
	if want := (Home{ID: 2, Listener: "INTERNAL", ReplicaLag: 10 * time.Second, Segment: 1 << 20, Session: 18 * time.Second}); err != nil || h != want {
		t.Errorf("%+v, %v; want %+v", h, err, want)
	}
}

// TestAnswersFitIntoASegment: a follower refuses an answer larger than a segment and gives the
// partition up. Where the topic says nothing of it, the broker's own setting counts.
func TestAnswersFitIntoASegment(t *testing.T) {
	for _, tc := range []struct {
		name   string
		topic  map[string]string
		broker int
		want   int
	}{
		{"the topic's", map[string]string{"segment.bytes": "2097152"}, 1 << 20, 2 << 20},
		{"the broker's", nil, 1 << 20, 1 << 20},
		{"Kafka's", nil, 0, 1 << 30},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newWishRig(t)
			if tc.broker > 0 {
				r.m.cfg.Segment = tc.broker
			}
			p := &metadata.Partition{Topic: "t", TopicID: r.tp.TopicID, Leader: wishFollows, Replicas: []int32{wishSelf, wishFollows}}
			r.m.broker = &resigner{}
			r.m.image.Set([]*metadata.Partition{p}, nil, map[string]map[string]string{"t": tc.topic})
			r.m.update(p)
			if r.p.segment != tc.want {
				t.Errorf("answers of %d bytes at most, want %d", r.p.segment, tc.want)
			}
			if r.phase() != leading.Off {
				t.Error("it leads")
			}
		})
	}
}

// TestBatchLargerThanASegment: it would make every follower give the partition up. What comes
// before it is mirrored, and with larger segments it goes on.
func TestBatchLargerThanASegment(t *testing.T) {
	r := newWishRig(t)
	r.lead(wishEpoch)
	r.reading()
	r.p.step(func(time.Time) { r.p.segment = 1 << 20 })
	fits, large := batchtest.Plain(0, 10), batchtest.Sized(10, 2<<20, nil)
	r.src.sink().Fetched(fetcher.Fetched{Batches: []batch.Batch{fits, large}, HighWatermark: 11})
	if rep := r.reported(Failing); !strings.Contains(rep.Message, "segment.bytes") || !strings.Contains(rep.Message, "offset 10") {
		t.Errorf("reported %+v", rep)
	}
	r.notReading()
	if end := r.m.Status()[0].DestinationOffset; end != 10 {
		t.Errorf("mirrored up to %d", end)
	}
	r.p.step(func(time.Time) { r.p.segment = 4 << 20 })
	r.pass(time.Minute)
	r.reading()
	r.src.sink().Fetched(fetcher.Fetched{Batches: []batch.Batch{batchtest.Sized(10, 2<<20, nil)}, HighWatermark: 11})
	r.reported(Aligned)
	if end := r.m.Status()[0].DestinationOffset; end != 11 {
		t.Errorf("mirrored up to %d", end)
	}
}

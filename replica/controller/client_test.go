package controller_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/cluster-mirroring/mirror-sidecar/replica/controller"
	"github.com/cluster-mirroring/mirror-sidecar/replica/internal/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func listen(t *testing.T, h scripted.Handler) *scripted.Controller {
	t.Helper()
	c, err := scripted.Listen("127.0.0.1:0", nil, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func client(t *testing.T, addrs ...string) *controller.Client {
	t.Helper()
	c, err := controller.New(addrs, nil, discard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// heartbeats answers heartbeats with code and counts them.
func heartbeats(n *atomic.Int32, code int16) scripted.Handler {
	return func(req kmsg.Request) kmsg.Response {
		n.Add(1)
		resp := req.ResponseKind()
		if r, ok := resp.(*kmsg.BrokerHeartbeatResponse); ok {
			r.ErrorCode = code
		}
		return resp
	}
}

func TestFindsTheActiveControllerAndKeepsToIt(t *testing.T) {
	var idle, active atomic.Int32
	a := listen(t, heartbeats(&idle, kerr.NotController.Code))
	b := listen(t, heartbeats(&active, 0))
	c := client(t, a.Addr(), b.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 5 {
		resp, err := c.Request(ctx, kmsg.NewPtrBrokerHeartbeatRequest())
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.(*kmsg.BrokerHeartbeatResponse).ErrorCode; got != 0 {
			t.Fatalf("error code %d", got)
		}
	}
	if idle.Load() != 1 || active.Load() != 5 {
		t.Fatalf("asked the idle controller %d times (want 1), the active one %d times (want 5)", idle.Load(), active.Load())
	}
}

func TestMovesOnWhenTheActiveControllerDies(t *testing.T) {
	var first, second atomic.Int32
	a := listen(t, heartbeats(&first, 0))
	b := listen(t, heartbeats(&second, 0))
	c := client(t, a.Addr(), b.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := c.Request(ctx, kmsg.NewPtrBrokerHeartbeatRequest()); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if _, err := c.Request(ctx, kmsg.NewPtrBrokerHeartbeatRequest()); err != nil {
		t.Fatal(err)
	}
	if first.Load() != 1 || second.Load() != 1 {
		t.Fatalf("asked %d and %d times, want 1 and 1", first.Load(), second.Load())
	}
}

// A paused controller process still accepts connections and answers nothing.
func TestMovesOnWhenTheActiveControllerHangs(t *testing.T) {
	release := make(chan struct{})
	a := listen(t, func(kmsg.Request) kmsg.Response { <-release; return nil })
	t.Cleanup(func() { close(release) })
	var n atomic.Int32
	b := listen(t, heartbeats(&n, 0))
	c := client(t, a.Addr(), b.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	start := time.Now()
	if _, err := c.Request(ctx, kmsg.NewPtrBrokerHeartbeatRequest()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 8*time.Second {
		t.Fatalf("took %v, which would cost a broker its session", took)
	}
}

func TestErrorNamesWhatEachControllerAnswered(t *testing.T) {
	var n atomic.Int32
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	answer := heartbeats(&n, kerr.NotController.Code)
	a := listen(t, func(req kmsg.Request) kmsg.Response {
		if n.Load() > 0 { // who is asked once more is asked after all others
			cancel()
		}
		return answer(req)
	})
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	deadAddr := dead.Addr().String()
	dead.Close()
	c := client(t, a.Addr(), deadAddr)
	_, err = c.Request(ctx, kmsg.NewPtrBrokerHeartbeatRequest())
	var unavailable *controller.UnavailableError
	if !errors.As(err, &unavailable) || !errors.Is(err, context.Canceled) || !errors.Is(err, kerr.NotController) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"BrokerHeartbeat", a.Addr(), deadAddr, "NOT_CONTROLLER", "refused"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func TestAnswersOfOtherKinds(t *testing.T) {
	alter := func(code int16) kmsg.Response {
		r := kmsg.NewPtrAlterPartitionResponse()
		rt := kmsg.NewAlterPartitionResponseTopic()
		rp := kmsg.NewAlterPartitionResponseTopicPartition()
		rp.ErrorCode = code
		rt.Partitions = append(rt.Partitions, rp)
		r.Topics = append(r.Topics, rt)
		return r
	}
	create := func(codes ...int16) kmsg.Response {
		r := kmsg.NewPtrCreateTopicsResponse()
		for i, c := range codes {
			rt := kmsg.NewCreateTopicsResponseTopic()
			rt.Topic, rt.ErrorCode = strconv.Itoa(i), c
			r.Topics = append(r.Topics, rt)
		}
		return r
	}
	snapshot := func(code int16) kmsg.Response {
		r := kmsg.NewPtrFetchSnapshotResponse()
		rt := kmsg.NewFetchSnapshotResponseTopic()
		rp := kmsg.NewFetchSnapshotResponseTopicPartition()
		rp.ErrorCode = code
		rt.Partitions = append(rt.Partitions, rp)
		r.Topics = append(r.Topics, rt)
		return r
	}
	for _, tt := range []struct {
		name    string
		req     kmsg.Request
		resp    kmsg.Response
		goesOn  bool
		comment string
	}{
		{name: "an epoch ahead of the controller's", req: kmsg.NewPtrAlterPartitionRequest(), resp: alter(41)},
		{name: "every topic refused", req: kmsg.NewPtrCreateTopicsRequest(), resp: create(41, 41), goesOn: true},
		{name: "one topic refused otherwise", req: kmsg.NewPtrCreateTopicsRequest(), resp: create(41, 36)},
		{name: "snapshot of a deposed leader", req: kmsg.NewPtrFetchSnapshotRequest(), resp: snapshot(6), goesOn: true},
		{name: "snapshot gone", req: kmsg.NewPtrFetchSnapshotRequest(), resp: snapshot(98)},
		{name: "no right", req: kmsg.NewPtrBrokerHeartbeatRequest(), resp: &kmsg.BrokerHeartbeatResponse{ErrorCode: 31}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var second atomic.Int32
			a := listen(t, func(kmsg.Request) kmsg.Response { return tt.resp })
			b := listen(t, func(req kmsg.Request) kmsg.Response { second.Add(1); return req.ResponseKind() })
			c := client(t, a.Addr(), b.Addr())
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := c.Request(ctx, tt.req); err != nil {
				t.Fatal(err)
			}
			if got := second.Load() > 0; got != tt.goesOn {
				t.Fatalf("went on to the next controller: %v, want %v", got, tt.goesOn)
			}
		})
	}
}

// The seeds may be only a part of the quorum; a fetch's answer names the leader.
func TestLearnsTheLeaderFromAFetch(t *testing.T) {
	var n atomic.Int32
	leader := listen(t, func(req kmsg.Request) kmsg.Response {
		n.Add(1)
		r := req.ResponseKind()
		if f, ok := r.(*kmsg.FetchResponse); ok {
			rt := kmsg.NewFetchResponseTopic()
			rt.Partitions = append(rt.Partitions, kmsg.NewFetchResponseTopicPartition())
			f.Topics = append(f.Topics, rt)
		}
		return r
	})
	host, port, _ := net.SplitHostPort(leader.Addr())
	p, _ := strconv.Atoi(port)
	seed := listen(t, func(req kmsg.Request) kmsg.Response {
		switch r := req.ResponseKind().(type) {
		case *kmsg.FetchResponse:
			rt := kmsg.NewFetchResponseTopic()
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.ErrorCode = 6
			rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = 3, 7
			rt.Partitions = append(rt.Partitions, rp)
			r.Topics = append(r.Topics, rt)
			r.Brokers = append(r.Brokers, kmsg.FetchResponseBroker{NodeID: 3, Host: host, Port: int32(p)})
			return r
		case *kmsg.BrokerHeartbeatResponse:
			r.ErrorCode = 41
			return r
		default:
			return nil
		}
	})
	c := client(t, seed.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	f := kmsg.NewPtrFetchRequest()
	if _, err := c.Request(ctx, f); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Request(ctx, kmsg.NewPtrBrokerHeartbeatRequest()); err != nil {
		t.Fatal(err)
	}
	if n.Load() != 2 {
		t.Fatalf("the leader was asked %d times, want 2", n.Load())
	}
}

func TestNewRefusesNonsense(t *testing.T) {
	for _, addrs := range [][]string{nil, {"nohostport"}, {"a:1", "b:2:3"}} {
		if c, err := controller.New(addrs, nil, discard()); err == nil {
			c.Close()
			t.Errorf("%v was taken", addrs)
		}
	}
}

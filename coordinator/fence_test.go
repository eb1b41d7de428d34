package coordinator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

func TestFenceRequests(t *testing.T) {
	for name, c := range map[string]struct {
		req   protocol.FenceTopicWritesRequest
		code  int16
		topic int16 // of the one topic
	}{
		"ends":         {protocol.FenceTopicWritesRequest{Topics: []string{"t"}}, 0, 0},
		"no such":      {protocol.FenceTopicWritesRequest{Topics: []string{"t"}, LeaseMs: 1000}, 0, kerr.UnknownTopicOrPartition.Code},
		"negative":     {protocol.FenceTopicWritesRequest{Topics: []string{"t"}, LeaseMs: -1}, kerr.InvalidRequest.Code, 0},
		"for too long": {protocol.FenceTopicWritesRequest{Topics: []string{"t"}, LeaseMs: int32(maxFence.Milliseconds()) + 1}, kerr.InvalidRequest.Code, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := fences{}
			co := barred(t, nil)
			co.deps.Fences = f
			resp := co.fenceAnswer(t.Context(), false, &c.req).(*protocol.FenceTopicWritesResponse)
			if resp.ErrorCode != c.code {
				t.Fatalf("%+v", resp)
			}
			if c.code == 0 && (len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != c.topic) {
				t.Errorf("%+v", resp.Topics)
			}
			if got := len(f) == 1; got != (c.code == 0 && c.topic == 0) {
				t.Errorf("fenced: %v", f)
			}
		})
	}
	// Without a lease a fence is not begun anew.
	co := barred(t, nil)
	resp := co.fenceAnswer(t.Context(), true, &protocol.FenceTopicWritesRequest{Topics: []string{"t"}}).(*protocol.FenceTopicWritesResponse)
	if resp.Topics[0].ErrorMessage != nil {
		t.Errorf("message %s", *resp.Topics[0].ErrorMessage)
	}
	co.deps.Fences = nil
	if code := codeIn(co.fenceAnswer(t.Context(), false, &protocol.FenceTopicWritesRequest{})); code != kerr.UnsupportedVersion.Code {
		t.Errorf("code %d without listeners", code)
	}
}

// fencingPeers answer as their virtual broker's id says.
type fencingPeers struct {
	answers map[int32]error
	message string // of the answer of 10002
	once    bool   // 10002 fails once only

	mu    sync.Mutex
	asked map[int32]int32
	times map[int32]int
}

func (p *fencingPeers) Request(_ context.Context, id int32, req kmsg.Request) (kmsg.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times[id]++
	p.asked[id] = req.(*protocol.FenceTopicWritesRequest).LeaseMs
	if err := p.answers[id]; err != nil && (id != 10002 || !p.once || p.times[id] == 1) {
		return nil, err
	}
	resp := req.ResponseKind().(*protocol.FenceTopicWritesResponse)
	resp.Topics = []protocol.TopicResult{{Name: "t"}}
	if id == 10002 {
		resp.Topics[0].ErrorMessage = &p.message
	}
	return resp, nil
}

func TestFencePeers(t *testing.T) {
	brokers := []metadata.Broker{{ID: 1}, {ID: 2}, {ID: 10001}, {ID: 10002}, {ID: 10003, Fenced: true}}
	dead := errors.New("connection refused")
	for name, c := range map[string]struct {
		answers map[int32]error
		once    bool
		missing string
	}{
		"all":               {nil, false, ""},
		"a dead one":        {map[int32]error{10003: dead}, false, ""},
		"one that is alive": {map[int32]error{10002: dead}, false, "10002"},
		"started anew":      {map[int32]error{10002: dead}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &fencingPeers{answers: c.answers, once: c.once, asked: map[int32]int32{}, times: map[int32]int{}}
			co := barred(t, nil)
			co.deps.Peers = p
			anew := anewAt{}
			patience := 30 * time.Second
			if c.missing != "" {
				patience = 200 * time.Millisecond // each is asked once in any case
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := co.fencePeers(ctx, brokers, []string{"t"}, 2000, anew)
			if want := c.missing == ""; slices.Equal(anew["t"], []int32{10002}) != want {
				t.Errorf("anew at %v", anew)
			}
			if (err == nil) != (c.missing == "") || err != nil && !strings.Contains(err.Error(), c.missing) {
				t.Errorf("got %v", err)
			}
			if len(p.asked) != 2 || p.asked[10002] != 2000 || p.asked[10003] != 2000 {
				t.Errorf("asked %v", p.asked)
			}
		})
	}
}

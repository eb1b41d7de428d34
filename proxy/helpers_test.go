package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// sarama's metrics library starts one for the life of the process.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

const (
	testVirtual = ids.Virtual(10000)
	patience    = 10 * time.Second
)

func topicID(n byte) ids.UUID { return ids.UUID{0: n, 6: 0x40, 15: 1} }

// fakeView is a metadata image that tests write.
type fakeView struct {
	mu    sync.Mutex
	parts map[ids.TopicPartition]*metadata.Partition
	names map[string]ids.UUID
	subs  []func(metadata.Delta)
}

func newFakeView(parts ...*metadata.Partition) *fakeView {
	v := &fakeView{parts: make(map[ids.TopicPartition]*metadata.Partition), names: make(map[string]ids.UUID)}
	for _, p := range parts {
		v.put(p)
	}
	return v
}

func (v *fakeView) put(p *metadata.Partition) {
	v.mu.Lock()
	tp := ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}
	v.parts[tp] = p
	v.names[p.Topic] = p.TopicID
	subs := slices.Clone(v.subs)
	v.mu.Unlock()
	for _, fn := range subs {
		fn(metadata.Delta{Partitions: []ids.TopicPartition{tp}})
	}
}

func (v *fakeView) remove(id ids.UUID) {
	v.mu.Lock()
	for tp, p := range v.parts {
		if tp.TopicID == id {
			delete(v.parts, tp)
			delete(v.names, p.Topic)
		}
	}
	subs := slices.Clone(v.subs)
	v.mu.Unlock()
	for _, fn := range subs {
		fn(metadata.Delta{RemovedTopics: []ids.UUID{id}})
	}
}

func (v *fakeView) Partition(tp ids.TopicPartition) *metadata.Partition {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.parts[tp]
}

func (v *fakeView) Topic(name string) (ids.UUID, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	id, ok := v.names[name]
	return id, ok
}

func (v *fakeView) TopicName(id ids.UUID) (string, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, other := range v.names {
		if id == other {
			return name, true
		}
	}
	return "", false
}

func (v *fakeView) TopicPartitions(id ids.UUID) []*metadata.Partition {
	var out []*metadata.Partition
	for _, p := range v.AllPartitions() {
		if p.TopicID == id {
			out = append(out, p)
		}
	}
	return out
}

func (v *fakeView) AllPartitions() []*metadata.Partition {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []*metadata.Partition
	for _, p := range v.parts {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *metadata.Partition) int {
		return cmpOr(bytes.Compare(a.TopicID[:], b.TopicID[:]), int(a.Partition-b.Partition))
	})
	return out
}

func cmpOr(a, b int) int {
	if a != 0 {
		return a
	}
	return b
}

func (v *fakeView) Subscribe(fn func(metadata.Delta)) func() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.subs = append(v.subs, fn)
	return func() {}
}

// fakeMirrors names the mirror of each topic, and the partitions with a recorded state.
type fakeMirrors struct {
	of       map[ids.UUID]string
	readOnly map[ids.TopicPartition]bool
	stray    map[ids.TopicPartition]bool // with whether that is sure
}

func (m fakeMirrors) MirrorOf(id ids.UUID) (string, bool) { n, ok := m.of[id]; return n, ok }
func (m fakeMirrors) Recorded(id ids.UUID) bool {
	_, ok := m.of[id]
	for tp := range m.readOnly {
		ok = ok || tp.TopicID == id
	}
	return ok
}

func (m fakeMirrors) Stray(tp ids.TopicPartition) (stray, sure bool) {
	sure, stray = m.stray[tp]
	return stray, sure
}

func (m fakeMirrors) ReadOnly(tp ids.TopicPartition) bool { return m.readOnly[tp] }

// mirrorPart is a partition that virtual broker 10001 leads, with real replicas 2 and 1.
func mirrorPart(topic string, id ids.UUID, partition int32) *metadata.Partition {
	return &metadata.Partition{
		Topic: topic, TopicID: id, Partition: partition,
		Replicas: []int32{10001, 10002, 2, 1}, ISR: []int32{10001, 1, 2},
		Leader: 10001, LeaderEpoch: 5,
	}
}

func ordinaryPart(topic string, id ids.UUID, partition int32) *metadata.Partition {
	return &metadata.Partition{
		Topic: topic, TopicID: id, Partition: partition,
		Replicas: []int32{1, 2}, ISR: []int32{1, 2}, Leader: 1, LeaderEpoch: 3,
	}
}

// fakeBroker answers requests by a script.
type fakeBroker struct {
	t  testing.TB
	ln net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	got   []gotRequest
}

type gotRequest struct {
	header
	frame []byte
}

// script answers one request frame: the bytes to write, nil for none. It may close c.
type script func(c net.Conn, h header, frame []byte) []byte

func startBroker(t testing.TB, s script) *fakeBroker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &fakeBroker{t: t, ln: ln}
	b.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.conns = append(b.conns, c)
			b.mu.Unlock()
			b.wg.Go(func() { b.serve(c, s) })
		}
	})
	t.Cleanup(b.stop)
	return b
}

func (b *fakeBroker) serve(c net.Conn, s script) {
	defer c.Close()
	flex := newFlexTable()
	for {
		frame, err := readFrame(c)
		if err != nil {
			return
		}
		h, err := parseHeader(frame, flex.flexible)
		if err != nil { // a SASL token, or a body that tests made up
			h = header{key: -1}
			if len(frame) >= minRequest {
				h = fixedHeader(frame)
			}
		}
		b.mu.Lock()
		b.got = append(b.got, gotRequest{h, frame})
		b.mu.Unlock()
		if out := s(c, h, frame); out != nil {
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}
}

func (b *fakeBroker) requests() []gotRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

func (b *fakeBroker) closeConns() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		c.Close()
	}
}

func (b *fakeBroker) stop() {
	b.ln.Close()
	b.closeConns()
	b.wg.Wait()
}

// answers makes a script of a function on decoded messages.
func answers(t testing.TB, fn func(kmsg.Request) kmsg.Response) script {
	return func(_ net.Conn, h header, frame []byte) []byte {
		req := kmsg.RequestForKey(h.key)
		if req == nil {
			t.Errorf("request with unknown key %d", h.key)
			return nil
		}
		req.SetVersion(h.version)
		if err := req.ReadFrom(frame[h.size:]); err != nil {
			t.Errorf("request of key %d version %d: %v", h.key, h.version, err)
			return nil
		}
		resp := fn(req)
		if resp == nil {
			return nil
		}
		resp.SetVersion(h.version)
		return appendResponse(nil, resp, h.correlation)
	}
}

func readFrame(r io.Reader) ([]byte, error) {
	var l [4]byte
	if _, err := io.ReadFull(r, l[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(l[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

// frameOf puts the length before a frame.
func frameOf(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// setup is a proxy before a fake broker.
type setup struct {
	cfg  Config
	deps Deps
	view *fakeView
}

func (s *setup) start(t testing.TB, b *fakeBroker) (*Proxy, string) {
	t.Helper()
	if s.view == nil {
		s.view = newFakeView()
	}
	s.cfg.Name = "TEST"
	s.cfg.IDs = testVirtual
	s.cfg.Home = 1
	if s.cfg.Dial == nil {
		s.cfg.Dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", b.ln.Addr().String())
		}
	}
	s.deps.View = s.view
	if s.deps.Mirrors == nil {
		s.deps.Mirrors = fakeMirrors{of: map[ids.UUID]string{topicID(1): "dr"}}
	}
	s.deps.Leaders = NewLeaders(s.view, testVirtual)
	if s.cfg.Virtual && s.deps.Replica == nil {
		s.deps.Replica = &fakeReplica{}
	}
	if s.deps.Log == nil {
		s.deps.Log = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	p, err := New(s.cfg, s.deps)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(ln); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		b.closeConns()
		if err := p.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		s.deps.Leaders.Close()
	})
	return p, ln.Addr().String()
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(string(bytes.TrimSpace(b)))
	return len(b), nil
}

// client is a client of the proxy.
type client struct {
	t testing.TB
	net.Conn
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { c.Close() })
	return &client{t, c}
}

var testClientID = "tester"

func (c *client) send(req kmsg.Request, correlation int32) {
	c.t.Helper()
	if _, err := c.Write(encodeRequest(req, correlation, &testClientID)); err != nil {
		c.t.Fatal(err)
	}
}

// recv reads the response to a request.
func (c *client) recv(req kmsg.Request, correlation int32) kmsg.Response {
	c.t.Helper()
	frame, err := readFrame(c)
	if err != nil {
		c.t.Fatalf("response: %v", err)
	}
	if got := int32(binary.BigEndian.Uint32(frame)); got != correlation {
		c.t.Fatalf("correlation id %d, want %d", got, correlation)
	}
	body, err := responseBody(frame, req.Key(), req.IsFlexible())
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := decodeResponse(req.Key(), req.GetVersion(), body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

func (c *client) ask(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	c.send(req, 7)
	return c.recv(req, 7)
}

func (c *client) wantClosed() {
	c.t.Helper()
	var b [1]byte
	if _, err := c.Read(b[:]); err == nil {
		c.t.Fatal("got data, want the connection closed")
	} else if errors.Is(err, context.DeadlineExceeded) {
		c.t.Fatal("connection still open")
	} else if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		c.t.Fatal("connection still open")
	}
}

// fakeReplica is a virtual broker whose answers tests give.
type fakeReplica struct {
	fetch func(context.Context, *kmsg.FetchRequest) (FetchReply, error)
}

func (r *fakeReplica) Fetch(ctx context.Context, req *kmsg.FetchRequest) (FetchReply, error) {
	if r.fetch == nil {
		return nil, errors.New("no script")
	}
	return r.fetch(ctx, req)
}

func (r *fakeReplica) ListOffsets(_ context.Context, req *kmsg.ListOffsetsRequest) (*kmsg.ListOffsetsResponse, error) {
	return listOffsetsErrors(req, 0), nil
}

func (r *fakeReplica) OffsetForLeaderEpoch(_ context.Context, req *kmsg.OffsetForLeaderEpochRequest) (*kmsg.OffsetForLeaderEpochResponse, error) {
	return epochErrors(req, 0), nil
}

func (r *fakeReplica) WriteTxnMarkers(_ context.Context, req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error) {
	return markerErrors(req, 0), nil
}

type fakeReply struct{ resp *kmsg.FetchResponse }

func (r fakeReply) Release() {}

func (r fakeReply) AppendFrame(correlation int32, version int16) net.Buffers {
	r.resp.Version = version
	return net.Buffers{appendResponse(nil, r.resp, correlation)}
}

// waitFor waits for something that happens on another goroutine.
func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal("timed out")
		}
	}
}

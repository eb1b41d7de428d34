package proxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/readonly"
)

// produceOf is a Produce request with so many bytes of records for each partition.
func produceOf(version int16, size int, topics ...string) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, -1, 1000
	for i, name := range topics {
		t := kmsg.NewProduceRequestTopic()
		t.Topic, t.TopicID = name, topicID(byte(i+1))
		p := kmsg.NewProduceRequestTopicPartition()
		p.Records = pattern(size)
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	return req
}

// producedOK is the answer of a broker that took everything.
func producedOK(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = req.Version
	for _, t := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition = p.Partition
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// fetchedOf is the answer of a Fetch with so many bytes of records for each partition of a topic.
func fetchedOf(version int16, size, partitions int) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = version
	t := kmsg.NewFetchResponseTopic()
	t.Topic, t.TopicID = "o", topicID(1)
	for i := range partitions {
		p := kmsg.NewFetchResponseTopicPartition()
		p.Partition = int32(i)
		p.PreferredReadReplica = -1
		p.RecordBatches = pattern(size)
		t.Partitions = append(t.Partitions, p)
	}
	resp.Topics = append(resp.Topics, t)
	return resp
}

// ordinaryView has ordinary topics, and a state topic as wherever a sidecar runs.
func ordinaryView() *fakeView {
	return newFakeView(ordinaryPart("o", topicID(1), 0), ordinaryPart("p", topicID(2), 0), ordinaryPart(stateTopic, topicID(7), 0))
}

// seeing reports whether lightProduce streams a request, all of which has come.
func seeing(t *testing.T, p *Proxy, req *kmsg.ProduceRequest, have int) (free bool, err error) {
	t.Helper()
	frame := encodeRequest(req, 1, &testClientID)[sizeLen:]
	c := &conn{p: p}
	_, free, err = c.seeProduce(fixedHeader(frame), frame[:min(have, len(frame))])
	return free, err
}

func TestProduceOfOrdinaryTopicsIsStreamed(t *testing.T) {
	const all = 1 << 30
	view := ordinaryView()
	view.put(mirrorPart("m", topicID(3), 0))
	view.put(ordinaryPart("once", topicID(4), 0))
	view.put(ordinaryPart("half", topicID(5), 0))
	fences := NewFences(time.Now)
	if _, err := fences.Fence([]string{"fenced"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	view.put(ordinaryPart("fenced", topicID(6), 0))
	s := setup{view: view}
	s.deps.Fences = fences
	s.deps.Mirrors = fakeMirrors{
		of:       map[ids.UUID]string{topicID(3): "dr", topicID(4): "dr", topicID(5): "dr"},
		readOnly: map[ids.TopicPartition]bool{{TopicID: topicID(5), Partition: 0}: true},
	}
	p, _ := s.start(t, startBroker(t, echo))
	id := func(req *kmsg.ProduceRequest, names ...byte) *kmsg.ProduceRequest {
		for i, n := range names {
			req.Topics[i].TopicID = topicID(n)
		}
		return req
	}
	for name, tc := range map[string]struct {
		req  *kmsg.ProduceRequest
		have int
		free bool
		err  error
	}{
		"one topic":               {produceOf(9, 1<<20, "o"), produceHead, true, nil},
		"one topic, classic":      {produceOf(8, 1<<20, "o"), produceHead, true, nil},
		"one topic, by id":        {id(produceOf(13, 1<<20, "o"), 1), produceHead, true, nil},
		"two topics":              {produceOf(9, 1000, "o", "p"), all, true, nil},
		"two topics, not seen":    {produceOf(9, 1000, "o", "p"), 500, false, errShort},
		"a mirror":                {produceOf(9, 1<<20, "m"), produceHead, false, nil},
		"a mirror, by id":         {id(produceOf(13, 1<<20, "m"), 3), produceHead, false, nil},
		"a mirror behind another": {produceOf(9, 1000, "o", "m"), all, false, nil},
		"the state topic":         {produceOf(9, 10, stateTopic), all, false, nil},
		"the state topic, by id":  {id(produceOf(13, 10, "x"), 7), all, false, nil},
		"fenced":                  {produceOf(9, 10, "fenced"), all, false, nil},
		"fenced, by id":           {id(produceOf(13, 10, "fenced"), 6), all, false, nil},
		"a stopped mirror":        {produceOf(9, 10, "once"), all, true, nil},
		"recorded as read only":   {produceOf(9, 10, "half"), all, false, nil},
		"unknown":                 {produceOf(9, 10, "new"), all, false, nil},
		"unknown, by id":          {id(produceOf(13, 10, "new"), 99), all, false, nil},
		"nothing":                 {produceOf(9, 0), all, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			free, err := seeing(t, p, tc.req, tc.have)
			if free != tc.free || err != tc.err { //nolint:errorlint // the cursor's own
				t.Errorf("free %v, %v, want %v, %v", free, err, tc.free, tc.err)
			}
		})
	}
}

// A decision at a request's first bytes holds for all of it, or the broker does not get it.
func TestFenceHoldsForRequestOnItsWay(t *testing.T) {
	for name, change := range map[string]func(*fakeView, *Fences){
		"fenced":      func(_ *fakeView, f *Fences) { _, _ = f.Fence([]string{"o"}, time.Hour) },
		"mirrored":    func(v *fakeView, _ *Fences) { v.put(mirrorPart("o", topicID(1), 0)) },
		"still free":  func(v *fakeView, _ *Fences) { v.put(mirrorPart("m", topicID(3), 0)) },
		"unmentioned": nil,
	} {
		for _, state := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				view := newFakeView(ordinaryPart("o", topicID(1), 0))
				if state {
					view = ordinaryView()
				}
				fences := NewFences(time.Now)
				req := produceOf(9, 300<<10, "o")
				b := startBroker(t, answers(t, func(kmsg.Request) kmsg.Response { return producedOK(req) }))
				s := setup{view: view}
				s.deps.Fences = fences
				p, addr := s.start(t, b)
				c := dial(t, addr)
				frame := encodeRequest(req, 7, &testClientID)
				if _, err := c.Write(frame[:100<<10]); err != nil {
					t.Fatal(err)
				}
				// The decision is made: the request counts as one whose answer is due.
				waitFor(t, func() bool {
					p.mu.Lock()
					defer p.mu.Unlock()
					for c := range p.conns {
						return c.watched.due.Load() == 1
					}
					return false
				})
				if change != nil {
					change(view, fences)
				}
				_, _ = c.Write(frame[100<<10:])
				if name == "fenced" || name == "mirrored" {
					c.wantClosed()
					if n := len(b.requests()); n != 0 {
						t.Errorf("the broker got %d requests", n)
					}
					return
				}
				c.recv(req, 7)
			})
		}
	}
}

// What the kernel moves does not come into this process, in either direction.
func TestLargeFramesAreSpliced(t *testing.T) {
	const size = 4 << 20
	req, fetch := produceOf(9, size, "o"), fetchOf(12, -1, "o")
	b := startBroker(t, answers(t, func(got kmsg.Request) kmsg.Response {
		if got.Key() == int16(kmsg.Fetch) {
			return fetchedOf(12, size/2, 2)
		}
		return producedOK(req)
	}))
	s := setup{view: ordinaryView()}
	p, addr := s.start(t, b)
	c := dial(t, addr)
	c.ask(req)
	// The read buffer may have got so much of it, and the end waits.
	if n := p.spliced.Load(); n < size-readBuffer-guardedEnd {
		t.Errorf("%d bytes of a Produce request of %d were spliced", n, size)
	}
	before := p.spliced.Load()
	resp := c.ask(fetch).(*kmsg.FetchResponse)
	if n := p.spliced.Load() - before; n < size-2*readBuffer {
		t.Errorf("%d bytes of a Fetch response of %d were spliced", n, size)
	}
	for _, part := range resp.Topics[0].Partitions {
		if !slices.Equal(part.RecordBatches, pattern(size/2)) {
			t.Error("records differ")
		}
	}
}

// Small requests that come together go out together.
func TestSmallRequestsAreGathered(t *testing.T) {
	var writes countingConn
	var in []byte
	for i := range 10 {
		in = append(in, relayFrame(int32(i), pattern(100))...)
	}
	in = append(in, relayFrame(10, pattern(20000))...)
	want := slices.Clone(in)
	in = append(in, 0, 0, 1, 0, 9) // the beginning of another
	r := relay{dst: &writes, src: bufio.NewReaderSize(bytes.NewReader(in), readBuffer)}
	for range 11 {
		b, err := r.src.Peek(sizeLen)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.copyFrame(int64(sizeLen + binary.BigEndian.Uint32(b))); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(writes.got, want) || len(r.gathered) > 0 {
		t.Error("what went out differs")
	}
	if writes.n > 2 {
		t.Errorf("%d writes", writes.n)
	}
}

// The end of a request that is looked at once more goes out with what came last, and not by itself:
// a broker that is woken for one byte costs as much as for all of it.
func TestEndOfRequestIsNoPieceOfItsOwn(t *testing.T) {
	p, _ := (&setup{view: ordinaryView()}).start(t, startBroker(t, echo))
	frame := encodeRequest(produceOf(9, readBuffer+readBuffer/2, "o"), 1, &testClientID)
	var up countingConn
	c := newFuzzedConn(p, &servingConn{Reader: bytes.NewReader(frame)}, &up)
	if err := c.readFrame(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(up.got, frame) || up.n != 2 { // as it was read
		t.Errorf("%d of %d bytes went out by %d writes", len(up.got), len(frame), up.n)
	}
}

// Records go out with the fields before them.
func TestFieldsGoOutWithTheirRecords(t *testing.T) {
	p, _ := (&setup{view: ordinaryView()}).start(t, startBroker(t, echo))
	const partitions = 4
	raw := appendResponse(nil, fetchedOf(12, readBuffer/2, partitions), 1)
	var client countingConn
	c := newFuzzedConn(p, &client, &servingConn{Reader: bytes.NewReader(raw)})
	c.toClient = relay{dst: &client, src: c.out.r, spliced: &p.spliced}
	ex := relayed(header{key: int16(kmsg.Fetch), version: 12})
	c.inspectFetch(&ex)
	if err := ex.inspect(c, &ex, len(raw)-sizeLen); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(client.got, raw) || client.n > 2*partitions {
		t.Errorf("%d of %d bytes went out by %d writes", len(client.got), len(raw), client.n)
	}
}

// What was gathered goes out when the connection ends in order: its answers are waited for.
func TestDrainSendsWhatIsGathered(t *testing.T) {
	p, _ := new(setup).start(t, startBroker(t, echo))
	var up countingConn
	one := relayFrame(1, pattern(10))
	c := newFuzzedConn(p, &servingConn{Reader: bytes.NewReader(slices.Concat(one, one))}, &up)
	p.deps.Metrics = onRequest(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.draining = true
	})
	if err := c.read(); !errors.Is(err, errDrained) {
		t.Errorf("ended by %v", err)
	}
	if len(c.queue) != 1 || !bytes.Equal(up.got, one) {
		t.Errorf("%d answers are due, and the broker got %d bytes", len(c.queue), len(up.got))
	}
}

// onRequest is told of each request.
type onRequest func()

func (f onRequest) Request(int16, int16, int)     { f() }
func (onRequest) Refused(int16, readonly.Refused) {}

// countingConn is what is written to a connection.
type countingConn struct {
	net.Conn
	got []byte
	n   int
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.got = append(c.got, b...)
	c.n++
	return len(b), nil
}

// A request that would be decoded is not let grow in memory beyond all bounds.
func TestOversizedRequestIsNotDecoded(t *testing.T) {
	b := startBroker(t, echo)
	_, addr := new(setup).start(t, b)
	c := dial(t, addr)
	frame := []byte{0, 0, 0, 0, 0, byte(kmsg.ListOffsets), 0, 1, 0, 0, 0, 1, 0xff, 0xff}
	binary.BigEndian.PutUint32(frame, maxDecoded+1)
	if _, err := c.Write(frame); err != nil {
		t.Fatal(err)
	}
	c.wantClosed() // at once, and not when the rest has come
	if n := len(b.requests()); n != 0 {
		t.Errorf("the broker got %d requests", n)
	}
}

// No request on the way that most take needs memory of its own.
func TestRelayAllocatesNothing(t *testing.T) {
	produce := func(version int16, size int) (kmsg.Request, kmsg.Response) {
		req := produceOf(version, size, "o")
		return req, producedOK(req)
	}
	fetch := func(version int16, size int) (kmsg.Request, kmsg.Response) {
		return fetchOf(version, -1, "o"), fetchedOf(version, size, 3)
	}
	cases := make(map[string][2][]byte)
	for _, size := range []int{100, 1 << 20} {
		for _, version := range []int16{8, 9, 11, 13} {
			req, resp := produce(version, size)
			cases[fmt.Sprintf("produce v%d of %d", version, size)] = [2][]byte{encodeRequest(req, 1, &testClientID), appendResponse(nil, resp, 1)}
		}
		for _, version := range []int16{11, 12, 18} {
			req, resp := fetch(version, size)
			cases[fmt.Sprintf("fetch v%d of %d", version, size)] = [2][]byte{encodeRequest(req, 1, &testClientID), appendResponse(nil, resp, 1)}
		}
		frame := relayFrame(1, pattern(size))
		cases[fmt.Sprintf("untouched of %d", size)] = [2][]byte{frame, frameOf(frame[8:])}
	}
	for name, frames := range cases {
		runs := 100
		if len(frames[0])+len(frames[1]) > 1<<20 {
			runs = 20
		}
		t.Run(name, func(t *testing.T) {
			trip := roundTrips(t, frames[0], frames[1])
			n := testing.AllocsPerRun(runs, func() { trip(t) })
			if n >= 1 && !raceEnabled { // its pools drop some of what is given back
				t.Errorf("%.0f allocations a request", n)
			}
		})
	}
}

// roundTrips returns a function that sends a request through a proxy and reads its response, with
// the least possible work at both ends.
func roundTrips(t testing.TB, request, response []byte) func(testing.TB) {
	t.Helper()
	s := setup{view: ordinaryView()}
	s.deps.Log, s.deps.Mirrors = discardLog(), fakeMirrors{}
	_, addr := s.start(t, &fakeBroker{ln: fixedBroker(t, request, response)})
	return trips(tripTo(t, addr), request, response)
}

// fixedBroker answers each request of a fixed length with the same response.
func fixedBroker(t testing.TB, request, response []byte) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, len(request))
		for {
			if _, err := io.ReadFull(c, buf); err != nil {
				return
			}
			if _, err := c.Write(response); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return ln
}

func tripTo(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func trips(c net.Conn, request, response []byte) func(testing.TB) {
	buf := make([]byte, len(response))
	return func(t testing.TB) {
		if _, err := c.Write(request); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkRelay compares the ways to a broker that does nothing: direct, through a relay that looks
// at nothing, and through the proxy. The difference of the last two is what it costs to know what
// passes.
func BenchmarkRelay(b *testing.B) {
	for _, size := range []int{100, 10 << 10, 100 << 10, 1 << 20, 10 << 20} {
		fetch, produce := fetchOf(12, -1, "o"), produceOf(11, size, "o")
		for name, frames := range map[string][2][]byte{
			"fetch-response":  {encodeRequest(fetch, 1, &testClientID), appendResponse(nil, fetchedOf(12, size, 1), 1)},
			"produce-request": {encodeRequest(produce, 1, &testClientID), appendResponse(nil, producedOK(produce), 1)},
		} {
			ways := []struct {
				name string
				to   func(net.Listener) string
			}{
				{"direct", func(broker net.Listener) string { return broker.Addr().String() }},
				{"plain", func(broker net.Listener) string { return plainRelay(b, broker) }},
				{"proxy", func(broker net.Listener) string {
					s := setup{view: ordinaryView()}
					s.deps.Log, s.deps.Mirrors = discardLog(), fakeMirrors{}
					_, addr := s.start(b, &fakeBroker{ln: broker})
					return addr
				}},
			}
			for _, way := range ways {
				b.Run(fmt.Sprintf("%s-%d/%s", name, size, way.name), func(b *testing.B) {
					trip := trips(tripTo(b, way.to(fixedBroker(b, frames[0], frames[1]))), frames[0], frames[1])
					b.SetBytes(int64(len(frames[0]) + len(frames[1])))
					b.ReportAllocs()
					before := processTime(b)
					for b.Loop() {
						trip(b)
					}
					b.ReportMetric(float64((processTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
				})
			}
		}
	}
}

// plainRelay passes on whatever one client and the broker send, as the kernel can best.
func plainRelay(b *testing.B, broker net.Listener) string {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		up, err := net.Dial("tcp", broker.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		var both sync.WaitGroup
		both.Go(func() {
			_, _ = io.Copy(up, c)
			_ = up.Close()
		})
		_, _ = io.Copy(c, up)
		_ = c.Close()
		both.Wait()
	})
	b.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return ln.Addr().String()
}

// processTime is what the process has used of the cores, both ends of the connection included.
func processTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

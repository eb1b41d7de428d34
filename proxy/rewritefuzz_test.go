package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// fuzzedFrame bounds the requests of the fuzzed proxies.
const fuzzedFrame = 1 << 20

// fuzzedProxies are one whose brokers advertise their proxies, one that maps addresses, and one
// at a virtual listener.
func fuzzedProxies(f *testing.F) [3]*Proxy {
	f.Helper()
	view := newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart(stateTopic, topicID(7), 0), ordinaryPart("o", topicID(2), 0))
	leaders := NewLeaders(view, testVirtual)
	f.Cleanup(leaders.Close)
	fences := NewFences(time.Now)
	_, _ = fences.Fence([]string{"o"}, time.Hour)
	var out [3]*Proxy
	for i := range out {
		cfg := Config{MaxFrame: fuzzedFrame, IDs: testVirtual, Home: 1, Virtual: i == 2, Dial: Dialer(func() []string { return nil }, nil)}
		if i == 1 {
			cfg.Compute = func(node int32, _ HostPort) (HostPort, bool) { return HostPort{"proxy", node % 1000}, true }
		}
		p, err := New(cfg, Deps{
			View: view, Leaders: leaders, Fences: fences, Replica: &fakeReplica{}, Configs: &fakeConfigs{}, Coordinators: fakeCoordinators{},
			Mirrors: fakeMirrors{of: map[ids.UUID]string{topicID(1): "dr"}}, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			f.Fatal(err)
		}
		out[i] = p
	}
	return out
}

// allocated is how many bytes fn had allocated, and whatever runs beside it.
func allocated(fn func()) uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	before := s[0].Value.Uint64()
	fn()
	metrics.Read(s)
	return s[0].Value.Uint64() - before
}

// allocatedFor is what decoding and encoding so many foreign bytes may allocate: an empty element
// of an array takes a byte or two there, and a few hundred here.
func allocatedFor(n int) uint64 { return 1<<20 + 2000*uint64(n) }

// FuzzRewrite gives what rewrites responses whatever a broker may answer. What comes of it can be
// decoded again, differs only where the table says so, names no virtual broker, and would not be
// rewritten again.
func FuzzRewrite(f *testing.F) {
	proxies := fuzzedProxies(f)
	for _, r := range table() {
		for version := range r.max + 1 {
			if r.rewrite != nil {
				f.Add(r.key, version, false, filled(r.key, version).AppendTo(nil))
				f.Add(r.key, version, true, filled(r.key, version).AppendTo(nil))
			}
		}
	}
	table := fields()
	f.Fuzz(func(t *testing.T, key, version int16, mapped bool, body []byte) {
		p := proxies[0]
		if mapped {
			p = proxies[1]
		}
		rewrite := p.rewriter(key, version)
		if rewrite == nil {
			return
		}
		was, err := decodeResponse(key, version, slices.Clone(body))
		if err != nil {
			return
		}
		var resp kmsg.Response
		var out []byte
		took := allocated(func() {
			if resp, err = rewrite(slices.Clone(body)); err == nil && resp != nil {
				out = resp.AppendTo(nil)
			}
		})
		if most := allocatedFor(len(body)); took > most {
			t.Errorf("%d bytes of a response had %d allocated, at most %d", len(body), took, most)
		}
		if err != nil {
			t.Fatalf("what can be decoded is not rewritten: %v", err)
		}
		now := was
		if resp != nil {
			if now, err = decodeResponse(key, version, out); err != nil {
				t.Fatalf("what was rewritten cannot be decoded: %v", err)
			}
			if !bytes.Equal(now.AppendTo(nil), out) {
				t.Error("what was rewritten is decoded as something else")
			}
		}
		name := kmsg.NameForKey(key)
		for _, path := range differences(name, reflect.ValueOf(was).Elem(), reflect.ValueOf(now).Elem()) {
			if !mayChange(table, path) {
				t.Errorf("%s has changed", path)
			}
		}
		for _, path := range virtuals(name, reflect.ValueOf(now).Elem(), table) {
			t.Errorf("%s names a virtual broker", path)
		}
		if again, err := rewrite(now.AppendTo(nil)); err != nil || again != nil {
			t.Errorf("it would be rewritten again, %v", err)
		}
	})
}

// mayChange tells whether rewriting changes a field: one of the table's, a list with such fields
// in its elements, or what goes with them.
func mayChange(table map[string]fate, path string) bool {
	for known, f := range table {
		if f.by != "" && (known == path || strings.HasPrefix(known, path+".")) {
			return true
		}
	}
	switch field := path[strings.LastIndexByte(path, '.')+1:]; field {
	case "LeaderEpoch": // none without a leader
		return strings.HasSuffix(path, ".CurrentLeader.LeaderEpoch")
	case "ErrorCode", "ErrorMessage": // whether there is a leader to show, or a coordinator
		return true
	case "IsInternal": // the state topic
		return true
	case "Rack": // of a hidden node in a large response
		return path == "Fetch.Brokers.Rack"
	}
	return false
}

// differences lists the fields in which two messages of a type differ. Lists of different lengths
// differ as a whole.
func differences(path string, a, b reflect.Value) []string {
	switch a.Kind() {
	case reflect.Struct:
		var out []string
		for i := range a.NumField() {
			if a.Type().Field(i).IsExported() && a.Type().Field(i).Name != "UnknownTags" {
				out = append(out, differences(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))...)
			}
		}
		return out
	case reflect.Slice:
		if a.Len() != b.Len() {
			return []string{path}
		}
		if structOf(a.Type()) == nil {
			break
		}
		var out []string
		for i := range a.Len() {
			out = append(out, differences(path, a.Index(i), b.Index(i))...)
		}
		return out
	case reflect.Pointer:
		if !a.IsNil() && !b.IsNil() {
			return differences(path, a.Elem(), b.Elem())
		}
	}
	if reflect.DeepEqual(a.Interface(), b.Interface()) || a.Kind() == reflect.Slice && a.Len() == 0 {
		return nil
	}
	return []string{path}
}

// virtuals lists the fields of the table that hold the id of a virtual broker.
func virtuals(path string, v reflect.Value, table map[string]fate) []string {
	var out []string
	for i := range v.NumField() {
		f, p := v.Field(i), path+"."+v.Type().Field(i).Name
		switch f.Kind() {
		case reflect.Struct:
			if f.Type().Name() != "Tags" {
				out = append(out, virtuals(p, f, table)...)
			}
		case reflect.Slice:
			for j := range f.Len() {
				if e := f.Index(j); e.Kind() == reflect.Struct {
					out = append(out, virtuals(p, e, table)...)
				} else if e.Kind() == reflect.Int32 && table[p].by != "" && testVirtual.Is(int32(e.Int())) {
					out = append(out, p)
				}
			}
		case reflect.Int32:
			if table[p].by != "" && !strings.HasSuffix(p, "Port") && testVirtual.Is(int32(f.Int())) {
				out = append(out, p)
			}
		}
	}
	return out
}

// FuzzFetchWalk passes a Fetch response on both ways, as one that fits the read buffer and as one
// that does not. What kmsg can decode passes, and names no virtual broker any more; a large one
// keeps its length.
func FuzzFetchWalk(f *testing.F) {
	proxies := fuzzedProxies(f)
	for version := followersAnswer; version <= 18; version++ {
		f.Add(version, false, filled(int16(kmsg.Fetch), version).AppendTo(nil))
		f.Add(version, true, filled(int16(kmsg.Fetch), version).AppendTo(nil))
		f.Add(version, false, fetchedOf(version, 100, 2).AppendTo(nil))
	}
	table := fields()
	f.Fuzz(func(t *testing.T, version int16, mapped bool, body []byte) {
		if version < followersAnswer || version > 18 || len(body) > readBuffer/2 {
			return
		}
		p := proxies[0]
		if mapped {
			p = proxies[1]
		}
		raw := rawFrame(version >= fetchFlexible, body)
		was, wasErr := decodeResponse(int16(kmsg.Fetch), version, slices.Clone(body))
		for name, deliver := range map[string]func(f *fetchInspector, c *conn, ex *exchange, size int) error{
			"small": (*fetchInspector).deliverSmall, "large": (*fetchInspector).deliverLarge,
		} {
			var client countingConn
			up := bufio.NewReaderSize(bytes.NewReader(slices.Concat(raw, []byte("next"))), readBuffer)
			c := &conn{p: p, client: &client, out: &upstreamReader{r: up}}
			c.toClient = relay{dst: &client, src: up, spliced: &p.spliced}
			ex := &exchange{key: int16(kmsg.Fetch), version: version, transform: p.rewriter(int16(kmsg.Fetch), version)}
			fi := &fetchInspector{p: p, version: version, transform: ex.transform}
			var err error
			took := allocated(func() { err = deliver(fi, c, ex, len(raw)-sizeLen) })
			if most := allocatedFor(len(body)); took > most {
				t.Errorf("%s: %d bytes of a response had %d allocated, at most %d", name, len(body), took, most)
			}
			if err != nil {
				if wasErr == nil && bytes.Equal(was.AppendTo(nil), body) {
					t.Errorf("%s: what can be decoded does not pass: %v", name, err)
				}
				continue
			}
			if name == "large" && len(client.got) != len(raw) {
				t.Errorf("%s: %d bytes became %d", name, len(raw), len(client.got))
			}
			if rest, _ := up.Peek(5); string(rest) != "next" {
				t.Errorf("%s: behind the response comes %q", name, rest)
			}
			if wasErr != nil {
				continue
			}
			got, err := responseBody(client.got[sizeLen:], int16(kmsg.Fetch), version >= fetchFlexible)
			if err != nil {
				t.Fatal(err)
			}
			now, err := decodeResponse(int16(kmsg.Fetch), version, got)
			if err != nil {
				t.Fatalf("%s: what has passed cannot be decoded: %v", name, err)
			}
			for _, path := range differences("Fetch", reflect.ValueOf(was).Elem(), reflect.ValueOf(now).Elem()) {
				if !mayChange(table, path) {
					t.Errorf("%s: %s has changed", name, path)
				}
			}
			for _, path := range virtuals("Fetch", reflect.ValueOf(now).Elem(), table) {
				t.Errorf("%s: %s names a virtual broker", name, path)
			}
		}
	})
}

// rawFrame is a response frame of a body.
func rawFrame(flexible bool, body []byte) []byte {
	if flexible {
		return rawResponse(1, body)
	}
	return frameOf(append([]byte{0, 0, 0, 1}, body...))
}

// FuzzProduceWalk walks over Produce requests and responses. What is streamed is what kmsg finds
// nothing in that the rules refuse, and what passes untouched is what rewriting would not change.
func FuzzProduceWalk(f *testing.F) {
	proxies := fuzzedProxies(f)
	fences := NewFences(time.Now)
	proxies[0].deps.Fences = fences // none
	for version := range int16(14) {
		for _, topics := range [][]string{{"o"}, {"m"}, {"o", "m"}, {stateTopic}, {}} {
			req := produceOf(version, 100, topics...)
			f.Add(version, encodeRequest(req, 1, &testClientID)[sizeLen:], producedOK(req).AppendTo(nil))
		}
		f.Add(version, encodeRequest(produceOf(version, 3, "o"), 1, nil)[sizeLen:], filled(int16(kmsg.Produce), version).AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, version int16, request, response []byte) {
		p := proxies[0]
		if version < 0 || version > 13 {
			return
		}
		if len(request) >= minRequest {
			request = slices.Clone(request)
			copy(request, []byte{0, 0, 0, byte(version)})
			sawProduce(t, p, version, request)
		}
		if version < produceLeaders {
			return
		}
		raw := rawFrame(true, response)
		plain, err := plainProduced(raw, version)
		changed, rerr := p.rewriter(int16(kmsg.Produce), version)(slices.Clone(response))
		switch {
		case err != nil && rerr == nil && asEncoded(version, response):
			t.Errorf("a response that can be decoded does not pass: %v", err)
		case err == nil && plain && rerr == nil && changed != nil:
			t.Error("a response passes that has to be rewritten")
		}
	})
}

// asEncoded tells whether a Produce response is as kmsg writes it. It also reads lengths beyond
// 31 bits, as none at all, for which a connection may well end.
func asEncoded(version int16, body []byte) bool {
	resp, err := decodeResponse(int16(kmsg.Produce), version, slices.Clone(body))
	return err == nil && bytes.Equal(resp.AppendTo(nil), body)
}

func sawProduce(t *testing.T, p *Proxy, version int16, request []byte) {
	t.Helper()
	c := &conn{p: p}
	acks, free, err := c.seeProduce(fixedHeader(request), request)
	h, herr := parseHeader(request, p.flex.flexible)
	if herr != nil {
		if err == nil {
			t.Errorf("a request without a header (%v) is seen", herr)
		}
		return
	}
	rules := p.readRules()
	saw, werr := produceRefused(&rules, request[h.size:], version, p.flex.flexible(h.key, version))
	req := kmsg.NewPtrProduceRequest()
	req.Version = version
	derr := req.ReadFrom(slices.Clone(request[h.size:]))
	if derr != nil {
		return
	}
	if !bytes.Equal(req.AppendTo(nil), request[h.size:]) {
		return // lengths beyond 31 bits are none at all for kmsg
	}
	if err != nil || werr != nil {
		t.Errorf("a request that can be decoded is not seen: %v, %v", err, werr)
	}
	if acks != req.Acks || saw.acks != req.Acks {
		t.Errorf("acks %d and %d, want %d", acks, saw.acks, req.Acks)
	}
	elements := len(req.Topics)
	for _, t := range req.Topics {
		elements += len(t.Partitions)
	}
	if saw.elements != elements {
		t.Errorf("%d topics and partitions are seen, there are %d", saw.elements, elements)
	}
	split := rules.Produce(req)
	if free && split != nil {
		t.Errorf("a request is streamed of which is refused %v", split.Refused)
	}
	if saw.refused != (split != nil) {
		t.Errorf("by the walk refused: %t, by the rules: %v", saw.refused, split)
	}
}

// FuzzReader gives the reader whatever a client may send. What it passes on is what came, as far
// as it is relayed.
func FuzzReader(f *testing.F) {
	proxies := fuzzedProxies(f)
	hello := encodeRequest(kmsg.NewPtrApiVersionsRequest(), 1, &testClientID)
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.Mechanism = "SCRAM-SHA-256"
	f.Add(false, hello)
	f.Add(false, slices.Concat(hello, encodeRequest(handshake, 2, nil), frameOf([]byte("n,,n=alice")), frameOf([]byte("c=biws")), hello))
	f.Add(false, slices.Concat(relayFrame(1, pattern(10)), relayFrame(2, pattern(readBuffer)), relayFrame(3, nil), []byte{0, 0}))
	f.Add(true, slices.Concat(relayFrame(1, pattern(10)), encodeRequest(fetchOf(12, 2, "m"), 2, nil)))
	for version := range int16(14) {
		f.Add(version%2 == 0, encodeRequest(produceOf(version, 100, "o", "m"), 1, &testClientID))
	}
	f.Add(false, []byte{0x7f, 0xff, 0xff, 0xff, 0})
	f.Add(false, []byte{0xff, 0xff, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, virtual bool, in []byte) {
		p := proxies[0]
		if virtual {
			p = proxies[2]
		}
		var up countingConn
		client := &servingConn{Reader: bytes.NewReader(in)}
		c := newFuzzedConn(p, client, &up)
		done := make(chan struct{})
		relayed := true
		go func() {
			defer close(done)
			for ex := range c.queue {
				// Whose answer is made anew may have been asked anew: what is sent is not in the queue.
				relayed = relayed && !ex.local() && (ex.transform == nil || ex.inspect != nil)
				if ex.released != nil {
					close(ex.released)
				}
				if ex.hangUp != nil {
					c.close(ex.hangUp)
				}
			}
		}()
		var err error
		took := allocated(func() { err = c.read() })
		close(c.queue)
		<-done
		// Room is made for what is announced.
		if most := allocatedFor(len(in)) + 4*fuzzedFrame; took > most {
			t.Errorf("%d bytes of requests had %d allocated, at most %d", len(in), took, most)
		}
		if err == nil {
			t.Error("reading ended without a reason")
		}
		if relayed && !bytes.HasPrefix(in, up.got) && len(up.got) <= len(in) {
			t.Error(fmt.Errorf("what went upstream is not what came, %w", err))
		}
	})
}

// servingConn is a client that has sent something and hung up.
type servingConn struct {
	net.Conn
	*bytes.Reader
}

func (c *servingConn) Read(b []byte) (int, error)       { return c.Reader.Read(b) }
func (c *servingConn) SetReadDeadline(time.Time) error  { return nil }
func (c *servingConn) SetWriteDeadline(time.Time) error { return nil }
func (c *servingConn) Close() error                     { return nil }

// newFuzzedConn is a connection whose writer is the test's.
func newFuzzedConn(p *Proxy, client, up net.Conn) *conn {
	c := &conn{p: p, log: p.log, client: client, up: up, queue: make(chan exchange, 4), out: newUpstreamReader(up)}
	c.in = bufio.NewReaderSize(client, readBuffer)
	c.toBroker = relay{dst: up, src: c.in, raw: client, spliced: &p.spliced}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.authority.authenticated.Store(true)
	return c
}

package protocol

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The numbers and fields are a contract with clients of other builds: contract.md §1 and
// contract-additions.md §5.
func TestAPIKeys(t *testing.T) {
	want := []API{
		{12794, "CreateClusterMirror", 0},
		{12795, "StartMirrorTopics", 0},
		{12796, "StopMirrorTopics", 0},
		{12798, "ListClusterMirrors", 0},
		{12799, "DescribeClusterMirrors", 0},
		{12800, "ReadMirrorStates", 0},
		{12801, "WriteMirrorStates", 0},
		{12802, "PauseMirrorTopics", 0},
		{12803, "ResumeMirrorTopics", 0},
		{12804, "DeleteClusterMirror", 0},
		{12806, "RecoverMirrorTopics", 0},
		{12850, "ExplainClusterMirror", 0},
		{12851, "FenceTopicWrites", 0},
		{12852, "UncordonVirtualBroker", 0},
	}
	if got := APIs(); !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
	for _, a := range want {
		req := RequestForKey(a.Key)
		resp := req.ResponseKind()
		if req.Key() != a.Key || resp.Key() != a.Key || resp.RequestKind().Key() != a.Key || !req.IsFlexible() || !resp.IsFlexible() {
			t.Errorf("%s: request %d, response %d", a.Name, req.Key(), resp.Key())
		}
		if Name(a.Key) != a.Name || !IsMirrorAPI(a.Key) {
			t.Errorf("%d is called %s", a.Key, Name(a.Key))
		}
		_, validates := reflect.TypeOf(req).Elem().FieldByName("ValidateOnly")
		switch a.Key {
		case 12794, 12795, 12796, 12802, 12803, 12804, 12806:
			if !validates {
				t.Errorf("%s has no ValidateOnly", a.Name)
			}
		}
	}
	if RequestForKey(0) != nil || RequestForKey(12797) != nil || IsMirrorAPI(3) || Name(3) != "Metadata" {
		t.Error("foreign keys are taken for ours")
	}
}

// fill sets every field below v to something that is not its zero value, so that a field
// which the layout forgets is noticed.
func fill(v reflect.Value, n *int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Version" {
				fill(v.Field(i), n)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
		if tags, ok := v.Interface().([]wire.Tag); ok {
			tags[0].Tag, tags[1].Tag = 40, 41 // above those that have names, ascending
		}
	case reflect.Array: // a UUID
		*n++
		v.Set(reflect.ValueOf(ids.UUID{0: byte(*n), 15: 1}))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.String:
		*n++
		v.SetString(fmt.Sprintf("text %d", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		*n++
		v.SetInt(int64(*n % 100))
	case reflect.Uint8, reflect.Uint32:
		*n++
		v.SetUint(uint64(*n % 100))
	default:
		panic("no filler for " + v.Kind().String())
	}
}

type message interface {
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
}

func messages() []message {
	var all []message
	for _, a := range APIs() {
		req := RequestForKey(a.Key)
		all = append(all, req, req.ResponseKind())
	}
	return all
}

func TestMessagesRoundTrip(t *testing.T) {
	for _, m := range messages() {
		t.Run(reflect.TypeOf(m).Elem().Name(), func(t *testing.T) {
			empty := reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
			if err := empty.ReadFrom(m.AppendTo(nil)); err != nil || !reflect.DeepEqual(empty, m) {
				t.Fatalf("defaults became %+v, %v; want %+v", empty, err, m)
			}

			n := 0
			fill(reflect.ValueOf(m).Elem(), &n)
			b := m.AppendTo(nil)
			back := reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
			if err := back.ReadFrom(b); err != nil || !reflect.DeepEqual(back, m) {
				t.Fatalf("got  %+v, %v\nwant %+v", back, err, m)
			}
			if _, err := json.Marshal(m); err != nil {
				t.Fatal(err)
			}
			for i := range b {
				if err := back.ReadFrom(b[:i]); !errors.Is(err, wire.ErrShort) && !errors.Is(err, wire.ErrInvalid) {
					t.Fatalf("cut at %d of %d: %v", i, len(b), err)
				}
			}
			if err := back.ReadFrom(append(b, 0)); !errors.Is(err, wire.ErrInvalid) {
				t.Fatalf("a byte too many: %v", err)
			}
		})
	}
}

// The bytes of one request and one response, written down by hand from the layout.
func TestMessageBytes(t *testing.T) {
	start := NewStartMirrorTopicsRequest()
	start.MirrorName, start.Topics, start.ExcludePatterns, start.ValidateOnly = "ab", []string{"t"}, []string{"x.*"}, true
	if got, want := start.AppendTo(nil), []byte("\x03ab\x02\x02t\x01\x02\x04x.*\x00\x01\x00"); string(got) != string(want) {
		t.Errorf("start request %q, want %q", got, want)
	}
	describe := NewDescribeClusterMirrorsRequest()
	describe.LocalOnly = true
	if got, want := describe.AppendTo(nil), []byte("\x00\x00\x01\x02\x01\x01"); string(got) != string(want) {
		t.Errorf("describe request %q, want %q", got, want)
	}
	describe.MirrorNames = []string{}
	if got, want := describe.AppendTo(nil), []byte("\x01\x00\x01\x02\x01\x01"); string(got) != string(want) {
		t.Errorf("describe request for no mirror %q, want %q", got, want)
	}
	deleted := NewDeleteClusterMirrorResponse()
	deleted.ErrorCode, deleted.ErrorMessage = UnknownClusterMirror, text("no")
	if got, want := deleted.AppendTo(nil), []byte("\x00\x00\x00\x00\x32\x25\x03no\x00"); string(got) != string(want) {
		t.Errorf("delete response %q, want %q", got, want)
	}
}

// fakeSidecar answers ApiVersions and our APIs on one listener.
type fakeSidecar struct {
	l      net.Listener
	listed bool // our APIs are in its ApiVersions
	answer func(kmsg.Request) kmsg.Response

	wg    sync.WaitGroup
	mu    sync.Mutex
	conns []net.Conn
	errs  []error
}

func newFakeSidecar(t *testing.T, listed bool, answer func(kmsg.Request) kmsg.Response) *fakeSidecar {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeSidecar{l: l, listed: listed, answer: answer}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			s.wg.Go(func() {
				if err := s.serve(c); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
					s.mu.Lock()
					s.errs = append(s.errs, err)
					s.mu.Unlock()
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
		for _, err := range s.errs {
			t.Error(err)
		}
	})
	return s
}

func (s *fakeSidecar) serve(c net.Conn) error {
	defer c.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return err
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, frame); err != nil {
			return err
		}
		r := wire.NewReader(frame)
		key, version, correlation := r.Int16(), r.Int16(), r.Int32()
		r.NullableString(false) // client id

		var resp kmsg.Response
		flexible := true
		if key == 18 {
			flexible = false // its response header never is
			list := kmsg.NewPtrApiVersionsResponse()
			list.Version = version
			for _, k := range []int16{0, 1, 3, 18} {
				a := kmsg.NewApiVersionsResponseApiKey()
				a.ApiKey, a.MaxVersion = k, kmsg.RequestForKey(k).MaxVersion()
				list.ApiKeys = append(list.ApiKeys, a)
			}
			if s.listed {
				ListAPIs(list)
			}
			resp = list
		} else {
			r.Tags(false, nil) // a header of version 2 has them
			req := RequestForKey(key)
			if req == nil {
				return fmt.Errorf("request of key %d", key)
			}
			req.SetVersion(version)
			if err := req.ReadFrom(frame[len(frame)-r.Left():]); err != nil {
				return err
			}
			resp = s.answer(req)
		}
		out := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(correlation))
		if flexible {
			out = append(out, 0)
		}
		out = resp.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := c.Write(out); err != nil {
			return err
		}
	}
}

func client(t *testing.T, s *fakeSidecar, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(s.l.Addr().String()), kgo.RequestRetries(0))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func TestFranzGoCarriesOurRequests(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	var mu sync.Mutex
	var got kmsg.Request
	answer := func(req kmsg.Request) kmsg.Response {
		mu.Lock()
		defer mu.Unlock()
		got = req
		resp := req.ResponseKind()
		n := 50
		fill(reflect.ValueOf(resp).Elem(), &n)
		resp.(kmsg.SetThrottleResponse).SetThrottle(0) // or franz-go waits
		return resp
	}
	s := newFakeSidecar(t, true, answer)
	cl := client(t, s, kgo.MaxVersions(AllowMirrorAPIs(kversion.Stable())))
	for _, a := range APIs() {
		req := RequestForKey(a.Key)
		n := 0
		fill(reflect.ValueOf(req).Elem(), &n)
		resp, err := cl.SeedBrokers()[0].Request(ctx, req)
		if err != nil {
			t.Fatalf("%s: %v", a.Name, err)
		}
		want := answer(req)
		if !reflect.DeepEqual(resp, want) {
			t.Errorf("%s: answer %+v\nwant %+v", a.Name, resp, want)
		}
		mu.Lock()
		if !reflect.DeepEqual(got, req) {
			t.Errorf("%s: request arrived as %+v\nwant %+v", a.Name, got, req)
		}
		mu.Unlock()
	}
}

// Both are why AllowMirrorAPIs and ListAPIs exist.
func TestFranzGoRefusesKeysItWasNotTold(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	answer := func(req kmsg.Request) kmsg.Response { return req.ResponseKind() }
	for name, cl := range map[string]*kgo.Client{
		"by its own options":     client(t, newFakeSidecar(t, true, answer)),
		"by the peer's versions": client(t, newFakeSidecar(t, false, answer), kgo.MaxVersions(AllowMirrorAPIs(kversion.Stable()))),
	} {
		req := NewListClusterMirrorsRequest()
		if _, err := cl.SeedBrokers()[0].Request(ctx, &req); err == nil {
			t.Errorf("%s: sent all the same", name)
		}
	}
}

func TestUnknownVersionsAreRefused(t *testing.T) {
	for _, m := range messages() {
		for _, v := range []int16{-1, 1} {
			err := m.(interface {
				Decode(int16, []byte) error
			}).Decode(v, nil)
			var unknown *wire.UnknownVersionError
			if !errors.As(err, &unknown) || unknown.Version != v {
				t.Errorf("%T version %d: %v", m, v, err)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	own := Errorf(TopicNotInClusterMirror, "topic %s belongs to mirror %s", "t", "b")
	wrapped := fmt.Errorf("stop: %w", own)
	for _, tc := range []struct {
		err  error
		code int16
		msg  string
	}{
		{own, 12839, "topic t belongs to mirror b"},
		{wrapped, 12839, "stop: TOPIC_NOT_IN_CLUSTER_MIRROR: topic t belongs to mirror b"},
		{fmt.Errorf("mirror m: %w", kerr.NotCoordinator), 16, "mirror m: " + kerr.NotCoordinator.Error()},
		{errors.New("disk"), -1, "disk"},
	} {
		code, msg := CodeOf(tc.err)
		if code != tc.code || *msg != tc.msg {
			t.Errorf("%v: %d %s", tc.err, code, *msg)
		}
		back := ErrorForCode(code, msg)
		if !errors.Is(back, &Error{Code: tc.code}) {
			t.Errorf("%v came back as %v", tc.err, back)
		}
	}
	if code, msg := CodeOf(nil); code != 0 || msg != nil || ErrorForCode(0, nil) != nil {
		t.Error("no error became one")
	}
	if !errors.Is(ErrorForCode(16, nil), kerr.NotCoordinator) {
		t.Error("Kafka's own code is not Kafka's error")
	}
	for code, name := range map[int16]string{
		0: "NONE", -1: "UNKNOWN_SERVER_ERROR", 16: "NOT_COORDINATOR", 44: "POLICY_VIOLATION", 9999: "ERROR_9999",
		12833: "ERROR_12833", 12834: "READ_ONLY_TOPIC", 12845: "INVALID_CLUSTER_MIRROR_STATES", 12846: "MIRROR_TOPIC_NOT_STOPPED", 12847: "ERROR_12847",
	} {
		if got := CodeName(code); got != name {
			t.Errorf("%d is called %s, want %s", code, got, name)
		}
	}
	for code := ReadOnlyTopic; code <= MirrorTopicNotStopped; code++ {
		if ownCodeName(code) == "" {
			t.Errorf("%d has no name", code)
		}
	}
}

func fuzzMessage(f *testing.F, pick func(kmsg.Request) message) {
	for i, a := range APIs() {
		m := pick(RequestForKey(a.Key))
		f.Add(uint8(i), m.AppendTo(nil))
		n := 0
		fill(reflect.ValueOf(m).Elem(), &n)
		f.Add(uint8(i), m.AppendTo(nil))
	}
	all := APIs()
	f.Fuzz(func(t *testing.T, i uint8, b []byte) {
		m := pick(RequestForKey(all[int(i)%len(all)].Key))
		if err := m.ReadFrom(b); err != nil {
			return
		}
		back := pick(RequestForKey(all[int(i)%len(all)].Key))
		if err := back.ReadFrom(m.AppendTo(nil)); err != nil || !reflect.DeepEqual(back, m) {
			t.Fatalf("got  %+v, %v\nwant %+v", back, err, m)
		}
	})
}

func FuzzRequest(f *testing.F) {
	fuzzMessage(f, func(r kmsg.Request) message { return r })
}

func FuzzResponse(f *testing.F) {
	fuzzMessage(f, func(r kmsg.Request) message { return r.ResponseKind() })
}

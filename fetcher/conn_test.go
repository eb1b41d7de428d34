package fetcher

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/batch/batchtest"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher/pool"
)

// certificate returns one for 127.0.0.1 that signs itself, and who trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// Whatever is demanded of the client, polls do it as the control connection does.
func TestSecuredSource(t *testing.T) {
	cert, roots := certificate(t)
	right := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: "u", Pass: "p"}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: "u", Pass: "p"}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: "u", Pass: "p"}.AsSha512Mechanism(),
	}
	for name, m := range right {
		t.Run(name, func(t *testing.T) {
			c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"), kfake.EnableSASL(), kfake.Superuser(name, "u", "p"),
				kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}))
			opts := []kgo.Opt{kgo.SASL(m), kgo.DialTLSConfig(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})}
			cl := newClient(t, c.ListenAddrs(), opts...)
			f := newFetcher(t, c.ListenAddrs(), func(c *Config) { c.Opts = append(c.Opts, opts...) })
			for p := range int32(2) {
				s := newSink()
				f.Add(Partition{Topic: "a", Partition: p, LastFetchedEpoch: -1, Sink: s})
				s.waitNext(t, produce(t, cl, "a", p, 3))
			}
		})
	}
}

// The mechanism is the one that the broker has, if it is among those that are configured.
func TestSecondMechanism(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "p"))
	c.ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.SASLHandshakeRequest)
		if req.Mechanism == "PLAIN" {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		resp.ErrorCode, resp.SupportedMechanisms = 33, []string{"PLAIN"}
		return resp, nil, true
	})
	opt := kgo.SASL(scram.Auth{User: "u", Pass: "p"}.AsSha512Mechanism(), plain.Auth{User: "u", Pass: "p"}.AsMechanism())
	f := newFetcher(t, c.ListenAddrs(), func(c *Config) { c.Opts = append(c.Opts, opt) })
	s := newSink()
	f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s})
	s.waitNext(t, produce(t, newClient(t, c.ListenAddrs(), opt), "a", 0, 3))
}

// A wrong password is a failure that is tried again and can be seen. The connection of
// the poll is tried alone: the control connection would not come so far.
func TestWrongPassword(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "p"))
	d := newDialer(newClient(t, c.ListenAddrs(), kgo.SASL(plain.Auth{User: "u", Pass: "wrong"}.AsMechanism())), "x", 1<<20)
	if _, err := d.connect(t.Context(), c.ListenAddrs()[0]); err == nil || !strings.Contains(err.Error(), "SASL PLAIN") || strings.Contains(err.Error(), "wrong") {
		t.Errorf("a wrong password: %v", err)
	}
}

// A session that ends is renewed before; kfake hangs up on who asks after its end.
func TestReauthenticates(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "p"),
		kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": "1000"}))
	var dials atomic.Int32
	opts := []kgo.Opt{kgo.SASL(plain.Auth{User: "u", Pass: "p"}.AsMechanism())}
	cl := newClient(t, c.ListenAddrs(), opts...)
	f := newFetcher(t, c.ListenAddrs(), func(c *Config) {
		c.MaxWait = 50 * time.Millisecond
		c.Opts = append(append(c.Opts, opts...), kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		}))
	})
	var renewed atomic.Int32
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		renewed.Add(1)
		return nil, nil, false
	})
	s := newSink()
	f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s})
	s.waitNext(t, produce(t, cl, "a", 0, 1))
	before, tries := dials.Load(), renewed.Load()
	for end := time.Now().Add(patience); renewed.Load() < tries+4; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d authentications", renewed.Load())
		}
	}
	s.waitNext(t, produce(t, cl, "a", 0, 1))
	// Both lanes may have been opened meanwhile, but not once for each session.
	if n := dials.Load() - before; n > 2 {
		t.Errorf("%d new connections", n)
	}
}

func TestRenewAfter(t *testing.T) {
	for _, c := range []struct{ lifetime, roundTrip, want time.Duration }{
		{time.Hour, time.Millisecond, 57 * time.Minute},
		{10 * time.Second, time.Millisecond, 9 * time.Second},
		{10 * time.Second, 2 * time.Second, 6 * time.Second},
		{time.Second, time.Millisecond, 750 * time.Millisecond},
	} {
		if got := renewAfter(c.lifetime, c.roundTrip); got != c.want {
			t.Errorf("a session of %v is renewed after %v, want %v", c.lifetime, got, c.want)
		}
	}
}

// Brokers of every age that a franz-go client talks to, as far as their batches are of
// magic 2.
func TestOlderSources(t *testing.T) {
	for name, v := range map[string]*kversion.Versions{
		"1.0": kversion.V1_0_0(), "2.3": kversion.V2_3_0(), "2.6": kversion.V2_6_0(), "3.0": kversion.V3_0_0(), "3.9": kversion.V3_9_0(), "4.0": kversion.V4_0_0(),
	} {
		t.Run(name, func(t *testing.T) {
			c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"), kfake.MaxVersions(v))
			cl := newClient(t, c.ListenAddrs())
			f := newFetcher(t, c.ListenAddrs())
			for p := range int32(2) {
				s := newSink()
				f.Add(Partition{Topic: "a", Partition: p, LastFetchedEpoch: -1, Sink: s})
				s.waitNext(t, produce(t, cl, "a", p, 3))
			}
		})
	}
}

// A broker that ends an idle connection causes no failure.
func TestConnectionEndedWhileIdle(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	cl := newClient(t, c.ListenAddrs())
	produce(t, cl, "a", 0, 2)
	d := newDialer(cl, "x", 1<<20)
	f := New(Config{Buffers: newPool(t)})
	defer f.Close()
	w := &worker{f: f, dialer: d, key: workerKey{addr: c.ListenAddrs()[0]}}
	q := func() *question {
		req := newFetch()
		req.MaxBytes, req.MaxWaitMillis = 1<<20, 100
		ft := kmsg.NewFetchRequestTopic()
		ft.Topic, ft.TopicID = "a", c.TopicInfo("a").TopicID
		ft.Partitions = append(ft.Partitions, fetchPartition(0, -1, 0, -1, 1<<20))
		req.Topics = append(req.Topics, ft)
		return &question{req: req, asks: []ask{{topic: "a", topicID: ft.TopicID}}}
	}
	one, a, err := w.exchange(t.Context(), nil, q())
	if err != nil || len(a.data) != 1 || len(a.data[0].in.batches) != 2 {
		t.Fatalf("%+v, %v", a, err)
	}
	a.release()
	one.r.Reset(ended{}) // the broker's end of it was seen, whatever the kernel would still deliver
	two, _, err := w.exchange(t.Context(), one, q())
	if !errors.Is(err, errAnew) || two == nil || two == one {
		t.Fatalf("after the connection's end: %v", err)
	}
	if two, a, err = w.exchange(t.Context(), two, q()); err != nil {
		t.Fatalf("on the new connection: %v", err)
	}
	a.release()

	// One that never answered a fetch is no idle one.
	three, err := d.connect(t.Context(), w.key.addr)
	if err != nil {
		t.Fatal(err)
	}
	three.r.Reset(ended{})
	if _, _, err := w.exchange(t.Context(), three, q()); err == nil || errors.Is(err, errAnew) {
		t.Errorf("a connection that ends at once: %v", err)
	}
	two.close()
}

// Whoever answers on a new connection has to show first what was read last, and that costs no time.
func TestConnectedAnew(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	cl := newClient(t, c.ListenAddrs())
	f := newFetcher(t, c.ListenAddrs(), func(cfg *Config) { cfg.Backoff = time.Hour })
	s := newSink()
	f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s})
	s.waitNext(t, produce(t, cl, "a", 0, 3))
	asked := spyOn(c)
	c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, errors.New("the connection ends"), true
	})
	s.waitNext(t, produce(t, cl, "a", 0, 2))
	s.waitNext(t, produce(t, cl, "a", 0, 1))
	again := false
	_, all := asked.requests()
	for _, a := range all {
		again = again || a.offset < 3
	}
	if !again || len(s.errs) > 0 || f.Stats().Batches != 6 {
		t.Errorf("shown again: %t; errors %v; %+v", again, s.errs, f.Stats())
	}
}

// ended reads like a connection that the other side has closed.
type ended struct{}

func (ended) Read([]byte) (int, error) { return 0, io.EOF }

// fakeBroker answers ApiVersions, and each Fetch with what fetch makes of the correlation
// id; nil answers nothing. It ends with the test.
func fakeBroker(t *testing.T, version int16, fetch func(correlation []byte) []byte) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			for {
				head := make([]byte, 4)
				if _, err := io.ReadFull(c, head); err != nil {
					break
				}
				req := make([]byte, binary.BigEndian.Uint32(head))
				if _, err := io.ReadFull(c, req); err != nil {
					break
				}
				var body []byte
				if kmsg.Key(binary.BigEndian.Uint16(req)) == kmsg.ApiVersions {
					resp := kmsg.NewPtrApiVersionsResponse()
					resp.Version = 3
					k := kmsg.NewApiVersionsResponseApiKey()
					k.ApiKey, k.MaxVersion = int16(kmsg.Fetch), version
					resp.ApiKeys = append(resp.ApiKeys, k)
					body = resp.AppendTo(bytes.Clone(req[4:8]))
				} else if body = fetch(bytes.Clone(req[4:8])); body == nil {
					continue
				}
				if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
					break
				}
			}
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

func connectTo(t *testing.T, addr string, opts ...kgo.Opt) *conn {
	t.Helper()
	d := newDialer(newClient(t, []string{addr}, opts...), "x", 1<<20)
	c, err := d.connect(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

func emptyAnswer(correlation []byte, throttle uint32) []byte {
	b := append(correlation, 0) // header tags
	b = binary.BigEndian.AppendUint32(b, throttle)
	return append(b, 0, 0, 0, 0, 0, 0, 1, 0) // error, session, no topics, tags
}

// After an answer that says so, nothing is asked until the quota has room again.
func TestThrottleTime(t *testing.T) {
	first := true
	c := connectTo(t, fakeBroker(t, 17, func(id []byte) []byte {
		throttle := uint32(0)
		if first {
			throttle, first = 300, false
		}
		return emptyAnswer(id, throttle)
	}))
	p := newPool(t)
	ask := func() time.Duration {
		begin := time.Now()
		if _, err := c.fetch(t.Context(), &question{req: newFetch()}, p, batch.Tagger{}); err != nil {
			t.Fatal(err)
		}
		return time.Since(begin)
	}
	ask()
	if took := ask(); took < 290*time.Millisecond {
		t.Errorf("asked again after %v", took)
	}
	_, err := c.fetch(t.Context(), &question{req: newFetch()}, p, batch.Tagger{})
	if err != nil {
		t.Fatal(err)
	}
	c.throttled = time.Now().Add(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.fetch(ctx, &question{req: newFetch()}, p, batch.Tagger{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while it waits: %v", err)
	}
}

// A poll that is given up ends its connection: the answer may still come.
func TestCancelledPoll(t *testing.T) {
	asked := make(chan struct{})
	c := connectTo(t, fakeBroker(t, 17, func([]byte) []byte { close(asked); return nil }))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := c.fetch(ctx, &question{req: newFetch()}, newPool(t), batch.Tagger{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := c.c.Write([]byte{0}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is still open: %v", err)
	}
}

// A broker that is silent for longer than the request allows fails it.
func TestSilentBroker(t *testing.T) {
	c := connectTo(t, fakeBroker(t, 17, func([]byte) []byte { return nil }), kgo.RequestTimeoutOverhead(100*time.Millisecond))
	_, err := c.fetch(t.Context(), &question{req: newFetch()}, newPool(t), batch.Tagger{})
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() || hungUp(err) {
		t.Error(err)
	}
}

func TestNonsenseFromABroker(t *testing.T) {
	for name, answer := range map[string]func(id []byte) []byte{
		"another request's answer": func([]byte) []byte { return emptyAnswer([]byte{0, 0, 9, 9}, 0) },
		"too short":                func(id []byte) []byte { return id[:2] },
		"bytes behind the end":     func(id []byte) []byte { return append(emptyAnswer(id, 0), 0) },
		"a count of 2^31":          func(id []byte) []byte { return append(emptyAnswer(id, 0)[:15], 0xff, 0xff, 0xff, 0xff, 0x07, 0) },
		"larger than allowed":      func(id []byte) []byte { return append(emptyAnswer(id, 0), make([]byte, 1<<20)...) },
	} {
		t.Run(name, func(t *testing.T) {
			c := connectTo(t, fakeBroker(t, 17, answer))
			if _, err := c.fetch(t.Context(), &question{req: newFetch()}, newPool(t), batch.Tagger{}); err == nil {
				t.Error("accepted")
			}
		})
	}
	t.Run("too old", func(t *testing.T) {
		addr := fakeBroker(t, 3, func(id []byte) []byte { return nil })
		d := newDialer(newClient(t, []string{addr}), "x", 1<<20)
		if _, err := d.connect(t.Context(), addr); err == nil || !strings.Contains(err.Error(), "version 3 only") {
			t.Error(err)
		}
	})
}

// While the pool has nothing to give the answer waits, and with it the source.
func TestAnswerWaitsForMemory(t *testing.T) {
	src := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	p := pool.New(1 << 20)
	r, err := p.Reserve(t.Context(), 800<<10)
	if err != nil {
		t.Fatal(err)
	}
	f := newFetcher(t, src.ListenAddrs(), func(c *Config) { c.Buffers = p })
	s := newSink()
	end := produce(t, newClient(t, src.ListenAddrs()), "a", 0, 3)
	f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s})
	for limit := time.Now().Add(patience); !p.Pressed(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("nobody waits")
		}
	}
	if s.answers > 0 {
		t.Error("an answer came though there is no memory for it")
	}
	r.Done()
	s.waitNext(t, end)
	if h, _ := f.Health("a", 0); h.Attempts > 0 {
		t.Errorf("waiting counted as a failure: %+v", h)
	}
}

// readFrom walks over an answer that lies in memory.
func readFrom(raw []byte, version int16, p *pool.Pool, asks []ask) (*reply, error) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	c := &conn{d: &dialer{timeout: time.Minute, maxAnswer: 1 << 30}, c: a, r: bufio.NewReaderSize(bytes.NewReader(raw), headerBuffer)}
	memory, err := p.Reserve(context.Background(), len(raw))
	if err != nil {
		return nil, err
	}
	defer memory.Done()
	req := newFetch()
	req.Version = version
	return c.read(&question{req: req, asks: asks}, len(raw), memory, batch.Tagger{})
}

// FuzzAnswer compares the walk over an answer with kmsg's own reading.
func FuzzAnswer(f *testing.F) {
	var asks []ask
	for version := lowestFetch; version <= 18; version++ {
		resp := kmsg.NewPtrFetchResponse()
		resp.Version, resp.ThrottleMillis = version, 7
		for i := range 2 {
			t := kmsg.NewFetchResponseTopic()
			t.Topic, t.TopicID = fmt.Sprint("topic", i), [16]byte{byte(i + 1)}
			for p := range int32(3) {
				rp := kmsg.NewFetchResponseTopicPartition()
				rp.Partition, rp.HighWatermark, rp.LogStartOffset, rp.PreferredReadReplica = p, 9, 1, 3
				rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = 5, 6
				at := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
				rp.AbortedTransactions = append(rp.AbortedTransactions, at)
				switch p {
				case 0:
					rp.RecordBatches = batchtest.Join(batchtest.Plain(0, 2), batchtest.Sized(2, 20<<10, nil), batchtest.Plain(3, 1)[:40])
				case 1:
					rp.RecordBatches = []byte{}
					rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = 1, 2
				}
				t.Partitions = append(t.Partitions, rp)
				asks = append(asks, ask{topic: t.Topic, topicID: t.TopicID, partition: p})
			}
			resp.Topics = append(resp.Topics, t)
		}
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port = 5, "host", 9092
		resp.Brokers = append(resp.Brokers, b)
		var head []byte
		if version >= firstFlexible {
			head = []byte{0}
		}
		f.Add(resp.AppendTo(head), version)
	}
	f.Fuzz(func(t *testing.T, raw []byte, version int16) {
		if version < lowestFetch || version > 18 || len(raw) > 1<<20 {
			return
		}
		p := pool.New(4 << 20)
		p.Poison()
		got, err := readFrom(raw, version, p, asks)
		want := kmsg.NewPtrFetchResponse()
		want.Version = version
		head := fields{b: raw}
		if version >= firstFlexible {
			head.tags()
		}
		wantErr := want.ReadFrom(head.b)
		if err != nil {
			if u := p.Usage(); u.Held != 0 {
				t.Fatalf("%d bytes held after %v", u.Held, err)
			}
			return
		}
		if wantErr != nil || head.bad {
			t.Fatalf("accepted what kmsg refuses: %v", wantErr)
		}
		n := 0
		for i := range want.Topics {
			for j := range want.Topics[i].Partitions {
				rp := &want.Topics[i].Partitions[j]
				d := got.data[n]
				n++
				if d.size != len(rp.RecordBatches) || d.size > 0 && d.in.size > d.size {
					t.Fatalf("%d bytes of records, want %d", d.size, len(rp.RecordBatches))
				}
				if d.size > 0 && !bytes.Equal(d.buf.Bytes(), rp.RecordBatches) {
					t.Fatal("other records")
				}
				g := got.resp.Topics[i].Partitions[j]
				g.RecordBatches, rp.RecordBatches = nil, nil
				if !reflect.DeepEqual(g, *rp) {
					t.Fatalf("partition\n%+v, want\n%+v", g, *rp)
				}
				got.resp.Topics[i].Partitions[j].RecordBatches = nil
			}
		}
		if !reflect.DeepEqual(got.resp, want) {
			t.Fatalf("%+v, want %+v", got.resp, want)
		}
		got.release()
		if u := p.Usage(); u.Held != 0 {
			t.Fatalf("%d bytes held in the end", u.Held)
		}
	})
}

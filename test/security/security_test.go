package security

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/pki"
)

// TestSecurity is one test so that the clusters are started once.
func TestSecurity(t *testing.T) {
	e := start(t)
	adm := kadm.NewClient(e.dst.Cluster.ClientT(t))
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	if err := harness.AwaitTopic(t.Context(), e.dst.Cluster.ClientT(t), topic); err != nil {
		t.Fatal(err)
	}
	classes := compile(t, e.src.Installation())
	// Both last as long as sessions do, so everything else goes on meanwhile.
	t.Run("clients", func(t *testing.T) {
		t.Run("sessions are renewed", func(t *testing.T) { t.Parallel(); e.testRenewal(t, classes) })
		t.Run("sessions end", func(t *testing.T) { t.Parallel(); e.testSessionEnd(t) })
		t.Run("java", func(t *testing.T) { t.Parallel(); e.testJava(t, classes) })
		t.Run("go", func(t *testing.T) { t.Parallel(); e.testGo(t) })
		t.Run("handshakes", func(t *testing.T) { t.Parallel(); e.testHandshakes(t) })
		t.Run("delegation token", func(t *testing.T) { t.Parallel(); e.testDelegationToken(t) })
		t.Run("identity", func(t *testing.T) { t.Parallel(); e.testIdentity(t) })
		t.Run("not logged in", func(t *testing.T) { t.Parallel(); e.testNotLoggedIn(t) })
		t.Run("mirror", func(t *testing.T) { t.Parallel(); e.testMirror(t) })
	})
	t.Run("new certificate", func(t *testing.T) { e.testNewCertificate(t) })
}

func compile(t *testing.T, in *harness.Installation) string {
	t.Helper()
	texts := map[string][]byte{}
	for _, name := range []string{"Try.java", "Renew.java"} {
		b, err := os.ReadFile("java/" + name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = b
	}
	classes, err := in.Compile(t.Context(), texts)
	if err != nil {
		t.Fatal(err)
	}
	return classes
}

// direct goes around every proxy: what it is refused is what a route must refuse too.
func (e *env) direct() route {
	return route{name: "direct", addr: e.dst.Cluster.Brokers()[0].Addr(harness.ListenerClient)}
}

func (e *env) trustOf(r route) string {
	if r.secure {
		return e.trust
	}
	return ""
}

func (e *env) testJava(t *testing.T, classes string) {
	dir := t.TempDir()
	var in strings.Builder
	add := func(name string, r route, mech, user, pass string) {
		p := keys(mech, user, pass, e.trustOf(r))
		p["bootstrap.servers"], p["max.block.ms"], p["delivery.timeout.ms"] = r.addr, "60000", "60000"
		p["request.timeout.ms"], p["linger.ms"] = "30000", "0"
		fmt.Fprintf(&in, "%s %s %s\n", name, propertiesFile(t, dir, name, p), topic)
	}
	want := map[string]string{} // the same as of another, or OK
	for _, r := range e.routes {
		for _, m := range mechanisms() {
			name := r.name + "/" + m
			add(strings.ReplaceAll(name, "/", "_"), r, m, userClient, password(userClient))
			want[strings.ReplaceAll(name, "/", "_")] = "OK"
		}
	}
	for _, m := range mechanisms()[:3] {
		add("direct_wrong_"+m, e.direct(), m, userClient, "wrong")
		for _, r := range e.routes {
			name := r.name + "_wrong_" + m
			add(name, r, m, userClient, "wrong")
			want[name] = "direct_wrong_" + m
		}
	}
	res, err := e.src.Installation().Tool(t.Context(), harness.ToolRun{Class: "Try", Classes: classes, Stdin: strings.NewReader(in.String())})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(res.Stdout) {
		name, result, _ := strings.Cut(strings.TrimSpace(line), " ")
		if class, message, isError := strings.Cut(result, " "); isError {
			text, err := base64.StdEncoding.DecodeString(message)
			if err != nil {
				t.Fatal(line, err)
			}
			result = class + ": " + string(text)
		}
		got[name] = result
	}
	for _, m := range mechanisms()[:3] {
		if d := got["direct_wrong_"+m]; !strings.Contains(d, "SaslAuthenticationException") {
			t.Errorf("%s with a wrong password, direct: %s", m, d)
		}
	}
	for name, w := range want {
		if w != "OK" {
			w = got[w]
		}
		if got[name] != w {
			t.Errorf("%s: %s, want %s", name, got[name], w)
		}
	}
	t.Logf("%d Java clients in %v", len(want), res.Took)
}

func (e *env) testGo(t *testing.T) {
	var wg sync.WaitGroup
	for _, r := range e.routes {
		for _, m := range mechanisms() {
			wg.Go(func() {
				cl := e.client(t, r, mechanism(m, userClient, password(userClient)))
				value := []byte("go " + r.name + m)
				at, err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: value}).First()
				if err != nil {
					t.Errorf("%s, %s: produce: %v", r.name, m, err)
					return
				}
				cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {at.Partition: kgo.NewOffset().At(at.Offset)}})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				fs := cl.PollFetches(ctx)
				if err := fs.Err(); err != nil || len(fs.Records()) == 0 || string(fs.Records()[0].Value) != string(value) {
					t.Errorf("%s, %s: fetch: %v, %d records", r.name, m, err, fs.NumRecords())
				}
			})
		}
		for _, m := range mechanisms()[:3] {
			wg.Go(func() {
				err := e.client(t, r, mechanism(m, userClient, "wrong")).Ping(t.Context())
				if !errors.Is(err, kerr.SaslAuthenticationFailed) {
					t.Errorf("%s, %s with a wrong password: %v", r.name, m, err)
				}
			})
		}
	}
	wg.Wait()
}

// rawConn speaks the protocol by hand.
type rawConn struct {
	net.Conn
	id int32
}

func (e *env) raw(ctx context.Context, r route) (*rawConn, error) {
	var c net.Conn
	var err error
	if r.secure {
		c, err = (&tls.Dialer{Config: &tls.Config{RootCAs: e.ca.Pool()}}).DialContext(ctx, "tcp", r.addr)
	} else {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", r.addr)
	}
	if err != nil {
		return nil, err
	}
	return &rawConn{Conn: c}, c.SetDeadline(time.Now().Add(patience))
}

func (c *rawConn) frame(b []byte) ([]byte, error) {
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	out := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(c, out)
	return out, err
}

// send sends a request and returns the answer as it is, with its header.
func (c *rawConn) send(req kmsg.Request) ([]byte, error) {
	c.id++
	return c.frame(kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw")).AppendRequest(nil, req, c.id)[4:])
}

func (c *rawConn) ask(req kmsg.Request) (kmsg.Response, error) {
	b, err := c.send(req)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	body := b[4:]
	if resp.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		body = body[1:]
	}
	return resp, resp.ReadFrom(body)
}

// login logs in with a version of the handshake, and returns how long the session lasts.
func (c *rawConn) login(ctx context.Context, m sasl.Mechanism, version int16) (time.Duration, error) {
	hs := kmsg.NewPtrSASLHandshakeRequest()
	hs.Version, hs.Mechanism = version, m.Name()
	resp, err := c.ask(hs)
	if err != nil {
		return 0, fmt.Errorf("handshake: %w", err)
	}
	if err := kerr.ErrorForCode(resp.(*kmsg.SASLHandshakeResponse).ErrorCode); err != nil {
		return 0, err
	}
	session, token, err := m.Authenticate(ctx, c.RemoteAddr().String())
	if err != nil {
		return 0, err
	}
	var lifetime time.Duration
	for done := false; !done || len(token) > 0; {
		var challenge []byte
		if version == 0 {
			if challenge, err = c.frame(token); err != nil {
				return 0, fmt.Errorf("token: %w", err)
			}
		} else {
			auth := kmsg.NewPtrSASLAuthenticateRequest()
			auth.Version, auth.SASLAuthBytes = 2, token
			resp, err := c.ask(auth)
			if err != nil {
				return 0, fmt.Errorf("authenticate: %w", err)
			}
			r := resp.(*kmsg.SASLAuthenticateResponse)
			if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
				return 0, err
			}
			challenge, lifetime = r.SASLAuthBytes, time.Duration(r.SessionLifetimeMillis)*time.Millisecond
		}
		if done {
			break
		}
		if done, token, err = session.Challenge(challenge); err != nil {
			return 0, err
		}
	}
	return lifetime, nil
}

func metadataOf(topics ...string) kmsg.Request {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 9, []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &name
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// testHandshakes logs in by hand: version 0 has tokens without headers.
func (e *env) testHandshakes(t *testing.T) {
	var wg sync.WaitGroup
	for _, r := range append([]route{e.direct()}, e.routes...) {
		for _, version := range []int16{0, 1} {
			for _, m := range mechanisms() {
				wg.Go(func() {
					name := fmt.Sprintf("%s, %s, version %d", r.name, m, version)
					c, err := e.raw(t.Context(), r)
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					defer c.Close()
					if _, err := c.login(t.Context(), mechanism(m, userClient, password(userClient)), version); err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					resp, err := c.ask(metadataOf(topic))
					if err != nil || resp.(*kmsg.MetadataResponse).Topics[0].ErrorCode != 0 {
						t.Errorf("%s: after it: %v, %+v", name, err, resp)
					}
				})
			}
			wg.Go(func() {
				c, err := e.raw(t.Context(), r)
				if err != nil {
					t.Errorf("%s: %v", r.name, err)
					return
				}
				defer c.Close()
				hs := kmsg.NewPtrSASLHandshakeRequest()
				hs.Version, hs.Mechanism = version, "NO-SUCH"
				resp, err := c.ask(hs)
				if err != nil {
					t.Errorf("%s: unknown mechanism, version %d: %v", r.name, version, err)
					return
				}
				if got := resp.(*kmsg.SASLHandshakeResponse); got.ErrorCode != kerr.UnsupportedSaslMechanism.Code || len(got.SupportedMechanisms) != len(mechanisms()) {
					t.Errorf("%s: unknown mechanism, version %d: %+v", r.name, version, got)
				}
			})
		}
	}
	wg.Wait()
}

func (e *env) testDelegationToken(t *testing.T) {
	for _, r := range e.routes[:1] {
		req := kmsg.NewPtrCreateDelegationTokenRequest()
		req.MaxLifetimeMillis = -1
		token, err := req.RequestWith(t.Context(), e.client(t, r, mechanism("PLAIN", userClient, password(userClient))))
		if err == nil {
			err = kerr.ErrorForCode(token.ErrorCode)
		}
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		m := scram.Auth{User: token.TokenID, Pass: base64.StdEncoding.EncodeToString(token.HMAC), IsToken: true}.AsSha256Mechanism()
		// Brokers find tokens in the metadata log.
		harness.AwaitT(t, patience, r.name, func(ctx context.Context) error {
			return e.client(t, r, m).Ping(ctx)
		})
	}
}

// testIdentity has a topic that only one user may write to.
func (e *env) testIdentity(t *testing.T) {
	const own = "alices"
	root := e.dst.Cluster.ClientT(t)
	adm := kadm.NewClient(root)
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, own); err != nil {
		t.Fatal(err)
	}
	if err := harness.AwaitTopic(t.Context(), root, own); err != nil {
		t.Fatal(err)
	}
	b := kadm.NewACLs().Topics(own).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpWrite, kadm.OpDescribe).Allow("User:" + userClient).AllowHosts("*")
	if _, err := adm.CreateACLs(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for _, r := range e.routes {
		for _, m := range mechanisms() {
			cl := e.client(t, r, mechanism(m, userClient, password(userClient)))
			harness.AwaitT(t, patience, r.name+" "+m, func(ctx context.Context) error {
				return cl.ProduceSync(ctx, &kgo.Record{Topic: own, Value: []byte("x")}).FirstErr()
			})
		}
		bob := e.client(t, r, mechanism("OAUTHBEARER", "bob", ""))
		harness.AwaitT(t, patience, r.name+" bob", func(ctx context.Context) error {
			if err := bob.ProduceSync(ctx, &kgo.Record{Topic: own, Value: []byte("x")}).FirstErr(); !errors.Is(err, kerr.TopicAuthorizationFailed) {
				return fmt.Errorf("bob: %w", err)
			}
			return nil
		})
	}
}

// testRenewal writes until a session has been renewed three times. The Java client logs in
// again on its connection before a session ends.
func (e *env) testRenewal(t *testing.T, classes string) {
	const renewals = 3
	dir := t.TempDir()
	r := e.routes[0]
	p := keys(renewed, userClient, password(userClient), e.trustOf(r))
	p["bootstrap.servers"], p["max.in.flight.requests.per.connection"] = r.addr, "1"
	res, err := e.src.Installation().Tool(t.Context(), harness.ToolRun{
		Class: "Renew", Classes: classes,
		Args: []string{propertiesFile(t, dir, "renew", p), topic, strconv.Itoa(renewals), strconv.Itoa(int(patience.Seconds()))},
	})
	if err != nil {
		t.Fatal(err)
	}
	var acknowledged, failed, again, connections int
	if _, err := fmt.Sscan(res.Stdout, &acknowledged, &failed, &again, &connections); err != nil {
		t.Fatal(res.Stdout, err)
	}
	t.Logf("%d records acknowledged, %d failed; logged in again %d times on %d connections", acknowledged, failed, again, connections)
	// One for the bootstrap, one for the broker. A machine that stands still makes the client miss the
	// end of a session, which costs one more; a proxy that ends what is renewed costs one each time.
	if acknowledged == 0 || failed != 0 || again < renewals || connections > 2+4*renewals {
		t.Errorf("%d acknowledged, %d failed, %d renewals on %d connections:\n%s", acknowledged, failed, again, connections, res.Stderr)
	}
}

// testSessionEnd does not renew a session. Requests that the broker sees and those that the
// sidecar answers itself both end it.
func (e *env) testSessionEnd(t *testing.T) {
	list := protocol.NewListClusterMirrorsRequest()
	var wg sync.WaitGroup
	for _, r := range append([]route{e.direct()}, e.routes[:2]...) {
		for name, req := range map[string]kmsg.Request{"metadata": metadataOf(), "mirrors": &list} {
			if name == "mirrors" && r != e.routes[0] {
				continue
			}
			wg.Go(func() {
				c, err := e.raw(t.Context(), r)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				begun := time.Now()
				lifetime, err := c.login(t.Context(), mechanism(renewed, userClient, password(userClient)), 1)
				if err != nil || lifetime <= 0 || lifetime > sessionLifetime {
					t.Errorf("%s: session of %v, %v", r.name, lifetime, err)
					return
				}
				tick := time.NewTicker(100 * time.Millisecond)
				defer tick.Stop()
				for time.Since(begun) < patience {
					if _, err = c.send(req); err != nil {
						break
					}
					<-tick.C
				}
				took := time.Since(begun)
				t.Logf("%s, %s: session of %v ended after %v", r.name, name, lifetime, took)
				if !closed(err) || took < lifetime {
					t.Errorf("%s, %s: after %v of %v: %v", r.name, name, took, lifetime, err)
				}
			})
		}
	}
	wg.Wait()
}

func closed(err error) bool {
	timeout, isNet := errors.AsType[net.Error](err)
	return err != nil && !(isNet && timeout.Timeout())
}

// testNotLoggedIn tries every API without a login. A sidecar gives no more than the broker does.
func (e *env) testNotLoggedIn(t *testing.T) {
	var reqs []kmsg.Request
	for key := range int16(kmsg.MaxKey + 1) {
		if req := kmsg.RequestForKey(key); req != nil {
			req.SetVersion(min(req.MaxVersion(), maxVersion(key, req.MaxVersion())))
			reqs = append(reqs, req)
		}
	}
	for _, api := range protocol.APIs() {
		if req := protocol.RequestForKey(api.Key); req != nil {
			reqs = append(reqs, req)
		}
	}
	answered := func(ctx context.Context, r route, req kmsg.Request) (string, error) {
		c, err := e.raw(ctx, r)
		if err != nil {
			return "", err
		}
		defer c.Close()
		b, err := c.send(req)
		switch {
		case err == nil:
			return fmt.Sprintf("answered with %d bytes", min(len(b), 1)), nil
		case closed(err):
			return "closed", nil
		}
		return "", err
	}
	virtual := route{name: "virtual listener", addr: e.dst.Sidecars[0].Virtual, secure: true}
	var wg sync.WaitGroup
	limit := make(chan struct{}, 8)
	for _, req := range reqs {
		for _, r := range []route{e.routes[0], virtual} {
			wg.Go(func() {
				limit <- struct{}{}
				defer func() { <-limit }()
				want, err := answered(t.Context(), e.direct(), req)
				if err != nil {
					t.Errorf("direct: API %d: %v", req.Key(), err)
					return
				}
				got, err := answered(t.Context(), r, req)
				if err != nil || got != want {
					t.Errorf("%s: API %d version %d: %s %v, direct: %s", r.name, req.Key(), req.GetVersion(), got, err, want)
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d APIs", len(reqs))
}

// maxVersion is what both the broker and the proxy read.
func maxVersion(key, most int16) int16 {
	if v, ok := kversion.Stable().LookupMaxKeyVersion(key); ok {
		return v
	}
	return most
}

// testMirror mirrors a topic whose replicas fetch it over TLS.
func (e *env) testMirror(t *testing.T) {
	cl := e.client(t, e.routes[0], mechanism("SCRAM-SHA-256", userClient, password(userClient)), fromStart()...)
	operator := propertiesFile(t, t.TempDir(), "operator", keys("PLAIN", userSidecar, password(userSidecar), e.trust))
	e.mirror(t, e.dst.Proxies()[0], operator, cl)
}

const (
	mirrored        = "mirrored"
	mirroredRecords = 1000
)

func fromStart() []kgo.Opt {
	return []kgo.Opt{kgo.ConsumeTopics(mirrored), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
}

// mirror mirrors a topic as an operator at the given address, reads it and compares it.
func (e *env) mirror(t *testing.T, at, operator string, reader *kgo.Client) {
	t.Helper()
	src := e.src.ClientT(t)
	if _, err := kadm.NewClient(src).CreateTopic(t.Context(), 2, 1, nil, mirrored); err != nil {
		t.Fatal(err)
	}
	if err := harness.AwaitTopic(t.Context(), src, mirrored); err != nil {
		t.Fatal(err)
	}
	var batch []*kgo.Record
	for n := range mirroredRecords {
		batch = append(batch, &kgo.Record{Topic: mirrored, Value: fmt.Appendf(nil, "%d %s", n, strings.Repeat("x", 200))})
	}
	if err := src.ProduceSync(t.Context(), batch...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	source := propertiesFile(t, t.TempDir(), "source", map[string]string{"bootstrap.servers": strings.Join(e.src.Bootstrap(harness.ListenerClient), ",")})
	for _, args := range [][]string{
		{"--create", "--mirror", "east", "--mirror-config", source},
		{"--start", "--mirror", "east", "--topics", mirrored, "--wait"},
	} {
		if _, err := e.dst.CLIAt(t.Context(), at, append(args, "--command-config", operator)...); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for got := 0; got < mirroredRecords; {
		fs := reader.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("%d of %d: %v", got, mirroredRecords, err)
		}
		got += fs.NumRecords()
	}
	if _, err := e.dst.CLIAt(t.Context(), at, "--verify", "--mirror", "east", "--command-config", operator); err != nil {
		t.Error(err)
	}
}

// testNewCertificate replaces the sidecar's certificate. New connections see it, those that
// are open go on.
func (e *env) testNewCertificate(t *testing.T) {
	r := e.routes[0]
	old, err := e.raw(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if _, err := old.login(t.Context(), mechanism("PLAIN", userClient, password(userClient)), 1); err != nil {
		t.Fatal(err)
	}
	fresh := e.ca.Issue(t, pki.Subject{Name: "renewed"})
	pki.Write(t, strings.TrimSuffix(e.store, "/sidecar.pem"), "sidecar.pem", fresh.Store)
	harness.AwaitT(t, patience, "the new certificate", func(ctx context.Context) error {
		c, err := e.raw(ctx, r)
		if err != nil {
			return err
		}
		defer c.Close()
		if leaf := c.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0]; !leaf.Equal(fresh.Leaf) {
			return fmt.Errorf("shows %s", leaf.Subject)
		}
		return nil
	})
	if _, err := old.ask(metadataOf(topic)); err != nil {
		t.Errorf("the connection that was open: %v", err)
	}
}

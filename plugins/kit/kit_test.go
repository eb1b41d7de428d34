package kit

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// TestMain is also the plugins of these tests: the kit starts this program with what it is to be as
// its argument.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && !strings.HasPrefix(os.Args[1], "-") {
		switch as := os.Args[1]; {
		case as == "quiet" && os.Getenv(plugins.Handshake().MagicCookieKey) == "":
			os.Exit(0)
		case as == "open":
			serveAnybody(be(as))
			return
		}
		plugins.Serve(be(os.Args[1]))
		if os.Args[1] == "stays" {
			select {}
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func be(as string) plugins.Policy {
	yes := plugins.Accept("all", "everything is mirrored")
	p := plugins.Policy{
		Name: as, Version: "1", Topics: plugins.TopicFunc(func(context.Context, *policyv1.Round, *policyv1.TopicFacts) (*policyv1.Decision, error) {
			return yes, nil
		}),
	}
	var asked atomic.Int64
	decide := func(f plugins.TopicFunc) { p.Topics = f }
	switch as {
	case "nameless":
		p.Name = " "
	case "forgetful":
		decide(func(context.Context, *policyv1.Round, *policyv1.TopicFacts) (*policyv1.Decision, error) {
			return plugins.Accept("all", fmt.Sprintf("question %d", asked.Add(1))), nil
		})
	case "slow":
		p.Topics = slow{p.Topics}
	case "trusting":
		decide(func(_ context.Context, r *policyv1.Round, t *policyv1.TopicFacts) (*policyv1.Decision, error) {
			if r.MirrorConfig == nil || t.Configs["retention.ms"] == "" {
				return nil, fmt.Errorf("topic %s has no retention", t.Name)
			}
			return yes, nil
		})
	case "curious":
		decide(func(_ context.Context, r *policyv1.Round, _ *policyv1.TopicFacts) (*policyv1.Decision, error) {
			return plugins.Accept("all", "asked because of "+r.GetWhy().String()), nil
		})
	case "talkative":
		decide(func(_ context.Context, _ *policyv1.Round, t *policyv1.TopicFacts) (*policyv1.Decision, error) {
			return &policyv1.Decision{Verdict: policyv1.Decision_ACCEPT, Reason: strings.Repeat(t.GetName()+" is a fine name. ", 10)}, nil
		})
	case "broken":
		p.CheckConfig = func(map[string]string) error { return fmt.Errorf("no url is given") }
	case "sink":
		p.Topics = nil
		p.Events = plugins.EventFunc(func(context.Context, *policyv1.Round, *policyv1.Event) error { return nil })
	}
	return p
}

// serveAnybody serves a policy with TLS to whoever comes, until it is killed.
func serveAnybody(p plugins.Policy) {
	if os.Getenv(plugins.Handshake().MagicCookieKey) == "" {
		fmt.Fprintln(os.Stderr, "this is a plugin")
		os.Exit(1)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	socket := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "open")
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		panic(err)
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	})))
	p.Register(s)
	fmt.Printf("1|1|unix|%s|grpc|%s\n", socket, base64.RawStdEncoding.EncodeToString(der))
	if err := s.Serve(l); err != nil {
		panic(err)
	}
}

// slow has no answer for a page that is full.
type slow struct{ plugins.TopicPolicy }

func (s slow) SelectTopics(ctx context.Context, r *policyv1.SelectTopicsRequest) (*policyv1.SelectTopicsResponse, error) {
	if len(r.GetTopics()) == page {
		<-ctx.Done()
	}
	return s.TopicPolicy.SelectTopics(ctx, r)
}

// What is wrong with a plugin has a line of the report, and only that.
func TestRun(t *testing.T) {
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		as      string
		failed  []string
		timeout time.Duration
	}{
		{as: "good"},
		{as: "sink"},
		{as: "nameless", failed: []string{"starts, and says what it is"}},
		{as: "broken", failed: []string{"starts, and says what it is"}},
		{as: "forgetful", failed: []string{
			"topics: the same facts, the same decisions", "topics: each item by itself", "topics: asked why", "topics: 8 questions at once", "topics: killed, it goes on where it was",
		}},
		{as: "curious", failed: []string{"topics: asked why, it decides as it did"}},
		{as: "slow", failed: []string{"topics: a page of 2000 items, in time"}, timeout: 10 * time.Second},
		{as: "trusting", failed: []string{"topics: facts of which almost nothing is known", "topics: words and fields that a later version may have"}},
		{as: "quiet", failed: []string{"started by hand"}},
		{as: "open", failed: []string{"takes no connection but the sidecar's", "ends when it is told to"}},
		{as: "stays", failed: []string{"ends when it is told to"}},
		{as: "talkative", failed: []string{"topics: odd names"}},
	} {
		t.Run(c.as, func(t *testing.T) {
			t.Parallel()
			if c.timeout == 0 {
				c.timeout = time.Minute
			}
			var out bytes.Buffer
			r, err := Run(t.Context(), Config{Command: []string{me, c.as}, Timeout: c.timeout}, &out)
			if err != nil {
				t.Fatal(err)
			}
			var failed []string
			for line := range strings.Lines(out.String()) {
				if rest, ok := strings.CutPrefix(line, "FAIL  "); ok {
					failed = append(failed, strings.TrimSpace(rest))
				}
			}
			ok := len(failed) == len(c.failed) && r.Failed == len(failed)
			for i := range min(len(failed), len(c.failed)) {
				ok = ok && strings.HasPrefix(failed[i], c.failed[i])
			}
			if !ok {
				t.Errorf("it fails\n%s\nnot\n%s", strings.Join(failed, "\n"), strings.Join(c.failed, "\n"))
			}
			if want := fmt.Sprintf("\n%d passed, %d failed\n", r.Passed, r.Failed); !strings.HasSuffix("\n"+out.String(), want) {
				t.Errorf("it ends with %q", out.String())
			}
		})
	}
	if _, err := Run(t.Context(), Config{Command: []string{"/none/such"}}, &bytes.Buffer{}); err == nil {
		t.Error("there is no such program")
	}
}

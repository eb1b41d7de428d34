package proxy

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// plant puts a row into a running proxy's table.
func plant(p *Proxy, r *row) {
	p.mu.Lock() // what a new connection takes as well
	defer p.mu.Unlock()
	p.rows[r.key] = r
}

// A mistake in either of a connection's goroutines ends it, and no other.
func TestPanicsCostOneConnection(t *testing.T) {
	const planted = int16(kmsg.DescribeACLs)
	var none map[string]int
	for name, handle := range map[string]func(c *conn, r *request) (exchange, error){
		"the reader's": func(*conn, *request) (exchange, error) { none["a"] = 1; return exchange{}, nil },
		"an answer's": func(_ *conn, r *request) (exchange, error) {
			ex := relayed(r.header)
			ex.answer = func(context.Context) (net.Buffers, error) { panic("planted") }
			return ex, nil
		},
		"a conversation's": func(_ *conn, r *request) (exchange, error) {
			ex := relayed(r.header)
			ex.converse = func(context.Context, *conversation) error { panic("planted") }
			return ex, nil
		},
		"a response's": func(_ *conn, r *request) (exchange, error) {
			ex := r.forward()
			ex.transform = func([]byte) (kmsg.Response, error) { panic("planted") }
			return ex, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := countedSetup(t)
			p, addr := s.start(t, startBroker(t, echo))
			plant(p, &row{key: planted, max: 3, handle: handle})
			other, c := dial(t, addr), dial(t, addr)
			ask := func(c *client) {
				t.Helper()
				if _, err := c.Write(relayFrame(1, pattern(10))); err != nil {
					t.Fatal(err)
				}
				if _, err := readFrame(c); err != nil {
					t.Fatal(err)
				}
			}
			ask(other)
			ask(c)
			req := kmsg.NewPtrDescribeACLsRequest()
			req.Version = 3
			c.send(req, 2)
			c.wantClosed()
			waitFor(t, func() bool { return s.value(t, "proxy_connections_closed_total", string(reasonPanic)) == 1 })
			waitFor(t, func() bool { return s.value(t, "proxy_connections", "") == 1 })
			ask(other)
			ask(dial(t, addr))
		})
	}
}

// A mistake in what leading goes by ends the process, also when a client's request came upon it.
func TestPanicsInStateEndTheProcess(t *testing.T) {
	const planted = "MIRROR_TEST_PANIC"
	if os.Getenv(planted) != "" {
		p, addr := new(setup).start(t, startBroker(t, echo))
		plant(p, &row{key: int16(kmsg.DescribeACLs), max: 3, handle: func(*conn, *request) (exchange, error) {
			(*metadata.Image)(nil).Topic("no image")
			return exchange{}, nil
		}})
		req := kmsg.NewPtrDescribeACLsRequest()
		req.Version = 3
		c := dial(t, addr)
		c.send(req, 1)
		c.wantClosed() // it is not: the process ends first
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPanicsInStateEndTheProcess$")
	cmd.Env = append(os.Environ(), planted+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: ") || !strings.Contains(string(out), "metadata.(*Image).Topic") {
		t.Errorf("the process went on, or does not say why it ended: %v\n%s", err, out)
	}
}

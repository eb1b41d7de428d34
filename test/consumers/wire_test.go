package consumers

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire is a connection on which requests go out as they are, of the version that they have: clients
// of the library choose versions themselves.
type wire struct {
	net.Conn
	n int32
}

func dial(t *testing.T, addr string) *wire {
	t.Helper()
	w, err := connect(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func connect(addr string) (*wire, error) {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c}, nil
}

// ask sends a request and gives its answer.
func (w *wire) ask(t *testing.T, req kmsg.Request) kmsg.Response {
	t.Helper()
	resp, err := w.request(req)
	if err != nil {
		t.Fatalf("%s v%d to %s: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), w.RemoteAddr(), err)
	}
	return resp
}

func (w *wire) request(req kmsg.Request) (kmsg.Response, error) {
	w.n++
	if err := w.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("consumers")).AppendRequest(nil, req, w.n)
	if _, err := w.Write(frame); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(w, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(w, body); err != nil {
		return nil, err
	}
	r := kbin.Reader{Src: body}
	if got := r.Int32(); got != w.n {
		return nil, fmt.Errorf("correlation id %d, want %d", got, w.n)
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		kmsg.SkipTags(&r)
	}
	if err := r.Complete(); err != nil {
		return nil, err
	}
	return resp, resp.ReadFrom(r.Src)
}

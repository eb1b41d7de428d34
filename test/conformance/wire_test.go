package conformance

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// frame is a request as it is on the wire.
func frame(req kmsg.Request) []byte {
	be := binary.BigEndian
	b := be.AppendUint16(nil, uint16(req.Key()))
	b = be.AppendUint16(b, uint16(req.GetVersion()))
	b = be.AppendUint32(b, 7) // correlation id
	const client = "conformance"
	b = be.AppendUint16(b, uint16(len(client)))
	b = append(b, client...)
	if req.IsFlexible() {
		b = append(b, 0)
	}
	b = req.AppendTo(b)
	return append(be.AppendUint32(nil, uint32(len(b))), b...)
}

// raw sends a request on a connection of its own and returns the answer's body as it is.
func raw(t *testing.T, addr string, req kmsg.Request) []byte {
	t.Helper()
	conn := dial(t, addr)
	defer conn.Close()
	if _, err := conn.Write(frame(req)); err != nil {
		t.Fatal(err)
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		t.Fatalf("answer to key %d: %v", req.Key(), err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 5 || n > 1<<24 {
		t.Fatalf("answer to key %d of %d bytes", req.Key(), n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(conn, body); err != nil {
		t.Fatal(err)
	}
	if got := binary.BigEndian.Uint32(body); got != 7 {
		t.Fatalf("correlation id %d", got)
	}
	body = body[4:]
	if req.IsFlexible() {
		if body[0] != 0 {
			t.Fatalf("the answer's header has %d tags", body[0])
		}
		body = body[1:]
	}
	return body
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// head reads what every answer of a mirror API begins with.
func head(body []byte) (throttle int32, code int16, message string, err error) {
	if len(body) < 7 {
		return 0, 0, "", fmt.Errorf("an answer of %d bytes", len(body))
	}
	throttle = int32(binary.BigEndian.Uint32(body))
	code = int16(binary.BigEndian.Uint16(body[4:]))
	n, used := binary.Uvarint(body[6:])
	if used <= 0 || int(n) > len(body)-6-used+1 {
		return 0, 0, "", fmt.Errorf("the message of %d bytes does not fit", n)
	}
	if n > 0 {
		message = string(body[6+used : 6+used+int(n)-1])
	}
	return throttle, code, message, nil
}

// oneRecord is a batch of one record, as a client of today sends it.
func oneRecord(value string) []byte { return batchOf(time.Now().UnixMilli(), nil, []byte(value)) }

func batchOf(now int64, key, value []byte) []byte {
	r := kmsg.Record{Key: key, Value: value}
	r.Length = int32(len(r.AppendTo(nil))) - 1
	b := kmsg.RecordBatch{
		Magic: 2, FirstTimestamp: now, MaxTimestamp: now, PartitionLeaderEpoch: -1,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1, Records: r.AppendTo(nil),
	}
	b.Length = int32(len(b.AppendTo(nil))) - 12
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// forwarder is an address that leads to another one.
type forwarder struct {
	listener net.Listener
	target   string
}

func newForwarder(t *testing.T, target string) *forwarder {
	t.Helper()
	return forwardAt(t, "127.0.0.1:0", target)
}

func forwardAt(t *testing.T, addr, target string) *forwarder {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{listener: l, target: target}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(in)
		}
	}()
	return f
}

func (f *forwarder) addr() string { return f.listener.Addr().String() }

func (f *forwarder) serve(in net.Conn) {
	defer in.Close()
	out, err := net.DialTimeout("tcp", f.target, 5*time.Second)
	if err != nil {
		return
	}
	defer out.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(out, in)
		out.Close()
		in.Close()
	}()
	_, _ = io.Copy(in, out)
	in.Close()
	<-done
}

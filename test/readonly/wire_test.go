package readonly

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const correlation = 7

// ask sends a request, of exactly the version it has, on a connection of its own. The answer
// must be what a broker's would be to the byte: nothing left over, nothing left out.
func ask[R kmsg.Response](t *testing.T, addr string, req kmsg.Request) R {
	t.Helper()
	conn := dial(t, addr)
	defer conn.Close()
	send(t, conn, req)
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		t.Fatalf("%s v%d: answer: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	body := make([]byte, min(binary.BigEndian.Uint32(size[:]), 1<<24))
	if _, err := io.ReadFull(conn, body); err != nil {
		t.Fatal(err)
	}
	if got := binary.BigEndian.Uint32(body); got != correlation {
		t.Fatalf("correlation id %d", got)
	}
	body = body[4:]
	if req.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		if body[0] != 0 {
			t.Fatalf("the answer's header has %d tags", body[0])
		}
		body = body[1:]
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(body); err != nil {
		t.Fatalf("%s v%d: answer: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	if again := resp.AppendTo(nil); !bytes.Equal(again, body) {
		t.Errorf("%s v%d: an answer of %d bytes, which mean what %d say", kmsg.NameForKey(req.Key()), req.GetVersion(), len(body), len(again))
	}
	return resp.(R)
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func send(t *testing.T, conn net.Conn, req kmsg.Request) {
	t.Helper()
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("readonly")).AppendRequest(nil, req, correlation)
	if _, err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
}

// oneRecord is a batch of one record.
func oneRecord(value string) []byte {
	r := kmsg.Record{Value: []byte(value)}
	r.Length = int32(len(r.AppendTo(nil))) - 1
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{
		Magic: 2, FirstTimestamp: now, MaxTimestamp: now, PartitionLeaderEpoch: -1,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1, Records: r.AppendTo(nil),
	}
	b.Length = int32(len(b.AppendTo(nil))) - 12
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// apiVersions are the versions of each API that a listener offers.
func apiVersions(t *testing.T, addr string) map[int16]kmsg.ApiVersionsResponseApiKey {
	t.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "readonly", "1"
	out := map[int16]kmsg.ApiVersionsResponseApiKey{}
	for _, k := range ask[*kmsg.ApiVersionsResponse](t, addr, req).ApiKeys {
		out[k.ApiKey] = k
	}
	return out
}

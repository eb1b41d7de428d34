package main

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// batchOf builds a batch of one record.
type batchOf struct {
	offset, timestamp int64
	attributes        uint16
	producer          int64
	epoch             int16
	sequence          int32
	key, value        []byte
}

func (o batchOf) bytes() []byte {
	rec := []byte{0, 0, 0} // attributes, timestamp delta, offset delta
	for _, b := range [][]byte{o.key, o.value} {
		if b == nil {
			rec = binary.AppendVarint(rec, -1)
			continue
		}
		rec = append(binary.AppendVarint(rec, int64(len(b))), b...)
	}
	rec = append(rec, 0) // headers
	rec = append(binary.AppendVarint(nil, int64(len(rec))), rec...)

	be := binary.BigEndian
	crced := be.AppendUint16(nil, o.attributes)
	crced = be.AppendUint32(crced, 0) // last offset delta
	crced = be.AppendUint64(crced, uint64(o.timestamp))
	crced = be.AppendUint64(crced, uint64(o.timestamp))
	crced = be.AppendUint64(crced, uint64(o.producer))
	crced = be.AppendUint16(crced, uint16(o.epoch))
	crced = be.AppendUint32(crced, uint32(o.sequence))
	crced = be.AppendUint32(crced, 1)
	crced = append(crced, rec...)

	b := be.AppendUint64(nil, uint64(o.offset))
	b = be.AppendUint32(b, uint32(9+len(crced)))
	b = be.AppendUint32(b, 0) // leader epoch
	b = append(b, 2)
	b = be.AppendUint32(b, crc32.Checksum(crced, crc32.MakeTable(crc32.Castagnoli)))
	return append(b, crced...)
}

func seed(t *testing.T, state int8) (key, value []byte) {
	t.Helper()
	key, err := protocol.EncodeKey(protocol.SeedStateKey{MirrorName: "my-mirror"})
	if err != nil {
		t.Fatal(err)
	}
	value, err = protocol.EncodeValue(&protocol.SeedStateValue{TopicName: "my-topic", State: state})
	if err != nil {
		t.Fatal(err)
	}
	return key, value
}

func segment(t *testing.T, name string, batches ...batchOf) string {
	t.Helper()
	var all []byte
	for _, b := range batches {
		all = append(all, b.bytes()...)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, all, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func kipSegment(t *testing.T) string {
	t.Helper()
	var batches []batchOf
	for i, timestamp := range []int64{1771239071191, 1771239071219} {
		key, value := seed(t, int8(i))
		batches = append(batches, batchOf{offset: int64(i), timestamp: timestamp, producer: -1, epoch: -1, sequence: -1, key: key, value: value})
	}
	return segment(t, "00000000000000000000.log", batches...)
}

// The log dump that KIP-1279 shows, all of it.
func TestDecodeLogAsTheKIPShows(t *testing.T) {
	file := kipSegment(t)
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"--decode-log", file}, &out, &errs); code != 0 {
		t.Fatal(errs.String())
	}
	want := `Dumping ` + file + `
Log starting offset: 0
baseOffset: 0 lastOffset: 0 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1771239071191 size: 98 magic: 2 compresscodec: none crc: 3314855113 isvalid: true
| offset: 0 CreateTime: 1771239071191 keySize: 13 valueSize: 17 sequence: -1 headerKeys: [] key: {"type":"2","data":{"mirrorName":"my-mirror"}} payload: {"version":"0","data":{"topicName":"my-topic","partition":0,"state":0}}
baseOffset: 1 lastOffset: 1 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 98 CreateTime: 1771239071219 size: 98 magic: 2 compresscodec: none crc: 3968746657 isvalid: true
| offset: 1 CreateTime: 1771239071219 keySize: 13 valueSize: 17 sequence: -1 headerKeys: [] key: {"type":"2","data":{"mirrorName":"my-mirror"}} payload: {"version":"0","data":{"topicName":"my-topic","partition":0,"state":1}}
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// otherBatches are what the KIP's example does not have: transactions, markers, tombstones, secrets.
func otherBatches(t *testing.T) []batchOf {
	t.Helper()
	key, value := seed(t, 2)
	mirror, err := protocol.EncodeKey(protocol.MirrorKey{MirrorName: "east"})
	if err != nil {
		t.Fatal(err)
	}
	jaas, servers := `x required password="hunter2";`, "source:9092"
	config, err := protocol.EncodeValue(&protocol.MirrorValue{SourceClusterID: "id", Configs: []protocol.MirrorConfig{
		{Name: "bootstrap.servers", Value: &servers}, {Name: "sasl.jaas.config", Value: &jaas},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const transactional, control, horizon = 1 << 4, 1 << 5, 1 << 6
	return []batchOf{
		{offset: 40, timestamp: 1771239071191, attributes: transactional, producer: 7, epoch: 3, sequence: math.MaxInt32, key: key, value: value},
		{offset: 41, timestamp: 1771239071192, attributes: transactional, producer: 7, epoch: 3, key: mirror, value: config},
		{offset: 42, timestamp: 1771239071193, attributes: transactional | control, producer: 7, epoch: 3, sequence: -1, key: []byte{0, 0, 0, 1}, value: []byte{0, 0, 0, 0, 0, 9}},
		{offset: 43, timestamp: 1771239071194, attributes: transactional | control, producer: 7, epoch: 3, sequence: -1, key: []byte{0, 0, 0, 0}, value: []byte{0, 0, 0, 0, 0, 9}},
		{offset: 44, timestamp: 1771239071195, attributes: horizon, producer: -1, epoch: -1, sequence: -1, key: mirror},
	}
}

func TestDecodeLogOfOwnRecords(t *testing.T) {
	file := segment(t, "00000000000000000040.log", otherBatches(t)...)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	// What Kafka has allocated and not written yet ends a log.
	if err := os.WriteFile(file, append(data, make([]byte, 4096)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := decodeLog(&out, file); err != nil {
		t.Fatal(err)
	}
	golden(t, "decode-log", strings.ReplaceAll(out.String(), filepath.Dir(file), "DIR"))
	if strings.Contains(out.String(), "hunter2") {
		t.Error("a password is shown")
	}
	// What is cut off is said, after all that is whole.
	if err := os.WriteFile(file, data[:len(data)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := decodeLog(&out, file); err == nil || !strings.Contains(out.String(), "offset: 43") || strings.Contains(out.String(), "offset: 44") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// Kafka's own tool prints the same lines, but for keys and payloads, which it does not understand.
func TestDecodeLogAsKafkaDoes(t *testing.T) {
	harness.SkipShort(t)
	in, err := harness.Install(t.Context(), harness.DefaultVersion)
	if err != nil {
		t.Fatal(err)
	}
	class, err := in.FindClass("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{kipSegment(t), segment(t, "00000000000000000040.log", otherBatches(t)...)} {
		theirs, err := in.Tool(t.Context(), harness.ToolRun{Class: class, Args: []string{"--deep-iteration", "--files", file}})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := decodeLog(&out, file); err != nil {
			t.Fatal(err)
		}
		ours := regexp.MustCompile(` key: .*`).ReplaceAllString(out.String(), "")
		if ours != theirs.Stdout {
			t.Errorf("got\n%sKafka prints\n%s", ours, theirs.Stdout)
		}
	}
}

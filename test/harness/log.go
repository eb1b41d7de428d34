package harness

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// Batch is one record batch of a partition's log, as DumpLogSegments prints it
// or as its header says.
type Batch struct {
	BaseOffset, LastOffset     int64
	Count                      int32
	BaseSequence, LastSequence int32
	ProducerID                 int64
	ProducerEpoch              int16
	LeaderEpoch                int32
	Transactional, Control     bool
	DeleteHorizon              int64 // -1: none
	LogAppendTime              bool  // else create time
	MaxTimestamp               int64
	Size                       int32 // of the whole batch with its header
	Magic                      int8
	Codec                      string // none, gzip, snappy, lz4, zstd
	CRC                        uint32
	Valid                      bool // the CRC is that of the batch

	// Where it was found. Replicas may cut their segments differently, so these
	// are not compared.
	Segment  string
	Position int64

	// Sum is over every byte of the batch; only [Node.ReadLog] sets it.
	Sum [sha256.Size]byte
}

// Log is a partition's log on one node.
type Log struct {
	Node      int32
	Topic     string
	Partition int32
	Batches   []Batch
	// Trailing counts bytes at the end that are no whole batch: a write in
	// flight, or what a killed broker left.
	Trailing int64
}

// EndOffset is the offset after the last batch, 0 for an empty log.
func (l Log) EndOffset() int64 {
	if len(l.Batches) == 0 {
		return 0
	}
	return l.Batches[len(l.Batches)-1].LastOffset + 1
}

// dumpMaxMessage lifts DumpLogSegments' own limit of 5 MB to a batch.
const dumpMaxMessage = 256 << 20

// DumpLog runs Kafka's DumpLogSegments over a partition's log on this node. The
// node may run or not; a running one may be in the middle of a write (see Trailing).
func (n *Node) DumpLog(ctx context.Context, topic string, partition int32) (Log, error) {
	l := Log{Node: n.plan.id, Topic: topic, Partition: partition}
	fail := func(err error) (Log, error) { return l, fmt.Errorf("dump %s-%d on %s: %w", topic, partition, n, err) }
	dir, err := n.PartitionDir(topic, partition)
	if err != nil {
		return fail(err)
	}
	segments, err := segmentsIn(dir)
	if err != nil {
		return fail(err)
	}
	in := n.Installation()
	class, err := in.FindClass("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments")
	if err != nil {
		return fail(err)
	}
	res, err := in.Tool(ctx, ToolRun{Class: class, Args: []string{
		"--files", strings.Join(segments, ","), "--max-message-size", strconv.Itoa(dumpMaxMessage),
	}})
	if err != nil {
		return fail(err)
	}
	if l.Batches, l.Trailing, err = parseDump(res.Stdout); err != nil {
		return fail(err)
	}
	return l, nil
}

// segmentsIn gives a log's segment files in the order of their offsets.
// Kafka's names are padded to 20 digits, so that is also the order of names.
func segmentsIn(dir string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no segments in %s: %w", dir, fs.ErrNotExist)
	}
	sort.Strings(names)
	return names, nil
}

var (
	dumpField   = regexp.MustCompile(`(\w+): (\S+)`)
	dumpInvalid = regexp.MustCompile(`^Found (\d+) invalid bytes at the end of `)
)

// parseDump reads DumpLogSegments' output: a "Dumping <file>" line per segment,
// then a line per batch. Lines that are neither a batch nor known are skipped.
func parseDump(text string) (batches []Batch, trailing int64, err error) {
	segment := ""
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		switch {
		case strings.HasPrefix(line, "Dumping "):
			segment = filepath.Base(strings.TrimPrefix(line, "Dumping "))
		case strings.HasPrefix(line, "baseOffset: "):
			b, err := parseDumpLine(line)
			if err != nil {
				return nil, 0, fmt.Errorf("output line %d, %q: %w", i+1, line, err)
			}
			b.Segment = segment
			batches = append(batches, b)
		default:
			if m := dumpInvalid.FindStringSubmatch(line); m != nil {
				n, err := strconv.ParseInt(m[1], 10, 64)
				if err != nil {
					return nil, 0, fmt.Errorf("output line %d, %q: %w", i+1, line, err)
				}
				trailing += n
			}
		}
	}
	return batches, trailing, nil
}

func parseDumpLine(line string) (Batch, error) {
	fields := map[string]string{}
	for _, m := range dumpField.FindAllStringSubmatch(line, -1) {
		fields[m[1]] = m[2]
	}
	var errs []error
	number := func(name string, bits int) int64 {
		n, err := strconv.ParseInt(fields[name], 10, bits)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		return n
	}
	truth := func(name string) bool {
		v, err := strconv.ParseBool(fields[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		return v
	}
	b := Batch{
		BaseOffset: number("baseOffset", 64), LastOffset: number("lastOffset", 64), Count: int32(number("count", 32)),
		BaseSequence: int32(number("baseSequence", 32)), LastSequence: int32(number("lastSequence", 32)),
		ProducerID: number("producerId", 64), ProducerEpoch: int16(number("producerEpoch", 16)),
		LeaderEpoch:   int32(number("partitionLeaderEpoch", 32)),
		Transactional: truth("isTransactional"), Control: truth("isControl"), DeleteHorizon: -1,
		Size: int32(number("size", 32)), Magic: int8(number("magic", 8)), Codec: fields["compresscodec"],
		CRC: uint32(number("crc", 64)), Valid: truth("isvalid"), Position: number("position", 64),
	}
	if b.Codec == "" {
		errs = append(errs, errors.New("no compresscodec"))
	}
	switch {
	case fields["LogAppendTime"] != "":
		b.LogAppendTime = true
		b.MaxTimestamp = number("LogAppendTime", 64)
	default:
		b.MaxTimestamp = number("CreateTime", 64)
	}
	if h := fields["deleteHorizonMs"]; strings.HasPrefix(h, "OptionalLong[") {
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(h, "OptionalLong["), "]"), 10, 64)
		if err != nil {
			errs = append(errs, fmt.Errorf("deleteHorizonMs: %w", err))
		}
		b.DeleteHorizon = n
	}
	return b, errors.Join(errs...)
}

// readTries bounds how often ReadLog starts anew because a segment was deleted
// or replaced by the cleaner while it read.
const readTries = 5

// ReadLog reads a partition's log straight from the segment files: a thousand
// times faster than DumpLog, and with a sum over every byte. The node may run or not.
func (n *Node) ReadLog(topic string, partition int32) (Log, error) {
	var err error
	for range readTries {
		var l Log
		if l, err = n.readLog(topic, partition); err == nil {
			return l, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return Log{}, fmt.Errorf("read %s-%d on %s: %w", topic, partition, n, err)
}

func (n *Node) readLog(topic string, partition int32) (Log, error) {
	l := Log{Node: n.plan.id, Topic: topic, Partition: partition}
	dir, err := n.PartitionDir(topic, partition)
	if err != nil {
		return l, err
	}
	segments, err := segmentsIn(dir)
	if err != nil {
		return l, err
	}
	for _, name := range segments {
		data, err := os.ReadFile(name)
		if err != nil {
			return l, err
		}
		batches, rest := scanBatches(data)
		for i := range batches {
			batches[i].Segment = filepath.Base(name)
		}
		l.Batches = append(l.Batches, batches...)
		l.Trailing += int64(rest)
	}
	return l, nil
}

// Layout of a record batch of magic 2.
const (
	batchOverhead   = 12 // base offset and length
	batchHeaderSize = 61
	batchMagicAt    = 16
	batchCRCFrom    = 21 // the CRC covers from the attributes to the end
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// scanBatches reads whole batches up to the first thing that is none.
func scanBatches(data []byte) (batches []Batch, rest int) {
	at := 0
	for len(data)-at >= batchHeaderSize {
		length := int(int32(binary.BigEndian.Uint32(data[at+8:])))
		if length < batchHeaderSize-batchOverhead || len(data)-at-batchOverhead < length || data[at+batchMagicAt] != 2 {
			break
		}
		b := readBatch(data[at : at+batchOverhead+length])
		b.Position = int64(at)
		batches = append(batches, b)
		at += batchOverhead + length
	}
	return batches, len(data) - at
}

func readBatch(raw []byte) Batch {
	r := bytes.NewReader(raw)
	var h struct {
		BaseOffset                    int64
		Length, LeaderEpoch           int32
		Magic                         int8
		CRC                           uint32
		Attributes                    int16
		LastOffsetDelta               int32
		FirstTimestamp, MaxTimestamp  int64
		ProducerID                    int64
		ProducerEpoch                 int16
		BaseSequence, NumberOfRecords int32
	}
	if err := binary.Read(r, binary.BigEndian, &h); err != nil && !errors.Is(err, io.EOF) {
		panic("a batch header is shorter than the caller checked: " + err.Error())
	}
	const (
		codecMask        = 0x07
		logAppendTime    = 0x08
		transactional    = 0x10
		control          = 0x20
		hasDeleteHorizon = 0x40
	)
	b := Batch{
		BaseOffset: h.BaseOffset, LastOffset: h.BaseOffset + int64(h.LastOffsetDelta), Count: h.NumberOfRecords,
		BaseSequence: h.BaseSequence, LastSequence: lastSequence(h.BaseSequence, h.LastOffsetDelta),
		ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, LeaderEpoch: h.LeaderEpoch,
		Transactional: h.Attributes&transactional != 0, Control: h.Attributes&control != 0, DeleteHorizon: -1,
		LogAppendTime: h.Attributes&logAppendTime != 0, MaxTimestamp: h.MaxTimestamp,
		Size: int32(len(raw)), Magic: h.Magic, Codec: codecName(h.Attributes & codecMask), CRC: h.CRC,
		Valid: crc32.Checksum(raw[batchCRCFrom:], castagnoli) == h.CRC,
		Sum:   sha256.Sum256(raw),
	}
	if h.Attributes&hasDeleteHorizon != 0 { // it takes the first timestamp's place
		b.DeleteHorizon = h.FirstTimestamp
	}
	return b
}

// lastSequence wraps around as producers' sequence numbers do.
func lastSequence(base, delta int32) int32 {
	if base < 0 {
		return -1
	}
	return int32((int64(base) + int64(delta)) & 0x7fffffff)
}

func codecName(id int16) string {
	names := []string{"none", "gzip", "snappy", "lz4", "zstd"}
	if int(id) < len(names) {
		return names[id]
	}
	return strconv.Itoa(int(id))
}

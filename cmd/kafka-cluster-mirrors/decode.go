package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// maxSegment bounds what is read of one segment file.
const maxSegment = 2 << 30

// decodeLogs prints the records of segment files of the state topic, as kafka-dump-log.sh
// prints those of other internal topics.
func decodeLogs(out io.Writer, files []string) error {
	var errs []error
	for _, file := range files {
		if err := decodeLog(out, file); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
	}
	return errors.Join(errs...)
}

func decodeLog(out io.Writer, file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.Size() > maxSegment {
		return fmt.Errorf("larger than a segment can be (%d bytes)", info.Size())
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "Dumping %s\n", file)
	// A segment's name is the offset that it begins with.
	if start, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(file), ".log"), 10, 64); err == nil {
		fmt.Fprintf(&b, "Log starting offset: %d\n", start)
	}
	rest := data
	for len(rest) > 0 {
		var one batch.Batch
		at := len(data) - len(rest)
		var next []byte
		if one, next, err = batch.Next(rest); err != nil {
			break
		}
		if len(one) == 0 {
			err = fmt.Errorf("the last %d bytes are no whole batch", len(rest))
			break
		}
		rest = next
		if err = dumpBatch(&b, one, at); err != nil {
			break
		}
		if _, err := b.WriteTo(out); err != nil {
			return err
		}
	}
	if _, werr := b.WriteTo(out); werr != nil {
		return werr
	}
	if err != nil && len(bytes.Trim(rest, "\x00")) == 0 {
		return nil // preallocated and not written yet
	}
	return err
}

func dumpBatch(out io.Writer, b batch.Batch, position int) error {
	lastSequence := b.BaseSequence()
	if lastSequence >= 0 {
		lastSequence = sequence(b.BaseSequence(), b.LastOffsetDelta())
	}
	horizon := "OptionalLong.empty"
	if b.HasDeleteHorizon() {
		horizon = fmt.Sprintf("OptionalLong[%d]", b.BaseTimestamp())
	}
	fmt.Fprintf(out, "baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d "+
		"partitionLeaderEpoch: %d isTransactional: %t isControl: %t deleteHorizonMs: %s position: %d %s: %d size: %d magic: %d "+
		"compresscodec: %s crc: %d isvalid: %t\n",
		b.BaseOffset(), b.LastOffset(), b.Count(), b.BaseSequence(), lastSequence, b.ProducerID(), b.ProducerEpoch(),
		b.LeaderEpoch(), b.IsTransactional(), b.IsControl(), horizon, position, timestampType(b), b.MaxTimestamp(), len(b), b.Magic(),
		b.Codec(), b.CRC(), b.Verify() == nil)
	records, err := unpack(b)
	if err != nil {
		return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
	}
	for _, r := range records {
		dumpRecord(out, b, r)
	}
	return nil
}

func dumpRecord(out io.Writer, b batch.Batch, r *kgo.Record) {
	seq := int32(-1)
	if b.BaseSequence() >= 0 {
		seq = sequence(b.BaseSequence(), int32(r.Offset-b.BaseOffset()))
	}
	headers := make([]string, 0, len(r.Headers))
	for _, h := range r.Headers {
		headers = append(headers, h.Key)
	}
	fmt.Fprintf(out, "| offset: %d %s: %d keySize: %d valueSize: %d sequence: %d headerKeys: [%s]",
		r.Offset, timestampType(b), r.Timestamp.UnixMilli(), size(r.Key), size(r.Value), seq, strings.Join(headers, ","))
	if b.IsControl() {
		fmt.Fprintln(out, controlText(r))
		return
	}
	key, payload, err := protocol.DumpRecord(r.Key, hideSecrets(r.Key, r.Value))
	if err != nil {
		key, payload = "?", err.Error()
	}
	fmt.Fprintf(out, " key: %s payload: %s\n", key, payload)
}

// unpack gives the records of a batch. franz-go unpacks those of a fetch answer, which a
// segment is a row of.
func unpack(b batch.Batch) ([]*kgo.Record, error) {
	p := kmsg.NewFetchResponseTopicPartition()
	p.RecordBatches = b
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Topic: protocol.StateTopic, Offset: b.BaseOffset(), KeepControlRecords: true,
	}, &p, kgo.DefaultDecompressor(), nil)
	return fp.Records, fp.Err
}

// controlText shows a transaction's end, the only control record of this topic.
func controlText(r *kgo.Record) string {
	if len(r.Key) < 4 {
		return ""
	}
	kind := binary.BigEndian.Uint16(r.Key[2:])
	name := map[uint16]string{0: "ABORT", 1: "COMMIT"}[kind]
	if name == "" || len(r.Value) < 6 {
		return fmt.Sprintf(" controlType: %d", kind)
	}
	return fmt.Sprintf(" endTxnMarker: %s coordinatorEpoch: %d", name, int32(binary.BigEndian.Uint32(r.Value[2:])))
}

// sequence counts as Kafka does, from the largest number on to 0.
func sequence(base, delta int32) int32 { return int32((int64(base) + int64(delta)) & 0x7fffffff) }

func size(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}

func timestampType(b batch.Batch) string {
	if b.IsLogAppendTime() {
		return "LogAppendTime"
	}
	return "CreateTime"
}

// hideSecrets replaces passwords in the record of a mirror: what is printed is kept, mailed and pasted.
func hideSecrets(key, value []byte) []byte {
	k, err := protocol.DecodeKey(key)
	if err != nil {
		return value
	}
	v, err := protocol.DecodeValue(k, value)
	m, ok := v.(*protocol.MirrorValue)
	if err != nil || !ok {
		return value
	}
	shown := config.Properties{}
	for _, c := range m.Configs {
		shown[c.Name] = deref(c.Value)
	}
	shown = shown.Redacted()
	for i, c := range m.Configs {
		if text := shown[c.Name]; c.Value != nil {
			m.Configs[i].Value = &text
		}
	}
	redacted, err := protocol.EncodeValue(m)
	if err != nil {
		return value
	}
	return redacted
}

// decodeState prints the state topic up to its present end.
func (o *options) decodeState(ctx context.Context, out io.Writer) error {
	cl, err := dial(o.bootstrap, o.commandConfig)
	if err != nil {
		return err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, coordinator.StateTopic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("topic %s: %w", coordinator.StateTopic, err)
	}
	left := map[int32]int64{}
	offsets := map[int32]kgo.Offset{}
	for p, e := range ends[coordinator.StateTopic] {
		if e.Offset > 0 {
			left[p] = e.Offset
			offsets[p] = kgo.NewOffset().AtStart()
		}
	}
	if len(left) == 0 {
		return nil
	}
	reader, err := dial(o.bootstrap, o.commandConfig,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{coordinator.StateTopic: offsets}), kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer reader.Close()
	for len(left) > 0 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("topic %s: %w", coordinator.StateTopic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			if r.Attrs.IsControl() {
				return
			}
			text, err := protocol.FormatRecord(r.Key, hideSecrets(r.Key, r.Value))
			if err != nil {
				text = fmt.Sprintf("%s-%d at offset %d: %v", r.Topic, r.Partition, r.Offset, err)
			}
			fmt.Fprintln(out, text)
		})
	}
	return nil
}

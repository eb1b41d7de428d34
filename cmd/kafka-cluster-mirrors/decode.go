package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// maxSegment bounds what is read of one segment file.
const maxSegment = 2 << 30

// decodeLogs prints the records of segment files of the state topic.
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
	const head = 61
	for len(data) >= head {
		size := int(int32(binary.BigEndian.Uint32(data[8:12]))) + 12
		if size < head || size > len(data) {
			break // preallocated or cut off
		}
		// franz-go unpacks batches of a fetch answer, which a segment is a row of.
		p := kmsg.NewFetchResponseTopicPartition()
		p.RecordBatches = data[:size]
		base := int64(binary.BigEndian.Uint64(data))
		fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
			Topic: protocol.StateTopic, Offset: base, KeepControlRecords: true,
		}, &p, kgo.DefaultDecompressor(), nil)
		if fp.Err != nil {
			return fmt.Errorf("batch at offset %d: %w", base, fp.Err)
		}
		for _, r := range fp.Records {
			if r.Attrs.IsControl() {
				continue
			}
			key, payload, err := protocol.DumpRecord(r.Key, r.Value)
			if err != nil {
				key, payload = "?", err.Error()
			}
			fmt.Fprintf(out, "| offset: %d CreateTime: %d keySize: %d valueSize: %d sequence: -1 headerKeys: [] key: %s payload: %s\n",
				r.Offset, r.Timestamp.UnixMilli(), len(r.Key), len(r.Value), key, payload)
		}
		data = data[size:]
	}
	return nil
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
			text, err := protocol.FormatRecord(r.Key, r.Value)
			if err != nil {
				text = fmt.Sprintf("%s-%d at offset %d: %v", r.Topic, r.Partition, r.Offset, err)
			}
			fmt.Fprintln(out, text)
		})
	}
	return nil
}

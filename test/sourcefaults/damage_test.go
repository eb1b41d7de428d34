package sourcefaults

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

// check reads the mirror as read_committed consumers do.
func (e *env) check(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := e.load.Check(ctx, workload.CheckConfig{Bootstrap: e.dst.Proxies(), Committed: true}); err != nil {
		t.Error(err)
	}
}

// flip inverts a byte of the batch at offset in every log of the source that has it. Brokers send
// what is in the file, and do not look at it.
func (e *env) flip(t *testing.T, topic string, partition int32, offset int64) {
	t.Helper()
	found := false
	for _, n := range e.src.Brokers() {
		dir, err := n.PartitionDir(topic, partition)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		log, err := n.ReadLog(topic, partition)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range log.Batches {
			if b.BaseOffset != offset {
				continue
			}
			found = true
			if err := flipByte(filepath.Join(dir, b.Segment), b.Position+int64(b.Size)-2); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !found {
		t.Fatalf("no batch of %s-%d at %d", topic, partition, offset)
	}
}

func flipByte(file string, at int64) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	b[0] ^= 0xff
	_, err = f.WriteAt(b, at)
	return err
}

// waitOne waits until one partition of a topic is FAILED with a message, and the other one has all.
func (e *env) waitOne(t *testing.T, topic string, message string, failedAt, other int64) {
	t.Helper()
	harness.AwaitT(t, patience, topic+": partition 0 FAILED, partition 1 goes on", func(ctx context.Context) error {
		d, err := e.describe(ctx)
		if err != nil {
			return err
		}
		for _, p := range d[topic] {
			switch {
			case p.PartitionIndex == 0 && (p.State != stateFailed || !strings.Contains(text(p.ErrorMessage), message)),
				p.PartitionIndex != 0 && p.State != stateMirroring:
				return said(topic, p)
			}
		}
		l, err := e.dstAdmin.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		a, _ := l.Lookup(topic, 0)
		b, _ := l.Lookup(topic, 1)
		if a.Offset != failedAt || b.Offset != other {
			return errors.Join(a.Err, b.Err, fmt.Errorf("they end at %d and %d, want %d and %d", a.Offset, b.Offset, failedAt, other))
		}
		return nil
	})
}

// damagedBatch fails one partition only, until the source is mended.
func damagedBatch(t *testing.T, e *env) {
	const topic = "damaged"
	e.create(t, 2, brokers, topic)
	e.write(t, topic, 2, 20, 100)
	e.mirror(t, topic)
	e.settled(t, "before", time.Now())
	e.cli(t, "--pause", "--mirror", mirror, "--topics", topic)
	e.waitState(t, statePaused, topic)
	e.write(t, topic, 2, 20, 100)
	e.flip(t, topic, 0, 30)
	bad := e.counter(t, "kafka_mirror_corrupt_batches_total")
	e.cli(t, "--resume", "--mirror", mirror, "--topics", topic)
	e.waitOne(t, topic, "at offset 30", 30, 40)
	if now := e.counter(t, "kafka_mirror_corrupt_batches_total"); now < bad+2 {
		t.Errorf("%v damaged batches were counted, want two at least: it is fetched once more before it fails", now-bad)
	}
	e.moves(t, 50)
	e.waitOne(t, topic, "at offset 30", 30, 40)
	e.cli(t, "--recover", "--mirror", mirror, "--topics", topic)
	e.waitOne(t, topic, "at offset 30", 30, 40)
	e.flip(t, topic, 0, 30)
	mended := time.Now()
	e.settled(t, "a damaged batch, mended", mended)
}

// oldMagic has a message in the format of before Kafka 0.11, which no broker of today writes: it is
// put into the log of a broker that does not run.
func oldMagic(t *testing.T, e *env) {
	const topic = "long-ago"
	e.create(t, 2, 1, topic)
	e.write(t, topic, 2, 20, 100)
	e.mirror(t, topic)
	e.settled(t, "before", time.Now())
	e.cli(t, "--pause", "--mirror", mirror, "--topics", topic)
	e.waitState(t, statePaused, topic)
	d, err := e.srcAdmin.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	n := e.src.Node(d[topic].Partitions[0].Leader)
	if err := n.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	dir, err := n.PartitionDir(topic, 0)
	if err == nil {
		err = appendTo(filepath.Join(dir, fmt.Sprintf("%020d.log", 0)), messageV1(20, "a message of long ago"))
	}
	if err == nil {
		err = n.Start(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := harness.AwaitTopic(ctx, e.srcClient, topic); err != nil {
		t.Fatal(err)
	}
	e.write(t, topic, 2, 10, 100)
	e.cli(t, "--resume", "--mirror", mirror, "--topics", topic)
	e.waitOne(t, topic, "record format 1", 20, 30)
	e.cli(t, "--recover", "--mirror", mirror, "--topics", topic)
	e.waitOne(t, topic, "record format 1", 20, 30)

	// The way on is to let the source delete it.
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 21, -1)
	if r, err := e.srcAdmin.DeleteRecords(ctx, offsets); err != nil || r.Error() != nil {
		t.Fatal(errors.Join(err, r.Error()))
	}
	e.cli(t, "--recover", "--mirror", mirror, "--topics", topic)
	harness.AwaitT(t, patience, "the hole is described", func(ctx context.Context) error {
		d, err := e.describe(ctx)
		if err != nil {
			return err
		}
		for _, p := range d[topic] {
			if p.PartitionIndex == 0 && (p.State != stateMirroring || text(p.Detail) != "RECORDS_LOST") {
				return said(topic, p)
			}
		}
		return nil
	})
	e.settled(t, "a message of long ago", time.Now())
}

func appendTo(file string, data []byte) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// messageV1 is a message set of one message of magic 1.
func messageV1(offset int64, value string) []byte {
	body := []byte{1, 0} // magic, attributes
	body = binary.BigEndian.AppendUint64(body, uint64(time.Now().UnixMilli()))
	body = binary.BigEndian.AppendUint32(body, 0xffffffff) // no key
	body = binary.BigEndian.AppendUint32(body, uint32(len(value)))
	body = append(body, value...)
	set := binary.BigEndian.AppendUint64(nil, uint64(offset))
	set = binary.BigEndian.AppendUint32(set, uint32(4+len(body)))
	set = binary.BigEndian.AppendUint32(set, crc32.ChecksumIEEE(body))
	return append(set, body...)
}

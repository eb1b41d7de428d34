package fetcher

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher/pool"
)

const (
	// lastNamed is the last version of Fetch that names topics.
	lastNamed int16 = 12
	// firstFlexible is the first version of Fetch with compact fields and tags.
	firstFlexible int16 = 12
	// readStep is how much of a partition's records is read before what is whole of it is
	// verified: little enough to be still in the core's own cache then.
	readStep = 256 << 10
)

// errShort says that an answer ends before what it announced.
var errShort = errors.New("the answer is shorter than what it says")

// reply is a Fetch answer whose records were taken out.
type reply struct {
	resp *kmsg.FetchResponse // RecordBatches are empty
	data []partData          // of the answer's partitions, in order
}

// partData is the records of one partition's part of an answer.
type partData struct {
	buf  *pool.Buffer // held by the answer, nil without records
	size int          // of the records, whole batches or not
	in   ingested
}

// release gives up all records.
func (a *reply) release() {
	if a == nil {
		return
	}
	for i := range a.data {
		a.data[i].buf.Release()
		a.data[i] = partData{}
	}
}

// read takes an answer of n bytes from the connection. Records go into buffers of their
// own, one for each partition, where they are verified and tagged piece by piece while
// they come. All else is left to kmsg: it is copied as it passes, with empty records.
func (c *conn) read(q *question, n int, memory *pool.Reservation, tagger batch.Tagger) (*reply, error) {
	w := walk{c: c, left: n, version: q.req.Version, memory: memory, tagger: tagger, asks: q.asks}
	err := w.answer()
	if err == nil {
		w.a.resp = q.req.ResponseKind().(*kmsg.FetchResponse)
		err = w.a.resp.ReadFrom(w.rest)
	}
	if err == nil {
		parts := 0
		for i := range w.a.resp.Topics {
			parts += len(w.a.resp.Topics[i].Partitions)
		}
		if parts != len(w.a.data) {
			err = fmt.Errorf("%d partitions were counted as %d", parts, len(w.a.data))
		}
	}
	if err != nil {
		w.a.release()
		return nil, fmt.Errorf("read an answer of %d bytes to Fetch v%d: %w", n, q.req.Version, err)
	}
	return &w.a, nil
}

// walk goes over an answer. Every step is bounded by what is left of it.
type walk struct {
	c       *conn
	left    int // bytes of the answer that are still to come
	version int16
	memory  *pool.Reservation
	tagger  batch.Tagger
	asks    []ask
	near    int // the ask after the one that was found last: answers come in the order asked

	rest []byte // the answer without its records
	a    reply
	err  error
}

// take returns the next n bytes, which are copied on; they are valid until the next call.
func (w *walk) take(n int) []byte {
	if w.err == nil && (n < 0 || n > w.left) {
		w.err = errShort
	}
	if w.err != nil {
		return nil
	}
	at := len(w.rest)
	for n > 0 {
		step := min(n, headerBuffer)
		b, err := w.c.r.Peek(step)
		if err != nil {
			w.err = unexpected(err)
			return nil
		}
		w.rest = append(w.rest, b...)
		_, _ = w.c.r.Discard(step)
		w.left -= step
		n -= step
	}
	return w.rest[at:]
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (w *walk) flexible() bool { return w.version >= firstFlexible }

// int32 and the others return 0 after a failure.
func (w *walk) int32() int32 {
	if b := w.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (w *walk) uvarint() int {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		b := w.take(1)
		if b == nil {
			return 0
		}
		v |= uint64(b[0]&0x7f) << shift
		if b[0] < 0x80 {
			if v > 1<<31-1 {
				break
			}
			return int(v)
		}
	}
	w.err = errors.New("a length that is none")
	return 0
}

// count returns the length of an array, a string or a byte field, -1 for null; wide is
// that of the lengths before flexible versions.
func (w *walk) count(wide int) int {
	switch {
	case w.flexible():
		return w.uvarint() - 1
	case wide == 4:
		return int(w.int32())
	}
	if b := w.take(2); b != nil {
		return int(int16(binary.BigEndian.Uint16(b)))
	}
	return 0
}

func (w *walk) tags() {
	if !w.flexible() {
		return
	}
	for range w.uvarint() {
		w.uvarint()
		w.take(w.uvarint())
		if w.err != nil {
			return
		}
	}
}

func (w *walk) answer() error {
	if w.flexible() { // the header's
		w.tags()
		w.rest = w.rest[:0]
	}
	w.take(4) // throttle time
	if w.version >= 7 {
		w.take(2 + 4) // error, session
	}
	for range w.count(4) {
		w.topic()
		if w.err != nil {
			return w.err
		}
	}
	w.tags()
	if w.err == nil && w.left > 0 {
		w.err = fmt.Errorf("%d bytes behind the answer's end", w.left)
	}
	return w.err
}

func (w *walk) topic() {
	var at ask
	if w.version > lastNamed {
		copy(at.topicID[:], w.take(16))
	} else {
		at.topic = string(w.take(max(0, w.count(2))))
	}
	for range w.count(4) {
		w.partition(at)
		if w.err != nil {
			return
		}
	}
	w.tags()
}

func (w *walk) partition(at ask) {
	at.partition = w.int32()
	fixed := 2 + 8 + 8 // error, high watermark, last stable offset
	if w.version >= 5 {
		fixed += 8 // log start
	}
	w.take(fixed)
	for range w.count(4) { // aborted transactions
		w.take(16)
		w.tags()
		if w.err != nil {
			return
		}
	}
	if w.version >= 11 {
		w.take(4) // preferred read replica
	}
	w.records(at)
	w.tags()
}

// records takes a partition's records out of the answer.
func (w *walk) records(at ask) {
	mark := len(w.rest)
	n := w.count(4)
	if w.err == nil && n > w.left {
		w.err = errShort
	}
	if w.err != nil {
		return
	}
	if n <= 0 {
		w.a.data = append(w.a.data, partData{in: ingested{epoch: -1}})
		return
	}
	if w.rest = w.rest[:mark]; w.flexible() {
		w.rest = append(w.rest, 1)
	} else {
		w.rest = append(w.rest, 0, 0, 0, 0)
	}
	buf := w.memory.Buffer(n)
	w.a.data = append(w.a.data, partData{buf: buf, size: n})
	in := &w.a.data[len(w.a.data)-1].in
	offset, asked := w.offset(at)
	in.begin(offset)
	data := buf.Bytes()
	for filled := 0; filled < n; {
		step := min(readStep, n-filled)
		// A slow link may take its time for an answer, but not stand still.
		_ = w.c.c.SetReadDeadline(time.Now().Add(w.c.d.timeout))
		if _, err := io.ReadFull(w.c.r, data[filled:filled+step]); err != nil {
			w.err = unexpected(err)
			return
		}
		filled += step
		w.left -= step
		if asked {
			in.more(data[:filled], w.tagger)
		}
	}
	in.end(data)
}

// offset returns the offset that was asked for. What nobody asked for is read past.
func (w *walk) offset(at ask) (int64, bool) {
	for range w.asks {
		a := &w.asks[w.near]
		if w.near++; w.near == len(w.asks) {
			w.near = 0
		}
		if a.partition == at.partition && (w.version > lastNamed && a.topicID == at.topicID || w.version <= lastNamed && a.topic == at.topic) {
			return a.offset, true
		}
	}
	return 0, false
}

// fields reads a small answer's header.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) uvarint() uint64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 {
		f.bad = true
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) tags() {
	for n := f.uvarint(); n > 0 && !f.bad; n-- {
		f.uvarint()
		size := f.uvarint()
		if size > uint64(len(f.b)) {
			f.bad = true
			return
		}
		f.b = f.b[size:]
	}
}

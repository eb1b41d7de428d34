package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
)

// Difference is the first place where a mirror is not what its source is.
type Difference struct {
	// Offset is where: the base offset of a batch.
	Offset int64 `json:"offset"`
	// Field is what differs, one of the Field constants.
	Field string `json:"field"`
	// Source and Mirror are the two values, as text.
	Source string `json:"source"`
	Mirror string `json:"mirror"`
}

// What may differ.
const (
	FieldPartition       = "partition"    // one side has no such partition
	FieldMissing         = "missing"      // a batch of the source is not in the mirror
	FieldExtra           = "extra"        // a batch of the mirror is not in the source
	FieldEnd             = "end offset"   // the mirror did not reach the end in time
	FieldLastOffset      = "last offset"  // the batches begin together and end apart
	FieldCount           = "record count" // of the batch
	FieldAttributes      = "attributes"
	FieldBaseTimestamp   = "base timestamp"
	FieldMaxTimestamp    = "max timestamp"
	FieldProducerID      = "producer id"
	FieldProducerEpoch   = "producer epoch"
	FieldBaseSequence    = "base sequence"
	FieldPayload         = "payload"
	FieldControl         = "control record"
	FieldSourceIntegrity = "source integrity" // the source's batch is damaged
	FieldMirrorIntegrity = "mirror integrity" // the mirror's batch is damaged
)

func (d *Difference) String() string {
	if d == nil {
		return "no difference"
	}
	return fmt.Sprintf("%s differs at offset %d: source %s, mirror %s", d.Field, d.Offset, d.Source, d.Mirror)
}

// Reader reads one partition of one side.
type Reader interface {
	// Bounds returns the log start and the end that consumers see.
	Bounds(ctx context.Context) (start, end int64, err error)
	// Read returns whole or partial raw batches, the first of which contains offset or
	// lies behind it, and the end that consumers see. When nothing is there it waits
	// shortly and returns nothing. An offset below the log start is an
	// ErrOffsetOutOfRange.
	Read(ctx context.Context, offset int64) (data []byte, end int64, err error)
}

// ErrOffsetOutOfRange says that a Reader does not have an offset any more.
var ErrOffsetOutOfRange = errors.New("offset out of range")

// errDamaged is a batch that does not verify.
type errDamaged struct {
	offset int64
	err    error
}

func (e *errDamaged) Error() string { return e.err.Error() }

// cursor walks the batches of one side up to an end.
type cursor struct {
	r       Reader
	at, end int64
	data    []byte
	wait    time.Duration // how long the side may take to grow
	reached int64         // the end that the side has
}

// next returns the next batch, or nil at the end of what is to be compared or, with
// reached below end, of what is there.
func (c *cursor) next(ctx context.Context) (batch.Batch, error) {
	deadline := time.Now().Add(c.wait)
	for c.at < c.end {
		b, rest, err := batch.Next(c.data)
		if err != nil {
			return nil, &errDamaged{offset: c.at, err: err}
		}
		if b == nil {
			// What is left is a part of a batch; read from where it begins.
			var reached int64
			c.data, reached, err = c.r.Read(ctx, c.at)
			if err != nil {
				return nil, err
			}
			if reached >= 0 {
				c.reached = reached
			}
			if first, _, err := batch.Next(c.data); first != nil || err != nil {
				continue
			}
			if len(c.data) > 0 {
				return nil, fmt.Errorf("a batch at offset %d is larger than what can be read at once", c.at)
			}
			if c.reached >= c.end {
				c.at = c.end // nothing but a gap up to the end
				return nil, nil
			}
			if time.Now().After(deadline) {
				return nil, nil
			}
			continue
		}
		c.data = rest
		if b.LastOffset() < c.at { // a broker may send what lies before
			continue
		}
		if err := b.Verify(); err != nil {
			return nil, &errDamaged{offset: b.BaseOffset(), err: err}
		}
		if b.BaseOffset() >= c.end {
			c.at = c.end
			return nil, nil
		}
		c.at = b.NextOffset()
		return b, nil
	}
	return nil, nil
}

// counts is what was compared.
type counts struct{ batches, records, bytes int64 }

// compare walks both sides from start to end and returns the first difference.
func compare(ctx context.Context, src, dst Reader, start, end int64, wait time.Duration, tagger batch.Tagger, progress func(at int64)) (counts, *Difference, error) {
	var n counts
	s := &cursor{r: src, at: start, end: end}
	d := &cursor{r: dst, at: start, end: end, wait: wait}
	for {
		sb, serr := s.next(ctx)
		if serr != nil {
			return side(n, serr, FieldSourceIntegrity, "source")
		}
		db, derr := d.next(ctx)
		if derr != nil {
			return side(n, derr, FieldMirrorIntegrity, "mirror")
		}
		switch {
		case sb == nil && db == nil:
			if d.at < end && d.reached < end {
				return n, &Difference{Offset: d.reached, Field: FieldEnd, Source: num(end), Mirror: num(d.reached)}, nil
			}
			return n, nil, nil
		case db == nil && d.at < end && d.reached <= sb.BaseOffset():
			return n, &Difference{Offset: d.reached, Field: FieldEnd, Source: num(end), Mirror: num(d.reached)}, nil
		case db == nil || sb != nil && sb.BaseOffset() < db.BaseOffset():
			return n, &Difference{Offset: sb.BaseOffset(), Field: FieldMissing, Source: describe(sb), Mirror: describe(db)}, nil
		case sb == nil || sb.BaseOffset() > db.BaseOffset():
			return n, &Difference{Offset: db.BaseOffset(), Field: FieldExtra, Source: describe(sb), Mirror: describe(db)}, nil
		}
		if diff := compareBatches(sb, db, tagger); diff != nil {
			return n, diff, nil
		}
		n.batches++
		n.records += int64(sb.Count())
		n.bytes += int64(len(sb))
		if progress != nil {
			progress(s.at)
		}
	}
}

// side turns what went wrong with one side into a difference, when it is about the
// data, or an error.
func side(n counts, err error, field, name string) (counts, *Difference, error) {
	var damaged *errDamaged
	if !errors.As(err, &damaged) {
		return n, nil, fmt.Errorf("read the %s: %w", name, err)
	}
	d := &Difference{Offset: damaged.offset, Field: field, Source: "intact", Mirror: "intact"}
	if field == FieldSourceIntegrity {
		d.Source = damaged.Error()
	} else {
		d.Mirror = damaged.Error()
	}
	return n, d, nil
}

// compareBatches compares two batches that begin at one offset.
func compareBatches(s, d batch.Batch, tagger batch.Tagger) *Difference {
	differs := func(field, source, mirror string) *Difference {
		return &Difference{Offset: s.BaseOffset(), Field: field, Source: source, Mirror: mirror}
	}
	for _, f := range []struct {
		name           string
		source, mirror int64
	}{
		{FieldLastOffset, s.LastOffset(), d.LastOffset()},
		{FieldCount, int64(s.Count()), int64(d.Count())},
		{FieldProducerID, tagger.Map(s.ProducerID()), d.ProducerID()},
		{FieldProducerEpoch, int64(s.ProducerEpoch()), int64(d.ProducerEpoch())},
		{FieldBaseSequence, int64(s.BaseSequence()), int64(d.BaseSequence())},
		{FieldBaseTimestamp, s.BaseTimestamp(), d.BaseTimestamp()},
		{FieldMaxTimestamp, s.MaxTimestamp(), d.MaxTimestamp()},
	} {
		if f.source != f.mirror {
			return differs(f.name, num(f.source), num(f.mirror))
		}
	}
	if s.Attributes() != d.Attributes() {
		return differs(FieldAttributes, attributes(s), attributes(d))
	}
	sp, dp := s.Payload(), d.Payload()
	if bytes.Equal(sp, dp) {
		return nil
	}
	if s.IsControl() {
		return differs(FieldControl, fmt.Sprintf("%x", sp), fmt.Sprintf("%x", dp))
	}
	i := 0
	for i < len(sp) && i < len(dp) && sp[i] == dp[i] {
		i++
	}
	around := func(p []byte) string {
		return fmt.Sprintf("%d bytes, from byte %d on %x", len(p), i, p[i:min(i+16, len(p))])
	}
	return differs(FieldPayload, around(sp), around(dp))
}

func num(n int64) string { return strconv.FormatInt(n, 10) }

func describe(b batch.Batch) string {
	if b == nil {
		return "nothing"
	}
	return fmt.Sprintf("offsets %d to %d", b.BaseOffset(), b.LastOffset())
}

func attributes(b batch.Batch) string {
	s := fmt.Sprintf("%#04x (%s", uint16(b.Attributes()), b.Codec())
	for _, a := range []struct {
		name string
		is   bool
	}{
		{"transactional", b.IsTransactional()},
		{"control", b.IsControl()},
		{"log append time", b.IsLogAppendTime()},
		{"delete horizon", b.HasDeleteHorizon()},
	} {
		if a.is {
			s += ", " + a.name
		}
	}
	return s + ")"
}

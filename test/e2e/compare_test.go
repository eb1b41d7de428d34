package e2e

import (
	"slices"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// TestCompareLogs makes sure that the comparison all others rely on finds what it is for.
func TestCompareLogs(t *testing.T) {
	const tag = int64(5)
	// One record for all: it carries the time of its making, and a batch made a millisecond later is another one.
	record := oneRecord("value")
	batch := func(base, last, producer int64) rawBatch {
		raw := slices.Clone(record)
		return rawBatch{harness.Batch{BaseOffset: base, LastOffset: last, ProducerID: producer, Valid: true, Size: int32(len(raw))}, raw}
	}
	source := func() []rawBatch { return []rawBatch{batch(0, 0, -1), batch(1, 3, 7), batch(9, 9, 7)} }
	mirror := func() []rawBatch {
		out := source()
		for i := range out {
			out[i].raw[epochFrom] ^= 1 // the destination's own epoch, and with it the checksum
			out[i].raw[crcFrom] ^= 1
			if out[i].ProducerID >= 0 {
				out[i].ProducerID |= tag << idBits
				out[i].raw[idFrom] ^= 1
			}
		}
		return out
	}
	for _, tc := range []struct {
		name   string
		change func(log []rawBatch) []rawBatch
		prefix bool // a mirror that is behind is no difference then
		same   bool
	}{
		{"same", func(l []rawBatch) []rawBatch { return l }, false, true},
		{"lacks the end", func(l []rawBatch) []rawBatch { return l[:2] }, false, false},
		{"lacks the end, behind", func(l []rawBatch) []rawBatch { return l[:2] }, true, true},
		{"lacks the middle", func(l []rawBatch) []rawBatch { return slices.Delete(l, 1, 2) }, true, false},
		{"has more", func(l []rawBatch) []rawBatch { return append(l, batch(10, 10, -1)) }, true, false},
		{"other offset", func(l []rawBatch) []rawBatch { l[1].LastOffset++; return l }, true, false},
		{"other checksum", func(l []rawBatch) []rawBatch { l[2].Valid = false; return l }, true, false},
		{"not tagged", func(l []rawBatch) []rawBatch { l[1].ProducerID = 7; return l }, true, false},
		{"another tag", func(l []rawBatch) []rawBatch { l[2].ProducerID += 1 << idBits; return l }, true, false},
		{"a tag without a producer", func(l []rawBatch) []rawBatch { l[0].ProducerID = tag << idBits; return l }, true, false},
		{"shorter", func(l []rawBatch) []rawBatch { l[0].raw = l[0].raw[:len(l[0].raw)-1]; return l }, true, false},
		{"other attributes", func(l []rawBatch) []rawBatch { l[1].raw[crcTo] ^= 1; return l }, true, false},
		{"other time", func(l []rawBatch) []rawBatch { l[1].raw[idFrom-1] ^= 1; return l }, true, false},
		{"other sequence", func(l []rawBatch) []rawBatch { l[1].raw[idTo+2] ^= 1; return l }, true, false},
		{"other payload", func(l []rawBatch) []rawBatch { l[2].raw[len(l[2].raw)-1] ^= 1; return l }, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var seen int64
			err := compareLogs(source(), tc.change(mirror()), !tc.prefix, &seen)
			if (err == nil) != tc.same {
				t.Errorf("%v, want a difference: %t", err, !tc.same)
			}
		})
	}
}

package batch

import (
	"encoding/binary"
	"hash/crc32"
)

// castagnoli is the table that selects the hardware's CRC-32C instruction. It and
// shiftTable are computed once and never written again.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// shiftTable[i][d] is x^(8·d·256^i) modulo the Castagnoli polynomial: what multiplies a
// checksum's change when d·256^i bytes follow the changed ones.
var shiftTable = newShiftTable()

// recomputeBelow is the batch size below which checksumming all of it anew is faster
// than moving the change of the producer id through the polynomial. Measured with
// BenchmarkSetProducerID (about 100 ns for a patch, 20 GB/s for a checksum); the
// cross-over is flat, so its exact place matters little.
const recomputeBelow = 2048

// SetProducerID writes the producer id and makes the checksum right again. A wrong
// checksum stays wrong by the same difference for large batches and becomes right
// for small ones: Verify before, or corruption is turned into valid data.
func (b Batch) SetProducerID(id int64) {
	if len(b) < recomputeBelow {
		b.setProducerIDRecompute(id)
		return
	}
	b.setProducerIDPatch(id)
}

func (b Batch) setProducerIDRecompute(id int64) {
	binary.BigEndian.PutUint64(b[posProducerID:], uint64(id))
	binary.BigEndian.PutUint32(b[posCRC:], crc32.Checksum(b[posAttributes:], castagnoli))
}

// setProducerIDPatch uses that a CRC is linear: the checksums of two texts of one
// length differ by the (pure) checksum of their difference, which here is eight bytes
// followed by zeros up to the end of the batch.
func (b Batch) setProducerIDPatch(id int64) {
	// The difference is put where the id is going to be: a local array would escape.
	delta := b[posProducerID:posProducerEpoch]
	binary.BigEndian.PutUint64(delta, uint64(b.ProducerID())^uint64(id))
	// Update complements its state on the way in and out; complementing both again
	// leaves the pure polynomial remainder.
	change := ^crc32.Update(^uint32(0), castagnoli, delta)
	change = shift(change, len(b)-posProducerEpoch)
	binary.BigEndian.PutUint64(delta, uint64(id))
	binary.BigEndian.PutUint32(b[posCRC:], b.CRC()^change)
}

// shift returns what the pure checksum crc becomes when n zero bytes follow.
func shift(crc uint32, n int) uint32 {
	for i := 0; n > 0; i++ {
		if d := n & 0xff; d != 0 {
			crc = multiply(crc, shiftTable[i][d])
		}
		n >>= 8
	}
	return crc
}

// multiply multiplies two polynomials modulo the Castagnoli one. As everywhere in
// reflected CRCs, the highest bit is the coefficient of x^0.
func multiply(a, b uint32) uint32 {
	var product uint32
	for a != 0 {
		// The masks keep branches out of the loop: the bits are as good as random.
		product ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return product
}

func newShiftTable() *[4][256]uint32 {
	var t [4][256]uint32
	step := uint32(1) << (31 - 8) // x^8: one byte
	for i := range t {
		t[i][0] = 1 << 31 // x^0
		for d := 1; d < 256; d++ {
			t[i][d] = multiply(t[i][d-1], step)
		}
		step = multiply(t[i][255], step)
	}
	return &t
}

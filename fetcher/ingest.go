package fetcher

import (
	"bytes"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
)

// pinFactor bounds how much memory a batch may keep alive. Batches point into the
// answer they came in, so one that a sink keeps for long pins the answers of all the
// others. A partition's part of an answer is therefore copied, as a whole, when it is
// less than 1/pinFactor of the answer.
const pinFactor = 8

// own returns data in memory that is fit to be handed over, given the size of all
// record data in the answer it is part of.
func own(data []byte, total int) []byte {
	if len(data) > 0 && len(data) < total/pinFactor {
		return bytes.Clone(data)
	}
	return data
}

// ingested is what one partition's data amounts to.
type ingested struct {
	batches []batch.Batch
	records int64
	size    int   // of the batches
	next    int64 // the offset to ask for next
	epoch   int32 // the source leader epoch of the last batch, -1 if there is none
	partial int64 // the size of the next batch if part of it came, else 0
	err     error // why the batch after the last one was not taken
}

// ingest verifies and tags, in place, the batches in data, which came as the answer to
// a fetch at offset next. Batches before a bad one are good.
func ingest(data []byte, next int64, tagger batch.Tagger) ingested {
	in := ingested{next: next, epoch: -1}
	n := 0
	for _, err := range batch.Iterate(data) { // counted first, so that one allocation does
		if err != nil {
			break
		}
		n++
	}
	if n > 0 {
		in.batches = make([]batch.Batch, 0, n)
	}
	rest := data
	for {
		var b batch.Batch
		b, rest, in.err = batch.Next(rest)
		if in.err != nil {
			return in
		}
		if b == nil {
			in.partial = batch.PartialSize(rest)
			return in
		}
		if in.err = b.Verify(); in.err != nil {
			return in
		}
		// Only the first batch may begin below what is due, since the source answers
		// with the batch that contains the offset.
		if b.LastOffset() < in.next || (len(in.batches) > 0 && b.BaseOffset() < in.next) {
			in.err = &OrderError{Base: b.BaseOffset(), Last: b.LastOffset(), Next: in.next}
			return in
		}
		if id := b.ProducerID(); id >= 0 {
			if mapped := tagger.Map(id); mapped != id {
				b.SetProducerID(mapped)
			}
		}
		in.batches = append(in.batches, b)
		in.records += int64(b.Count())
		in.size += len(b)
		in.next, in.epoch = b.NextOffset(), b.LeaderEpoch()
	}
}

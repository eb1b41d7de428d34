package fetcher

import "github.com/cluster-mirroring/mirror-sidecar/batch"

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

// begin starts over with data that comes as the answer to a fetch at offset next.
func (in *ingested) begin(next int64) { *in = ingested{next: next, epoch: -1} }

// ingest does all at once.
func ingest(data []byte, next int64, tagger batch.Tagger) ingested {
	var in ingested
	in.begin(next)
	in.more(data, tagger)
	in.end(data)
	return in
}

// more verifies and tags, in place, the batches of data that are whole and were not seen
// before; data is all that came so far. Batches before a bad one are good.
func (in *ingested) more(data []byte, tagger batch.Tagger) {
	for rest := data[in.size:]; in.err == nil; {
		var b batch.Batch
		if b, rest, in.err = batch.Next(rest); in.err != nil || b == nil {
			return
		}
		if in.err = b.Verify(); in.err != nil {
			return
		}
		// Only the first batch may begin below what is due, since the source answers
		// with the batch that contains the offset.
		if b.LastOffset() < in.next || (len(in.batches) > 0 && b.BaseOffset() < in.next) {
			in.err = &OrderError{Base: b.BaseOffset(), Last: b.LastOffset(), Next: in.next}
			return
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

// end notes what is left of data, which is complete now.
func (in *ingested) end(data []byte) {
	if in.err == nil {
		in.partial = batch.PartialSize(data[in.size:])
	}
}

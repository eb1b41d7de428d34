package proxy

import (
	"fmt"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// produceLeaders is the first version of Produce whose answer may name leaders, with their
// addresses (KIP-951). It does so only beside the error that another broker leads.
const produceLeaders int16 = 10

// inspectProduceResponse delivers the answer of a Produce of version 10 or later. Nearly none
// has a tagged field, and without one there is nothing to rewrite in it.
func inspectProduceResponse(c *conn, ex *exchange, size int) error {
	if sizeLen+size > readBuffer {
		return c.deliverTransformed(ex, size)
	}
	raw, err := c.out.r.Peek(sizeLen + size)
	if err != nil {
		return upstreamError(err)
	}
	plain, err := plainProduced(raw, ex.version)
	if err != nil {
		return fmt.Errorf("read a Produce response of version %d: %w", ex.version, err)
	}
	return c.deliverPeeked(ex, raw, !plain)
}

// plainProduced tells whether a frame with a Produce response, which is flexible, has no tagged
// fields in its partitions and at its end.
func plainProduced(raw []byte, version int16) (bool, error) {
	w := cursor{b: raw}
	w.take(sizeLen + minResponse)
	w.skipTags()
	for topics := w.array(true); topics > 0 && w.err == nil; topics-- {
		if version >= 13 {
			w.take(len(ids.UUID{}))
		} else {
			w.compact()
		}
		for parts := w.array(true); parts > 0 && w.err == nil; parts-- {
			// partition, error, base offset, log append time, log start offset
			w.take(4 + 2 + 8 + 8 + 8)
			for records := w.array(true); records > 0 && w.err == nil; records-- {
				w.take(4)   // index of the record
				w.compact() // message
				w.skipTags()
			}
			w.compact() // message
			if w.uvarint() != 0 {
				return false, w.err
			}
		}
		w.skipTags()
	}
	w.int32() // throttle
	return w.uvarint() == 0, w.err
}

package proxy

import (
	"errors"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/readonly"
)

// A Produce request names a topic, its partitions with their records, then the next topic: what
// it is about lies scattered over all of it. Most are about one topic, which stands at the
// beginning, and if nothing of that topic can be refused, the records pass without a look at
// them. A request that fits the read buffer is seen whole.
//
// What is decided at a request's first bytes may be wrong when its last ones come: a topic may be
// fenced in between. So its end waits for a second look; without it the broker takes nothing of the
// request.

const (
	// produceHead is as much of a request as nearly always names its first topic. More of it may
	// not be there yet.
	produceHead = 512
	// partitionsAsked bounds the partitions of a topic that are asked for one by one, because
	// the topic was a mirror's once.
	partitionsAsked = 64
	// guardedEnd is what of a request is not left to the kernel, so that it can be held back. It
	// takes no more calls than the last byte would.
	guardedEnd = 4 << 10
)

// lightProduce streams a Produce request of which nothing can be refused.
func (c *conn) lightProduce(h header, size int) (exchange, bool, error) {
	if c.p.pending() {
		return exchange{}, false, nil
	}
	head, err := c.peekFrame(min(size, produceHead))
	if err != nil {
		return exchange{}, false, err
	}
	acks, free, err := c.seeProduce(h, head)
	if errors.Is(err, errShort) && len(head) < size {
		if head, err = c.peekAll(size); err != nil {
			return exchange{}, false, err
		}
		acks, free, err = c.seeProduce(h, head)
	}
	switch {
	case errors.Is(err, errShort) && len(head) < size:
		return exchange{}, false, nil // more topics than the read buffer holds: read it whole
	case err != nil || !free:
		return exchange{}, false, err
	case len(head) < size && c.producing == (readonly.Topic{}) && !c.p.allFree():
		return exchange{}, false, nil // the second look could be at one topic only: read it whole
	}
	ex := c.produced(relayed(h), acks)
	ex.guarded = true
	return ex, true, nil
}

// seeProduce walks over the beginning of a Produce request until it is certain whether anything of
// it may be refused.
func (c *conn) seeProduce(h header, head []byte) (acks int16, free bool, err error) {
	flexible := c.p.flex.flexible(h.key, h.version)
	w := cursor{b: head, at: minRequest}
	if n := w.int16(); n != -1 {
		w.take(int(n)) // client id
	}
	if flexible {
		w.skipTags()
	}
	if h.version >= 3 {
		w.string(flexible) // transactional id
	}
	acks = w.int16()
	w.int32() // timeout
	topics := w.array(flexible)
	if w.err != nil {
		return acks, false, w.err
	}
	if c.p.allFree() {
		// Nothing else need be seen. The one topic is remembered for the second look.
		if topics == 1 {
			c.nameProduced(&w, h.version, flexible)
		}
		if topics != 1 || w.err != nil {
			c.producing = readonly.Topic{}
		}
		return acks, true, nil
	}
	for n := topics; n > 0; n-- {
		c.nameProduced(&w, h.version, flexible)
		switch {
		case w.err != nil:
			return acks, false, w.err
		case !c.p.free(c.producing):
			return acks, false, nil
		case topics == 1:
			return acks, true, nil
		}
		for parts := w.array(flexible); parts > 0 && w.err == nil; parts-- {
			w.int32()             // partition
			w.skipBytes(flexible) // records
			if flexible {
				w.skipTags()
			}
		}
		if flexible {
			w.skipTags()
		}
	}
	c.producing = readonly.Topic{} // more than one, or none
	return acks, w.err == nil, w.err
}

// nameProduced reads which topic comes next. Mostly it is the last one again, whose name need not
// be made once more.
func (c *conn) nameProduced(w *cursor, version int16, flexible bool) {
	if version >= 13 {
		c.producing.Name = ""
		copy(c.producing.ID[:], w.take(len(c.producing.ID)))
		return
	}
	c.producing.ID = ids.UUID{}
	if name := w.string(flexible); string(name) != c.producing.Name {
		c.producing.Name = string(name)
	}
}

// stillFree looks again when all of a guarded request has come, and its end has not gone out.
func (c *conn) stillFree() error {
	t := c.producing
	if !c.p.pending() && (c.p.allFree() || t != (readonly.Topic{}) && c.p.free(t)) {
		return nil
	}
	return because(reasonRefusedWrite, "topic %q became read only, or was fenced, while a Produce request was on its way", c.p.nameOf(t))
}

// allFree tells whether nothing at all is kept from writers.
func (p *Proxy) allFree() bool {
	_, state := p.stateTopicID()
	return !state && !p.deps.Late.dated() && p.deps.Leaders.none() && p.deps.Fences.none()
}

// free tells whether it is certain that no partition of a topic is kept from writers; what is
// false here may still be free in part.
func (p *Proxy) free(t readonly.Topic) bool {
	if p.deps.Late.unknown(p.deps.View, t) {
		return false
	}
	var known bool
	if t.ID.IsZero() {
		t.ID, known = p.deps.View.Topic(t.Name)
	} else {
		t.Name, known = p.deps.View.TopicName(t.ID)
	}
	if !known || t.Name == stateTopic {
		return false
	}
	if _, fenced := p.deps.Fences.Left(t.Name); fenced || p.deps.Leaders.assignedAny(t.ID) {
		return false
	}
	if !p.deps.Mirrors.Recorded(t.ID) {
		return true
	}
	parts := p.deps.View.TopicPartitions(t.ID)
	if len(parts) > partitionsAsked {
		return false
	}
	for _, part := range parts {
		if p.readOnly(t.ID, part.Partition) {
			return false
		}
	}
	return true
}

func (p *Proxy) nameOf(t readonly.Topic) string {
	if t.Name == "" {
		t.Name, _ = p.deps.View.TopicName(t.ID)
	}
	return t.Name
}

// assignedAny tells whether any partition of a topic has a virtual replica.
func (l *Leaders) assignedAny(topic ids.UUID) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.topics[topic]) > 0
}

// produced completes the exchange of a Produce request that is passed on.
func (c *conn) produced(ex exchange, acks int16) exchange {
	if acks == 0 {
		ex.noResponse = true
	} else if ex.version >= produceLeaders {
		if ex.transform = c.p.rewriter(ex.key, ex.version); ex.transform != nil {
			ex.inspect = inspectProduceResponse
		}
	}
	return ex
}

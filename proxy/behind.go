package proxy

import (
	"encoding/binary"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// behind are the mirror partitions that one real broker has a replica of which is not in
// sync, while another real replica is. A leader is always in sync, and clients take the
// replica that they are shown for one: they would go on reading from it, as long as they do
// not ask for metadata, which is minutes, however far it falls behind, and believe it if it
// says that there is no such offset.
type behind struct {
	partitions map[ids.TopicPartition]struct{}
	// generation changes with each partition that is added.
	generation uint64
}

// keepUp notes which real replicas of a partition are behind; part is nil if it is gone. The
// caller holds the lock.
func (l *Leaders) keepUp(tp ids.TopicPartition, part *metadata.Partition) {
	late := func(broker int32) bool { return false }
	if part != nil && l.virtual.Is(part.Leader) && slices.ContainsFunc(part.ISR, func(r int32) bool { return !l.virtual.Is(r) }) {
		late = func(broker int32) bool {
			return slices.Contains(part.Replicas, broker) && !slices.Contains(part.ISR, broker)
		}
		for _, r := range part.Replicas {
			if l.virtual.Is(r) || !late(r) {
				continue
			}
			b := l.behind[r]
			if b == nil {
				b = &behind{partitions: make(map[ids.TopicPartition]struct{})}
				l.behind[r] = b
			}
			if _, ok := b.partitions[tp]; !ok {
				b.partitions[tp] = struct{}{}
				b.generation++
			}
		}
	}
	for broker, b := range l.behind {
		if !late(broker) {
			delete(b.partitions, tp) // the generation is kept
		}
	}
}

// Behind tells whether a real broker is behind with any mirror partition. A generation says
// that no partition has been added since another call returned the same one.
func (l *Leaders) Behind(broker int32) (generation uint64, some bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	b := l.behind[broker]
	if b == nil {
		return 0, false
	}
	return b.generation, len(b.partitions) > 0
}

// IsBehind tells whether a real broker is behind with a mirror partition.
func (l *Leaders) IsBehind(broker int32, tp ids.TopicPartition) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	b := l.behind[broker]
	if b == nil {
		return false
	}
	_, ok := b.partitions[tp]
	return ok
}

// behindSeen is for which session a connection's client has named all that it reads here, and in which
// generation.
type behindSeen struct {
	generation uint64
	// session has no id before the answer of the request that makes it.
	session *newSession
}

// named notes a request that was looked at, in which nothing is behind. It returns the session that the
// request makes, nil if it makes none.
func (s *behindSeen) named(generation uint64, req *kmsg.FetchRequest) *newSession {
	if req.Version < 7 || req.SessionEpoch != 0 {
		return nil
	}
	*s = behindSeen{generation: generation, session: new(newSession)}
	return s.session
}

// knows tells whether what a session holds has been named.
func (s *behindSeen) knows(generation uint64, session int32) bool {
	return s.session != nil && s.generation == generation && session != 0 && session == s.session.id.Load()
}

// newSession is a Fetch session that a request makes. The writer learns its id from the answer, before
// the client does.
type newSession struct{ id atomic.Int32 }

// answered is given a response's body.
func (s *newSession) answered(body []byte) {
	if s != nil && len(body) >= fetchHead {
		s.id.Store(int32(binary.BigEndian.Uint32(body[4+2:])))
	}
}

// learned lets a session that an exchange makes learn its id.
func (s *newSession) learned(ex *exchange) {
	if ex.inspect != nil {
		ex.session = s
		return
	}
	then := ex.transform
	ex.transform = func(body []byte) (kmsg.Response, error) {
		s.answered(body)
		if then == nil {
			return nil, nil // relayed as it is
		}
		return then(body)
	}
}

// behind tells whether the home broker must not answer clients for some mirror partition. At
// a virtual listener it does all the same: nobody else is there to answer.
func (c *conn) behind() (generation uint64, some bool) {
	if c.p.cfg.Virtual {
		return 0, false
	}
	return c.p.deps.Leaders.Behind(c.p.cfg.Home)
}

// isBehind tells whether the home broker is behind with a mirror partition.
func (p *Proxy) isBehind(topic string, id ids.UUID, byID bool, partition int32) bool {
	if !byID {
		var ok bool
		if id, ok = p.deps.View.Topic(topic); !ok {
			return false
		}
	}
	return p.deps.Leaders.IsBehind(p.cfg.Home, ids.TopicPartition{TopicID: id, Partition: partition})
}

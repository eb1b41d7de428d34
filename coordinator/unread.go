package coordinator

import (
	"github.com/twmb/franz-go/pkg/kerr"
)

// Unread tells why the mirrors' state is not known here, as an answer to whoever asks for it; nil once
// all that was in the topic at start was read. Without it a list would be silent about what was
// not read, which looks as if it did not exist.
func (s *Store) Unread() error {
	select {
	case <-s.ready:
		return nil
	default:
	}
	if id, ok := s.img.Topic(StateTopic); ok {
		if t := leaderlessOf(s.img, StateTopic); len(t.parts) > 0 {
			return refuse(kerr.CoordinatorLoadInProgress.Code, "the state of the mirrors cannot be read: %s. Only if that broker never comes back, give up what it alone has (%s): %s",
				t.waits(s.cfg.Virtual), lastBrokerPage, t.giveUp(s.img, s.bootstrap()))
		}
		for _, p := range s.img.TopicPartitions(id) {
			// A new leader with too few in sync does not say where its log ends (OFFSET_NOT_AVAILABLE; its
			// high watermark stands still below min.insync.replicas since KIP-966).
			if len(p.ISR) < len(p.Replicas) {
				return refuse(kerr.CoordinatorLoadInProgress.Code, "the state of the mirrors is being read; of %s-%d, on brokers %v, only %v are in sync, which may be too few: bring back the others",
					StateTopic, p.Partition, p.Replicas, p.ISR)
			}
		}
	}
	return refuse(kerr.CoordinatorLoadInProgress.Code, "the state of the mirrors is being read")
}

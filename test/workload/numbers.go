package workload

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Numbers is a set of record numbers, held as ranges.
type Numbers struct{ s spans }

// Add puts n into the set.
func (n *Numbers) Add(number int64) { n.s.add(number, number+1) }

// Has tells whether the number is in the set.
func (n Numbers) Has(number int64) bool { return n.s.has(number) }

// Count is the size of the set.
func (n Numbers) Count() int64 { return n.s.count() }

// Below gives those below limit, Minus those that are not in other.
func (n Numbers) Below(limit int64) Numbers { return Numbers{n.s.below(limit)} }

// Minus gives those of n that are not in other.
func (n Numbers) Minus(other Numbers) Numbers { return Numbers{n.s.minus(other.s)} }

func (n Numbers) String() string { return n.s.String() }

// Account is what a load knows of one partition at this moment.
type Account struct {
	// Next is the number that was not given out yet.
	Next int64
	// Acked were acknowledged. A read_committed consumer must see those in Committed and must
	// not see those in Aborted.
	Acked, Committed, Aborted Numbers
}

// Account gives the account of a partition.
func (l *Load) Account(topic string, partition int32) (Account, error) {
	for _, t := range l.topics {
		if t.name == topic && partition >= 0 && partition < l.cfg.Partitions {
			a := t.ledger.snapshot()[partition]
			return Account{Next: a.next, Acked: Numbers{a.acked}, Committed: Numbers{a.committed}, Aborted: Numbers{a.aborted}}, nil
		}
	}
	return Account{}, fmt.Errorf("workload: %s-%d is not a partition of the load", topic, partition)
}

// Number reads the number that a record carries, and fails if it is not as the load made it.
func (l *Load) Number(r *kgo.Record) (int64, error) { return l.filler.numberOf(r) }

// Compacted tells whether topics of this kind are compacted.
func (k Kind) Compacted() bool { return k.compacted() }

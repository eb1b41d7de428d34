package coordinator

import (
	"cmp"
	"slices"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// This file decides which virtual brokers lead and follow the partitions of one mirror. It
// is a pure function of what there is, and what it decides it decides again: whoever comes
// next, with the same view, moves nothing.

// trust is how much a virtual broker that is alive is relied on.
type trust int8

const (
	// shaky: it has come back lately and may go again. It is given nothing that another one
	// can take.
	shaky trust = iota
	// fresh: it has not been seen for long. It takes what has to be placed.
	fresh
	// steady: what others have is moved to it.
	steady
)

// seat is a virtual broker that is alive.
type seat struct {
	id    int32
	rack  string
	trust trust
	leads int // partitions of other mirrors that it is the preferred leader of
}

// place is what is known of a partition that shall have virtual replicas.
type place struct {
	tp  ids.TopicPartition
	has []int32 // its virtual replicas, the preferred leader first
	// patience is how long one who is gone is waited for.
	patience time.Duration
	// real: a real broker leads, and only the first of the list can be elected.
	real bool
	// fixed: it is not moved for the sake of others.
	fixed bool
}

// movesAtOnce bounds how many partitions one placement moves for the sake of evenness.
const movesAtOnce = 500

// placing is a placement that is being made.
type placing struct {
	seats []seat // in the order in which equals are taken
	n     int
	parts []place
	lists [][]int32
	leads map[int32]int    // by preferred leader
	tails map[int32]int    // by follower
	pairs map[[2]int32]int // by preferred leader and follower
	topic map[topicSeat]int
}

// topicSeat is a preferred leader of a topic's partitions.
type topicSeat struct {
	topic ids.UUID
	id    int32
}

// placeVirtual returns the virtual replicas of each partition, n where as many are alive,
// the preferred leader first. gone tells how long a virtual broker has not been alive; start
// is where equals begin to be taken.
//
// Whoever is alive stays. One that is lost is replaced, in another rack than the others are
// in if one is alive there, and so that each has as much as the others, of each topic too; with nobody to
// replace it, it stays, for the day it comes back. Then what is not even yet is moved, as
// little as possible: preferred leaders first, since that is where the work is, then
// followers, so that the work of one that dies goes to all others.
func placeVirtual(seats []seat, gone func(int32) time.Duration, parts []place, n, start int) [][]int32 {
	b := &placing{
		seats: rotate(seats, start), n: n, parts: parts,
		leads: map[int32]int{}, tails: map[int32]int{}, pairs: map[[2]int32]int{}, topic: map[topicSeat]int{},
	}
	b.lists = make([][]int32, len(parts))
	fixed := make([]bool, len(parts))
	for i, p := range parts {
		if slices.ContainsFunc(p.has, func(id int32) bool { return !b.live(id) && gone(id) < p.patience }) {
			b.lists[i], fixed[i] = p.has, true
		} else {
			b.lists[i] = slices.DeleteFunc(slices.Clone(p.has), func(id int32) bool { return !b.live(id) })
			b.lists[i] = b.lists[i][:min(len(b.lists[i]), n)]
			fixed[i] = p.fixed
		}
		b.count(i, 1)
	}
	for i, p := range parts {
		if fixed[i] && !p.fixed {
			continue // waits
		}
		kept := b.lists[i]
		list := b.fill(i, kept)
		if len(list) == len(kept) && len(list) < n && b.onlyDeadGone(p.has, list) &&
			(!p.real || len(list) == 0 || b.live(p.has[0])) {
			list, fixed[i] = p.has, true
		}
		if !slices.Equal(list, kept) {
			b.replace(i, list)
		}
	}
	moves := b.separate(fixed, movesAtOnce)
	moves = b.evenLeads(fixed, moves)
	b.evenTails(fixed, moves)
	return b.lists
}

// rotate orders seats by id, beginning at start.
func rotate(seats []seat, start int) []seat {
	out := slices.SortedFunc(slices.Values(seats), func(a, b seat) int { return cmp.Compare(a.id, b.id) })
	if len(out) == 0 {
		return out
	}
	k := start % len(out)
	return append(out[k:], out[:k]...)
}

func (b *placing) seat(id int32) (seat, bool) {
	i := slices.IndexFunc(b.seats, func(s seat) bool { return s.id == id })
	if i < 0 {
		return seat{id: id}, false
	}
	return b.seats[i], true
}

func (b *placing) live(id int32) bool { _, ok := b.seat(id); return ok }

// onlyDeadGone tells whether list is what has is without those that are dead.
func (b *placing) onlyDeadGone(has, list []int32) bool {
	return slices.Equal(slices.DeleteFunc(slices.Clone(has), func(id int32) bool { return !b.live(id) }), list)
}

func (b *placing) count(i, by int) {
	for k, id := range b.lists[i] {
		if k == 0 {
			b.leads[id] += by
			b.topic[topicSeat{b.parts[i].tp.TopicID, id}] += by
			continue
		}
		b.tails[id] += by
		b.pairs[[2]int32{b.lists[i][0], id}] += by
	}
}

func (b *placing) replace(i int, list []int32) {
	b.count(i, -1)
	b.lists[i] = list
	b.count(i, 1)
}

// rackOf is the fault domain of a virtual broker: one whose rack is not known is on its own.
func (b *placing) rackOf(id int32) string {
	if s, ok := b.seat(id); ok && s.rack != "" {
		return s.rack
	}
	return "\x00" + itoa(id)
}

// apart tells whether a virtual broker is in another rack than all of list.
func (b *placing) apart(id int32, list []int32) bool {
	return !slices.ContainsFunc(list, func(o int32) bool { return b.rackOf(o) == b.rackOf(id) })
}

// fill completes a partition's list with the seats that suit best.
func (b *placing) fill(i int, list []int32) []int32 {
	if len(list) >= b.n {
		return list
	}
	list = slices.Clone(list)
	for len(list) < b.n {
		next, ok := b.best(i, list, func(seat) bool { return true })
		if !ok {
			break
		}
		list = append(list, next)
	}
	return list
}

// best returns the seat that suits best at the end of a partition's list, of those that may be
// taken.
func (b *placing) best(part int, list []int32, may func(seat) bool) (int32, bool) {
	var found *seat
	worse := func(a, c *seat) bool { // a is worse than c
		rank := func(s *seat) []int {
			if len(list) == 0 {
				return []int{
					flag(s.trust == shaky), b.leads[s.id], b.topic[topicSeat{b.parts[part].tp.TopicID, s.id}],
					b.leads[s.id] + b.tails[s.id], s.leads,
				}
			}
			return []int{flag(!b.apart(s.id, list)), flag(s.trust == shaky), b.pairs[[2]int32{list[0], s.id}], b.tails[s.id]}
		}
		return slices.Compare(rank(a), rank(c)) > 0
	}
	for i := range b.seats {
		s := &b.seats[i]
		if slices.Contains(list, s.id) || !may(*s) {
			continue
		}
		if found == nil || worse(found, s) {
			found = s
		}
	}
	if found == nil {
		return 0, false
	}
	return found.id, true
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// separate moves followers out of the racks of others. It returns how many moves are left.
func (b *placing) separate(fixed []bool, moves int) int {
	for i, list := range b.lists {
		if fixed[i] || moves == 0 {
			continue
		}
		if next := b.spreadOut(i, list); !slices.Equal(next, list) {
			b.replace(i, next)
			moves--
		}
	}
	return moves
}

// spreadOut replaces those of a list that share a rack with one before by steady ones of
// other racks, as far as there are any.
func (b *placing) spreadOut(part int, list []int32) []int32 {
	out := slices.Clone(list)
	for i := 1; i < len(out); i++ {
		if b.apart(out[i], out[:i]) {
			continue
		}
		others := slices.Concat(out[:i], out[i+1:])
		if next, ok := b.best(part, out[:i], func(s seat) bool {
			return s.trust == steady && !slices.Contains(others, s.id) && b.apart(s.id, others)
		}); ok {
			out[i] = next
		}
	}
	return out
}

// evenLeads gives preferred leadership of those that have most to the steady ones that have
// least, until they differ by one at most.
func (b *placing) evenLeads(fixed []bool, moves int) int {
	for ; moves > 0; moves-- {
		i, list := b.leadToMove(fixed)
		if list == nil {
			break
		}
		b.replace(i, list)
	}
	return moves
}

// leadToMove finds the partition whose preferred leader is worth a change, and its new list.
func (b *placing) leadToMove(fixed []bool) (int, []int32) {
	takers := slices.DeleteFunc(slices.Clone(b.seats), func(s seat) bool { return s.trust != steady })
	slices.SortStableFunc(takers, func(x, y seat) int { return cmp.Compare(b.leads[x.id], b.leads[y.id]) })
	givers := slices.Clone(b.seats)
	slices.SortStableFunc(givers, func(x, y seat) int { return cmp.Compare(b.leads[y.id], b.leads[x.id]) })
	for _, to := range takers {
		for _, from := range givers {
			if b.leads[from.id]-b.leads[to.id] < 2 {
				break
			}
			at, cost := -1, []int(nil)
			var best []int32
			for i, list := range b.lists {
				if fixed[i] || len(list) == 0 || list[0] != from.id {
					continue
				}
				next := b.ledBy(i, list, to.id)
				c := []int{flag(!slices.Contains(list, to.id)), b.topic[topicSeat{b.parts[i].tp.TopicID, to.id}]}
				for _, tail := range next[1:] {
					c = append(c, b.pairs[[2]int32{to.id, tail}])
				}
				if at < 0 || slices.Compare(c, cost) < 0 {
					at, cost, best = i, c, next
				}
			}
			if at >= 0 {
				return at, best
			}
		}
	}
	return 0, nil
}

// ledBy returns a list with another preferred leader: one that follows changes places, else
// the newcomer takes the place of one that it can be apart of the others without.
func (b *placing) ledBy(part int, list []int32, leader int32) []int32 {
	if k := slices.Index(list, leader); k > 0 {
		out := slices.Clone(list)
		out[0], out[k] = out[k], out[0]
		return out
	}
	out := []int32{leader}
	keep := slices.Clone(list)
	slices.SortStableFunc(keep, func(x, y int32) int {
		return cmp.Compare(b.pairs[[2]int32{leader, x}], b.pairs[[2]int32{leader, y}])
	})
	for _, id := range keep {
		if len(out) < len(list) && b.apart(id, out) {
			out = append(out, id)
		}
	}
	for len(out) < len(list) {
		next, ok := b.best(part, out, func(s seat) bool { return s.trust == steady || slices.Contains(list, s.id) })
		if !ok {
			break
		}
		out = append(out, next)
	}
	return out
}

// evenTails does with followers what evenLeads does with leaders, as far as racks allow.
func (b *placing) evenTails(fixed []bool, moves int) {
	for ; moves > 0; moves-- {
		if !b.moveTail(fixed) {
			return
		}
	}
}

func (b *placing) moveTail(fixed []bool) bool {
	takers := slices.DeleteFunc(slices.Clone(b.seats), func(s seat) bool { return s.trust != steady })
	slices.SortStableFunc(takers, func(x, y seat) int { return cmp.Compare(b.tails[x.id], b.tails[y.id]) })
	givers := slices.Clone(b.seats)
	slices.SortStableFunc(givers, func(x, y seat) int { return cmp.Compare(b.tails[y.id], b.tails[x.id]) })
	for _, to := range takers {
		for _, from := range givers {
			if b.tails[from.id]-b.tails[to.id] < 2 {
				break
			}
			for i, list := range b.lists {
				k := slices.Index(list, from.id)
				if fixed[i] || k < 1 || slices.Contains(list, to.id) {
					continue
				}
				others := slices.Concat(list[:k], list[k+1:])
				if b.apart(to.id, others) || !b.apart(from.id, others) {
					next := slices.Clone(list)
					next[k] = to.id
					b.replace(i, next)
					return true
				}
			}
		}
	}
	return false
}

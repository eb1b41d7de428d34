package syncs

import (
	"maps"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// diffFacts is what is known of the items of one kind of one mirror, by what they are here.
type diffFacts struct {
	mirror string
	// wanted should be here.
	wanted map[string]bool
	// settled are not wanted although the source has them: a policy, or a bound, has just said so.
	settled map[string]bool
	// stale are not wanted although the source has them, as a policy has said that cannot be asked.
	stale map[string]bool
	// undecided says that of some items nobody knows whether they are wanted, nor what they would be
	// here.
	undecided bool
	here      map[string]bool
	// owned were created by this mirror, elsewhere by others: the last by name.
	owned     map[string]int64
	elsewhere map[string]string
}

// newFacts returns what is known before anything was asked.
func (r *round) newFacts() diffFacts {
	return diffFacts{
		mirror: r.m.Name, wanted: map[string]bool{}, settled: map[string]bool{}, stale: map[string]bool{}, here: map[string]bool{},
		owned: r.Mirrors.Owned(r.m.Name, r.kind), elsewhere: r.Mirrors.OwnedElsewhere(r.m.Name, r.kind),
	}
}

// decided notes how sure a verdict on an item of the source is.
func (f *diffFacts) decided(item string, v policy.Verdict) {
	switch {
	case v.Undecided:
		f.undecided = true
	case v.Stale:
		f.stale[item] = true
	default:
		f.settled[item] = true // unless it is wanted
	}
}

// diff is what is to be done, each list in order.
type diff struct {
	create []string
	// adopt are here since another mirror has created them: that one must not delete them when its
	// source does not have them any more.
	adopt []string
	// remove were created here, and are not wanted any more: that was said of each of them.
	remove []string
	// gone were created here, and the source does not have them any more, as far as it said.
	gone []string
	// disown are not here any more, or another mirror's as well.
	disown []string
}

// compare says what is to be done. What this mirror has not created is never touched. It is a pure
// function.
func compare(f diffFacts) diff {
	var d diff
	for _, i := range slices.Sorted(maps.Keys(f.wanted)) {
		_, mine := f.owned[i]
		switch {
		case !f.here[i]:
			d.create = append(d.create, i)
		case !mine && f.elsewhere[i] != "":
			d.adopt = append(d.adopt, i)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(f.owned)) {
		switch {
		case f.wanted[i]:
		case !f.here[i]:
			d.disown = append(d.disown, i)
		case !f.settled[i] && (f.stale[i] || f.undecided):
			// It may be what becomes of one that is undecided.
		case f.elsewhere[i] > f.mirror:
			d.disown = append(d.disown, i)
		case f.elsewhere[i] != "":
			// The last of its owners by name keeps it for those before: gave each it up in favour of
			// the other at the same time, nobody would delete it.
		case f.settled[i]:
			d.remove = append(d.remove, i)
		default:
			d.gone = append(d.gone, i)
		}
	}
	return d
}

// empty tells whether nothing is to be done.
func (d diff) empty() bool {
	return len(d.create)+len(d.adopt)+len(d.remove)+len(d.gone)+len(d.disown) == 0
}

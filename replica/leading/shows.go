package leading

import "slices"

// This file holds when a virtual replica may join a real leader that has records of clients behind
// what was mirrored (R21). Who waits, and for how long, is its driver's.

// Shows tells whether a real leader's high watermark moves over what only it has once self joins
// its ISR, and would not before: what clients wrote there would become visible by it (R21). The
// live virtual replicas that the list of replicas names before self count as joined: what each of
// those that come at once may do alone, they may not do together.
func Shows(isr, replicas []int32, self int32, minISR int, liveVirtual func(id int32) bool) bool {
	enough, joined := min(minISR, len(replicas)), len(isr)+1
	for _, id := range replicas[:max(0, slices.Index(replicas, self))] {
		if liveVirtual(id) && !slices.Contains(isr, id) {
			joined++
		}
	}
	return !slices.Contains(isr, self) && len(isr) < enough && joined >= enough
}

// Inevitable tells whether no min.insync.replicas hides what self shows by joining: with it every
// replica is in sync, and there is no other virtual one that could have joined and led before.
func Inevitable(isr, replicas []int32, self int32, liveVirtual func(id int32) bool) bool {
	return len(isr)+1 >= len(replicas) && !slices.ContainsFunc(replicas, func(id int32) bool { return id != self && liveVirtual(id) })
}

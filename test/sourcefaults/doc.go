// Package sourcefaults holds the tests of what may happen to the source of a mirror while it runs
// under a live workload: leaders that move, restarts, outages, connections that are cut, slow, lossy
// or half open, quotas, retention that overtakes the mirror, data that is damaged or of a format of
// long ago, records that the source itself loses. After each the mirror is the source again, by
// itself where nobody has to decide, and says meanwhile what it waits for.
//
// All connections go through package links. Without MIRROR_FULL=1 only what takes seconds is tested.
package sourcefaults

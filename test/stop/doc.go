// Package stop tests the end of a mirror on real clusters: the stop goes on after a crash
// at each of its steps, and with brokers, replicas or the source dead.
//
// The sidecars are built with the tag failpoints: a test arms a point between two steps,
// and the process that comes there dies or waits.
package stop

// Package brokerfaults holds the tests of what may happen to the real brokers of the
// destination while a mirror runs under a live workload: restarts, kills, disks that are
// wiped or fail, followers that lag behind what a sidecar keeps, or whose replica fetcher
// has given a partition up. After each, every replica is in sync again by itself, with
// the log of the source, and the source was not read again.
package brokerfaults

// Package syncs mirrors what is not records: ACLs, group offsets, client quotas.
//
// Syncer runs the syncs of each mirror whose name this sidecar coordinates, at every refresh
// interval, each by itself, so that one that cannot go on holds up none of the others, and none of
// them the records. A sync gathers facts from both clusters, asks package policy, and applies the
// difference. It deletes only what its mirror created: what that is is kept in the state topic.
//
// It knows neither partitions nor brokers; what it needs of a mirror it is told by Mirrors, which
// the coordinator is.
package syncs

// Package offsets knows what groups have committed: it reads it from one cluster, decides what
// would have to be committed in another, and commits that.
//
// Offsets are the same numbers in both clusters, so nothing is translated. What has to be decided
// is what may be touched: Plan does, and knows no cluster. Groups of the types classic, consumer
// and share are handled; the state of a streams group is more than its offsets, so those are not.
//
// Which groups are meant, and what a mirror remembers of them, is for whoever calls: package syncs
// at each refresh, kafka-cluster-mirrors at a switchover.
package offsets

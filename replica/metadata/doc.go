// Package metadata follows the KRaft metadata log of the destination cluster and
// keeps what it says as an Image: topics, partitions with their leader and partition
// epochs, ISR and ELR, broker registrations, topic configs and feature levels.
//
// The log is the first truth of this system. Partition epochs exist nowhere else,
// "is a virtual replica assigned?" decides whether a partition may be written to,
// and a virtual broker may not be unfenced before it has seen its own registration.
// So an Observer applies committed records only, each exactly once and in order, and
// stops loudly at a version of a record that this build has no table for: an Image
// that silently lacks something is worse than none.
package metadata

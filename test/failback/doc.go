// Package failback tests, on real brokers, what two clusters do that both have sidecars:
// they swap roles after a failover, with and without writes on the side that was left, and
// mirror different topics of each other; a third one makes a chain, and a circle that is
// refused.
//
// All logs are compared on the brokers' disks, batch by batch and byte by byte, but for
// what a mirror changes: the leader epoch, the producer id's tag and the checksum over it.
package failback

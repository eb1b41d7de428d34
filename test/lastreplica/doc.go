// Package lastreplica tests, on real brokers, what becomes of a mirror partition when every real
// replica of it dies (safety rules R15 and R16), and what becomes of records that clients write
// while no sidecar is alive and the write lock could not be set (R5, R21).
//
// What may not happen is seen in the replicas' own logs: a record that was visible carries the
// same leader epoch for ever. One that was lost and read from the source again carries another.
//
// All orders of dying and returning are generated; a few of them run by default, all with
// MIRROR_FULL=1.
package lastreplica

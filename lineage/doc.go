// Package lineage holds what is known of a mirror partition's leader epochs: which
// epoch of this cluster stands for which epoch of the source from which offset on.
// It answers OffsetForLeaderEpoch as Kafka's LeaderEpochFileCache does and finds the
// common prefix of two logs (safety rules R5, R9, R11, R12).
//
// Everything here is a value: no clocks, no I/O, no locks.
package lineage

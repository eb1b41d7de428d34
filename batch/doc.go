// Package batch reads and patches Kafka record batches of magic 2 as the bytes
// that came from the wire: it walks them, verifies their CRC-32C, and rewrites the
// two header fields that a mirror changes, the leader epoch and the producer id.
// Records are never decoded and never compressed again, so what a mirror stores is
// what the source stores, byte for byte but for those fields and the checksum.
//
// The package also holds the rule by which producer ids of different clusters are
// kept apart (Tagger).
//
// Everything here is a function of bytes: no I/O, no clocks, no locks.
package batch

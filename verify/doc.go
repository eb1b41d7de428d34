// Package verify compares a mirror with its source, partition by partition and batch
// by batch, on the raw bytes that both clusters send to a consumer. It is the engine
// of `kafka-cluster-mirrors --verify`.
//
// Two batches are equal when everything that a mirror must keep is: offsets, and with
// them the bounds of the batch; the count of records; sequence and producer epoch; the
// producer id, as the mirror maps it; timestamps; attributes; and the records as they
// are stored, compressed or not, control records too. The leader epoch is each
// cluster's own and is not compared, nor is the checksum, which covers the producer id
// and is verified on each side instead.
//
// Nothing is compared below the higher of the two log starts, since retention works
// on its own in each cluster. The log cleaner does, too: in a compacted topic a
// difference may mean no more than that one side was cleaned and the other was not
// yet (PartitionReport.Compacted).
package verify

// Package fetcher is the source side of a mirror: it keeps connections to the source
// cluster's leaders, pulls raw record batches from them, verifies their checksums
// once, tags their producer ids, and hands them to one Sink per partition.
//
// # How it is built
//
// One Fetcher serves one mirror. Inside it,
//
//   - one resolver goroutine learns from the source's metadata which broker leads
//     each partition, and watches for topics that are deleted or created anew;
//   - one worker goroutine per (source broker, fetcher number) polls that broker for
//     all the partitions it leads. Partitions of one broker are spread over
//     mirror.num.replica.fetchers workers by a hash.
//
// A Kafka connection answers its requests one after the other, so a long poll blocks
// everything behind it. Each worker therefore has two lanes, each a connection of its
// own. Normally all partitions of a worker share one long poll on one lane. When a
// partition is added, or its sink has room again, while that poll is under way, it is
// fetched at once on the other lane with a short wait, and joins the common poll when
// that one returns. So an idle poll never delays a busy or a new partition, and idle
// partitions still cost one request per mirror.fetch.wait.max.ms. Partitions with a
// backlog are split over both lanes, so that one answer is on its way while the other
// is worked on. These connections are the fetcher's own; everything else goes through a
// franz-go client.
//
// # What it guarantees
//
//   - A sink gets whole batches of magic 2 in offset order without overlap, each with
//     its checksum verified, its producer id tagged, and the source's leader epoch in
//     the header. Nothing is decoded, copied per batch or compressed again.
//   - The first batch after Add may begin below the offset asked for, since a broker
//     answers with the whole batch that contains it. It is handed over whole; the sink
//     decides.
//   - LastFetchedEpoch is always sent, so that a source that lost data after an unclean
//     election is noticed (DivergingError).
//   - An error is a partition's own. After Fetched.Err the partition is at rest until it
//     is removed and added again; all others go on.
//   - Leader changes, epoch errors, lost connections and missing leaders are not errors
//     of a partition: they are retried, spaced by mirror.fetch.backoff.ms, and can be
//     seen through Health.
//   - The records of a partition's part of an answer come into a buffer of their own from
//     the sidecar's pool, and are handed over with it (package pool tells who owns it). So
//     no partition keeps another one's memory. All of an answer's memory is promised before
//     its first record is read; while the pool has none, the answer waits in the socket.
package fetcher

// Package ids holds the identities that every other package speaks of: topic
// ids, topic partitions, and the arithmetic between a real broker's node id and
// the id of the virtual broker beside it. It knows nothing of networks, states
// or Kafka messages, and imports no other package of this module.
package ids

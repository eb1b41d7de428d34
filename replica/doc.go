// Package replica is the destination side of a sidecar: the virtual broker (Broker), and
// the leading and following of the mirror partitions that it is assigned to (Manager).
//
// What may be served to whom, and when, is decided by package leading; this package moves
// bytes and messages. It knows the mirror state only through State and the source only
// through Sources, both declared here. It knows nothing of clients: package proxy hands it
// the requests of other brokers.
package replica

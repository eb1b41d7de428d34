// Package harness starts real Kafka for tests, the demo and the benchmarks:
// multi-node KRaft clusters of a chosen version, made of the artifacts that
// Kafka publishes to Maven's repository, or of an installation on this machine.
//
// Nothing in it is a mock. A [Cluster] is a set of JVMs on this machine's
// loopback address, whose nodes can be stopped, killed, paused, resumed and
// restarted one by one; logs are read both by Kafka's own DumpLogSegments
// ([Node.DumpLog]) and, much faster, straight from the segment files
// ([Node.ReadLog], [Cluster.SameLogs]); Kafka's Java clients and tools run from the same jars
// ([Installation.Tool], [Installation.Consume], [Installation.Produce]).
//
// The core needs no testing.TB, so that plain programs can use it; testing.go
// holds the thin helpers for tests. Everything started here ends with the
// process that started it, even if that one is killed (on Linux).
package harness

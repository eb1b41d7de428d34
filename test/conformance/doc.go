// Package conformance tests every promise of docs/contract.md on real brokers: a table of
// rows, each of which bears the ids of what it proves, run against each pair of a
// destination's and a source's version of Kafka.
//
// `make conformance` runs all pairs and ends with a table of ids and `N passed, N failed`;
// `go test` runs one pair. TestIDs, which needs no Java, checks that ids and rows agree.
package conformance

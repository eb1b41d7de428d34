// Package e2e shows on real brokers that the whole does what contract.md says: a source
// cluster, a destination cluster with a sidecar process beside each broker, and the
// command line, used as an operator and stock clients use them.
//
// There are only tests here. They need a JDK and Maven, and are skipped with -short.
// MIRROR_E2E_RACE=1 builds the sidecars with the race detector.
package e2e

// Package stack starts what an operator would run at the destination: a real Kafka
// cluster, a sidecar process beside each broker, and the command line to talk to them.
// The demo, the benchmarks and the end-to-end tests stand on it.
//
// Broker N's CLIENT listener advertises sidecar N, so clients that start at a proxy stay
// behind the proxies. The INTERNAL listener by-passes them.
package stack

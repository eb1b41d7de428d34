// Package health serves what a supervisor asks a sidecar for: /livez, /readyz and
// /metrics, and profiles where the operator wants them. It knows nothing of Kafka; what "ready" means is told
// to it.
//
// Nothing can be changed here, and nobody logs in: whoever reaches the address may read. So it is on
// the loopback interface by default, what a request may be is bounded (guard.go), and so is what
// connections may hold (conns.go).
package health

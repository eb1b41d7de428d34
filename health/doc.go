// Package health serves what a supervisor asks a sidecar for: /livez, /readyz and
// /metrics. It knows nothing of Kafka; what "ready" means is told to it.
package health

// Package availability shows that mirror topics survive their sidecars: three brokers in
// two racks with a sidecar each, and a producer at the source that never stops. Sidecars
// are stopped, killed and frozen; the tests measure how long a partition stands still, where
// its virtual replicas are meanwhile and afterwards, and compare the logs at the end.
package availability

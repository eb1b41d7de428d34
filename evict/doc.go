// Package evict takes the virtual brokers out of a cluster: the uninstall, and what is left to
// do when no sidecar can start any more. It needs controllers and brokers only.
//
// It stops every mirror topic as an operator would. Where sidecars run, they do that; where none
// does, the coordinator's own code does it in this process, so every rule of a stop holds: no
// live replica is left out, nothing goes to an empty one, configs come back, open transactions
// are ended, and what a failback needs is recorded. Then it takes virtual replicas away from what
// is in no mirror, and the registrations of the virtual brokers last of all, but for those whose
// sidecar runs: they would come back.
//
// Everything can be repeated; a second run finds nothing to do. The Report says what is left,
// and whom it waits for.
package evict

// Package auth tests who may do what with mirrors (contract.md §8) on real brokers with
// Kafka's own authorizer: one user for each set of rights, and one for each right that is
// missing. The sidecars run under a principal of their own that has what
// docs/security.md says it needs, and nothing else.
package auth

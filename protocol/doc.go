// Package protocol holds what sidecars write to each other, to their state topic and to
// operators' tools: the mirror APIs of KIP-1279 (contract.md §1) as requests that franz-go
// carries, the records of __cluster_mirror_state (contract.md §5), and the error codes
// (contract.md §3).
//
// The messages are generated from the specs in protocol/specs by protocol/generator;
// `make generate` renews them. Tagged fields that a newer build wrote are kept and written
// again, so that a rolling upgrade loses nothing. No decoder here panics, and none
// allocates for lengths that its input cannot hold.
package protocol

//go:generate go run ./generator -specs specs/state,specs/mirror -package protocol -out generated.go

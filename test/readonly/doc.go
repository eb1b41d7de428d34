// Package readonly tests on real brokers what becomes of what clients ask of a mirror topic
// (contract.md §2): every API that changes something, at every version that the broker takes,
// in requests that name mirror topics and ordinary ones (refused here, done there); and that
// producers of four client libraries go on after a refusal with what they write elsewhere.
package readonly

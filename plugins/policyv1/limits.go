package policyv1

// What the texts of a Decision may have, in bytes: policy.proto says so.
const (
	MaxRule   = 256
	MaxReason = 1024
)

package policyv1

import _ "embed"

// Proto is the protocol itself, for plugins in other languages.
//
//go:embed policy.proto
var Proto []byte

// Package policyv1 is the protocol between a sidecar and policies, generated from policy.proto by
// scripts/protoc.sh.
package policyv1

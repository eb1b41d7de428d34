// Package plugins is what the author of a policy needs: Serve makes a program of a policy that is
// written in Go.
//
// The protocol is plugins/policyv1/policy.proto, over hashicorp/go-plugin; a plugin in another
// language needs that file and the handshake of docs/plugins.md. What is where:
//
//   - policyv1 is generated from the protocol (scripts/protoc.sh).
//   - host starts plugins, looks after them, and checks what they answer.
//   - builtin are the policies that the sidecar has of its own, a plugin like any other.
//   - kit asks a plugin everything that a host may ask, and says what is wrong with its answers.
//
// Nothing here knows Kafka's protocol, a cluster, or the coordinator.
package plugins

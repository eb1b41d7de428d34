// Package certs keeps TLS settings whose files are replaced while the process runs, as
// cert-manager and Kubernetes secrets do: a handshake is made with what the files hold
// then. What cannot be read is logged, and the last good settings stay in force.
package certs

// Package security tests on real brokers that whoever logs in at a broker logs in through a
// sidecar just so: every SASL mechanism, both versions of the handshake, with and without TLS
// on either side; sessions that end and are renewed; what is refused, and how. Its
// brokers talk to each other, and so to the virtual broker, over TLS. And that everything that
// expires is replaced on disk while records flow, on every link.
package security

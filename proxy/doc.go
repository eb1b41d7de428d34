// Package proxy stands between Kafka clients and the home broker.
//
// Each client connection has one upstream connection of its own, opened to the
// home broker when the client connects, so that SASL passes through and the broker
// stays the only judge of who the caller is and what it may do.
//
// # Connections
//
// Two goroutines serve a connection, and the connection waits for both:
//
//   - the reader takes request frames from the client, puts an exchange into the
//     queue and sends what has to be sent upstream;
//   - the writer takes exchanges from the queue and delivers their answers, so that
//     pipelined requests are answered in order whoever answers them. While none are due,
//     it reads from the upstream connection all the same, so that an answer wakes nobody
//     else and a broker that hangs up is noticed at once; see upstream.go.
//
// The broker answers the requests of one connection in order, so the writer needs no
// correlation table: the next upstream frame belongs to the oldest exchange that
// waits for one. The correlation id is compared all the same, and a connection that
// is out of step is closed.
//
// Everything that a connection holds is bounded, and so is every wait: one goroutine for all
// looks at them now and then, and asks the kernel who stands still (tend.go). Each end has a
// reason, which is logged and counted (ends.go). How many there may be is in limits.go.
//
// A proxy may begin before the rest of the sidecar is there, and go on when that has gone
// (late.go): ordinary topics need none of it.
//
// # Interception
//
// A frame is relayed untouched, and streamed, unless its API key is in the table of
// table.go: one row for each API, with the reason. A row's handler makes an exchange,
// which may
//
//   - be answered here;
//   - be forwarded, changed or not, and have its response changed;
//   - hold a conversation with the broker on the caller's own connection before
//     answering, while the reader waits.
//
// A handler may also hold a conversation before it decides (consult): what a caller may do
// with a mirror's configuration, or read of the state topic, is asked from the broker.
//
// # Two kinds of listener
//
// A client listener hides the virtual brokers: its clients see real brokers only, and
// a mirror partition led by one of its in-sync real replicas. A virtual listener is
// where the virtual broker is registered: clients that come around the client
// listener land there and see what the brokers tell, and the real brokers' replica
// fetchers are served there.
package proxy

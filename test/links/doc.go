// Package links is the network between the processes of a test: every connection of one
// party to another goes through a [Link] of its own, which can be cut, silenced, slowed and
// restored while it runs.
//
// A [Fabric] gives each address a front: the address that the others are told. Whoever
// connects to a front is recognised by the process that holds the other end of the
// connection (Linux only; elsewhere everybody is [Client]), so brokers and sidecars need no
// configuration of their own per link, and all links between any two parties can be told
// apart although all callers of a party use one address:
//
//	f := links.New()
//	src, err := harness.Start(ctx, harness.Config{Name: "source", Brokers: 3, Network: f})
//	st, err := stack.Start(ctx, stack.Config{Kafka: harness.Config{Name: "dest", Brokers: 3}, Network: f})
//	cut, err := f.Between("sidecar-1", "source-*")
//	cut.Cut()
//	cut.Restore()
//
// Parties are called "<cluster>-<id>" (a broker), "controller.<cluster>-<id>" (the CONTROLLER
// listener of a node, also of one that is a broker too), "sidecar-<broker>" and [Client]: the test
// itself and every program that nobody named. A combined node calls as the broker that it is.
//
// What delays and slices data is toxiproxy's, used as a library; connections, resets, silence and
// counting are this package's.
package links

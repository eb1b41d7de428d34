// Package mapping runs stock clients against a cluster whose brokers advertise themselves: the
// sidecars tell clients of proxies, at one listener by bootstrap.server.mapping, with TLS, which the
// brokers do not speak, at another by deterministic.listeners. A firewall between clients and brokers
// lets nobody around them.
package mapping

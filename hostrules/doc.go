// Package hostrules looks for what brokers decide by the address of a client: ACLs for single
// hosts, quotas of ip addresses, limits of connections per address. Behind a proxy every
// client has the sidecar's address, so that such rules let in, or keep out, whom they are not
// meant for. Limits per client address are the proxy's own, see package proxy.
package hostrules

// Package readonly decides which requests would change a mirror topic, and what each
// gets instead. It is pure: decoded requests in, decoded requests and responses out.
//
// For each API there is one method of Rules, which returns nil when it refuses
// nothing, else a Split: what remains of the request for the broker (nothing, maybe),
// and how to merge the refusals into the broker's response. Merged responses are in
// the order of the request, since a client may rely on it.
//
// A topic is read only by partition (contract-additions §7); what a whole topic would
// undergo is refused while any partition of it is.
package readonly

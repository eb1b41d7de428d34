// Command clients is what `make clients` runs: each stock client does the same things twice,
// straight at the brokers and through the proxies, and what it sees must be equal.
//
// A script is cut into parts (metadata, produce, transactions, …), the columns of the matrix; a part
// is a list of observations in order: a step, and what the client made of the answer, errors and their
// messages included. Scripts run first against the stock cluster, while no sidecar has ever touched it, and
// then, when sidecars have joined it and a topic is mirrored, through the proxies, with topics and groups of
// other names of the same shape. So "as if there were no proxy" is what is compared, and not "as somebody
// who goes around it".
//
// What must differ (addresses, names, ids that are drawn by chance) is made equal by normal.go; what differs for
// a reason that will stay is in the one list of known.go. Anything else is a defect of the proxy, or a script that
// does not see the same thing twice: -control runs both legs at the brokers and must be equal too.
//
// The mirrored topic is compared between the source, read by the first leg, and the mirror, read through the proxies by
// the second.
//
// With -plant a meddler between sidecars and brokers changes what brokers say of racks; every client must notice.
package main

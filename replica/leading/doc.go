// Package leading is the pure state machine of leading one mirror partition: the rules
// R1 to R18 of the safety rules, as far as one leader can keep them.
//
// Its inputs are what a leader learns (a metadata change, a follower's Fetch, an answer
// of the source, of the controller or of the state topic, a tick); its outputs are
// Actions for a driver to carry out and Decisions for followers to be answered with. It
// knows no network, no clock (time is passed in), no goroutine and no bytes of records:
// the driver keeps the bytes and asks the machine which of them may be served to whom.
//
// Every answer to an action carries the leader epoch it was asked under; an answer from
// another epoch is ignored, so a driver need not cancel anything.
package leading

// Package coordinator keeps what is wanted of every mirror and what state each mirror
// partition is in, and brings the two together.
//
//   - Store holds the topic __cluster_mirror_state: every sidecar reads all of it.
//   - Coordinator says which sidecar may write a key, routes requests there, and
//     answers the mirror APIs.
//   - Reconciler compares desired and actual state of each mirror topic and is the
//     only one that sends reassignments (R19).
//   - Next and Transition are the pure state machine of a mirror partition.
//
// What the metadata log says stands above what the state topic says: an assignment is a
// perfect fence, a record in a topic is not. Every step is therefore repeatable, and
// each starts by looking at both.
package coordinator

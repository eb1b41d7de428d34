// Package builtin are the policies that the sidecar has of its own, configured by the keys of a
// mirror: a plugin like any other, which the sidecar's program is itself if it is told to.
//
// Each kind is a file. They decide on the facts that they are given and nothing else, so that the
// tables of their tests are all there is to know of them.
package builtin

// Package plugins takes plugins through the hands of their authors: the conformance kit on the built-in
// policies, the examples and what is scaffolded, each built as its author builds it. `make plugins` runs
// all of it, and ends with the sum of what the kit says.
package plugins

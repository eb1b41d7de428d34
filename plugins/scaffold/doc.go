// Package scaffold writes the beginning of a plugin: a folder that builds, has tests, and passes the
// conformance kit as it is.
package scaffold

// Package filelock lets one process at a time have a file. The end of a process gives its locks up,
// however it ends.
package filelock

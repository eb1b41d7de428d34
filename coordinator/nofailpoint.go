//go:build !failpoints

package coordinator

// failpoint is where tests stop a process between two steps: see failpoint.go.
func failpoint(string) {}

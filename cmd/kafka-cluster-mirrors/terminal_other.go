//go:build !unix

package main

import "io"

// terminalWidth is 0 for what is not a terminal, and where that is not known.
func terminalWidth(io.Writer) int { return 0 }

//go:build !failpoints

package main

// maxMetadataVersion is the highest metadata.version to register for, 0 for what this build knows.
func maxMetadataVersion() int16 { return 0 }

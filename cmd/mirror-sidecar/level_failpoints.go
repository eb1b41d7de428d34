//go:build failpoints

package main

import (
	"os"
	"strconv"
)

// maxMetadataVersion lets tests run a sidecar as if it were of an older build.
func maxMetadataVersion() int16 {
	n, err := strconv.ParseInt(os.Getenv("MIRROR_MAX_METADATA_VERSION"), 10, 16)
	if err != nil {
		return 0
	}
	return int16(n)
}

//go:build !unix

package filelock

import (
	"errors"
	"os"
)

// Try has no locks that end with their process.
func Try(*os.File) (bool, error) { return false, errors.ErrUnsupported }

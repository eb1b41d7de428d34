//go:build !poison

package pool

// poisonAll is set by the build tag poison: every pool of such a binary overwrites what is
// released.
const poisonAll = false

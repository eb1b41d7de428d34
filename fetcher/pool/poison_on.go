//go:build poison

package pool

// poisonAll makes every pool overwrite what is released.
const poisonAll = true

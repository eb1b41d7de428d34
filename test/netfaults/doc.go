// Package netfaults separates and slows the parties of a running mirror, pair by pair: sidecars
// from controllers, from their home brokers, from each other, from the source and from the real
// brokers that copy from them. It also stops processes for longer than their sessions last.
// Records flow all the time; after each fault everything must come back by itself, and at the end
// all logs must be equal. It has tests only.
package netfaults

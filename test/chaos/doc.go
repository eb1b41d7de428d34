// Package chaos kills and pauses sidecars while they mirror a live source, and looks
// afterwards whether the mirror equals the source and the replicas equal each other. It
// has tests only.
package chaos

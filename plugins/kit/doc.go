// Package kit asks a plugin everything that a sidecar may ask, and says what is wrong with its
// answers: `mirror-sidecar plugin check -- COMMAND`. It starts the plugin through package host, as a
// sidecar does, so that what passes here is what passes there.
//
//   - facts.go makes the questions: ordinary ones, strange ones, what a later version may add.
//   - kinds.go puts them to a plugin, kind by kind.
//   - checks.go are the checks, each a line of the report.
package kit

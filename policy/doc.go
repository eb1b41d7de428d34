// Package policy asks the plugins of a mirror what is mirrored, and remembers what they said.
//
//   - Engine asks the plugins that a mirror names for a kind, in their order: the first refusal
//     wins, and a plugin that cannot be asked leaves its last good decision standing.
//   - Ledger keeps the decisions and what came of them, for whoever asks why.
//
// It starts no processes (plugins/host does), and knows neither clusters nor the state topic: facts
// come in and decisions go out. Who applies them: the coordinator for topics and their configs,
// package syncs for everything else.
package policy

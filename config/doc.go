// Package config reads what operators write: Kafka properties files, the sidecar's
// own keys, a mirror's keys, and the client security keys that both share. It turns
// the latter into franz-go options.
//
// Every key stands in one table with its default, its check and its help text, so
// that flags, defaults, documentation and "did you mean" cannot drift apart. Secrets
// are never part of an error, and Redacted is the only form meant for display.
package config

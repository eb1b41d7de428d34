// Package metadatarecords decodes the records of a KRaft cluster's metadata log that a
// virtual broker relies on. It covers the metadata.version levels from
// MinMetadataVersion to MaxMetadataVersion, the range that the virtual broker registers.
//
// Fields of the metadata log that this build has no name for are skipped, and so are
// record types that nothing here relies on. A version of a relied-on record that has no
// table is an error instead: guessing at it could make a replica lead wrongly
// (design.md §8).
//
// The layouts are facts of Kafka's wire format, held in protocol/specs/metadata.
package metadatarecords

//go:generate go run ../generator -specs ../specs/metadata -package metadatarecords -out generated.go

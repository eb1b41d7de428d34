// Package wire reads and writes the primitive types of the Kafka protocol for the
// code that protocol/generator writes: fixed-width integers, unsigned varints,
// classic and compact strings and arrays, and tagged fields.
//
// Bytes come from strangers, so a Reader never panics and never allocates for an
// announced length that the bytes at hand cannot hold. Reader and Writer keep their
// first error and turn everything after it into zero values, so that generated code
// stays a plain list of fields.
package wire

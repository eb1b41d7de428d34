// Package check compares what a mirror holds with what its source holds, record by record,
// and sorts what is wrong into lost, doubled, reordered, diverged and foreign. It reads the
// segment files of brokers raw, so that nothing which a broker or a proxy does on the way
// can hide a difference; nothing in it asks a broker.
package check

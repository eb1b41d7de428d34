// Package sockets reads, writes and splices TCP connections without telling Go's scheduler.
//
// A relay sleeps and wakes for every request. Each time the process falls asleep, so does the
// thread of the runtime that looks for system calls which block (sysmon), and the next call wakes
// it: it finds nothing, looks again a few times in 20 µs, and sleeps. With a request of 64 KiB that
// costs more than to copy it twice; of a sidecar that relays a producer it was two fifths of all its
// time on the cores.
//
// Sockets are non-blocking: what cannot be done at once returns, and the goroutine waits in the
// runtime's poller, as with package net. So the scheduler need not know of a call that is over in a
// few microseconds, longer than which none takes: the bytes of one are bounded. Deadlines, Close,
// the poller and the errors are package net's.
//
// The same thread interrupts goroutines that keep a core to themselves. It wakes with the next timer of
// the process, within a second or two, and whoever is about to work for long wakes it (Busy).
//
// With the race detector, and on other systems than Linux, connections stay as they are: the
// detector learns from package net that who reads comes after who wrote.
package sockets

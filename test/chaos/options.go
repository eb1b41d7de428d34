package main

import (
	"log/slog"
	"time"
)

// options of a run.
type options struct {
	seed    uint64
	length  time.Duration // rounds begin within it
	from    int           // rounds before it are left out, to come to one that went wrong
	bin     string        // folder of the two binaries
	report  string        // file for the report as JSON; the text goes beside it
	keep    string        // folder for the logs of a run that failed
	version string        // Kafka's, of both clusters
	log     *slog.Logger
	say     func(format string, args ...any)
}

const (
	mirror     = "chaos"
	partitions = 2
	// session is what the clusters give a broker to send a heartbeat, virtual ones too.
	session = 6 * time.Second
	// recoverLimit is how long everything may take to be well again after a round's last fault.
	recoverLimit = 120 * time.Second
	// leastRate is what must be written while faults count.
	leastRate = 2000
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

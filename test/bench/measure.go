package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// round is one copy of the backlog.
type round struct {
	MBPerS float64 `json:"mb_per_s"`
	// CPUPerGB is what the copying process used: the sidecar, MirrorMaker's JVM, and for native
	// replication the broker that leads.
	CPUPerGB float64 `json:"cpu_s_per_gb"`
	// Seconds from the first byte at the destination to the last one; FromRequest also
	// counts what came before: a takeover, a JVM's start.
	Seconds     float64 `json:"seconds"`
	FromRequest float64 `json:"seconds_from_request"`
	// The brokers' own share, for the whole picture. With native replication the source is the copying process.
	SourceCPUPerGB      float64 `json:"source_broker_cpu_s_per_gb"`
	DestinationCPUPerGB float64 `json:"destination_broker_cpu_s_per_gb"`
}

func (r round) String() string {
	return fmt.Sprintf("%7.1f MB/s, %6.2f CPU s/GB (source broker %.2f, destination broker %.2f), %.1f s, %.1f s from the request",
		r.MBPerS, r.CPUPerGB, r.SourceCPUPerGB, r.DestinationCPUPerGB, r.Seconds, r.FromRequest)
}

// watch says whose CPU counts and how far a copy is.
type watch struct {
	copier, source, destination int // process ids
	bytes                       int64
	// progress returns 0 before the copy begins and 1 when all has arrived. It must cost
	// little: it is called all the time.
	progress func() (float64, error)
	// alive fails when nothing more is to be expected.
	alive func() error
}

// run measures from now on.
func (w watch) run(ctx context.Context) (round, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	request := time.Now()
	var first time.Time
	pids := []int{w.copier, w.source, w.destination}
	var before []time.Duration
	for {
		done, err := w.progress()
		if err != nil {
			return round{}, err
		}
		if done > 0 && first.IsZero() {
			first = time.Now()
			if before, err = cpuTimes(pids); err != nil {
				return round{}, err
			}
		}
		if done >= 1 {
			break
		}
		if w.alive != nil {
			if err := w.alive(); err != nil {
				return round{}, err
			}
		}
		select {
		case <-ctx.Done():
			return round{}, fmt.Errorf("%.0f %% copied: %w", done*100, context.Cause(ctx))
		case <-tick.C:
		}
	}
	end := time.Now()
	after, err := cpuTimes(pids)
	if err != nil {
		return round{}, err
	}
	seconds, gb := end.Sub(first).Seconds(), float64(w.bytes)/1e9
	perGB := func(i int) float64 { return (after[i] - before[i]).Seconds() / gb }
	return round{
		MBPerS: float64(w.bytes) / 1e6 / seconds, CPUPerGB: perGB(0), Seconds: seconds, FromRequest: end.Sub(request).Seconds(),
		SourceCPUPerGB: perGB(1), DestinationCPUPerGB: perGB(2),
	}, nil
}

func cpuTimes(pids []int) ([]time.Duration, error) {
	out := make([]time.Duration, len(pids))
	for i, pid := range pids {
		var err error
		if out[i], err = cpuTime(pid); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// clockTick is the unit of /proc's CPU times on every Linux that Go runs on.
const clockTick = time.Second / 100

// cpuTime is what a process has used so far, all its threads together.
func cpuTime(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return parseStat(raw)
}

func parseStat(raw []byte) (time.Duration, error) {
	// The second field is the program's name in parentheses and may hold anything.
	end := bytes.LastIndexByte(raw, ')')
	fields := bytes.Fields(raw[end+1:])
	if end < 0 || len(fields) < 13 {
		return 0, fmt.Errorf("an odd /proc stat line: %q", raw)
	}
	var ticks int64
	for _, f := range fields[11:13] { // user and system
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("an odd /proc stat line: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// logBytes sums up a topic's segments at a broker, as they lie on the disk: that costs the broker
// nothing. What does not exist yet is 0.
func logBytes(node *harness.Node, topic string, partitions int) (int64, error) {
	var sum int64
	for p := range partitions {
		dir := filepath.Join(node.DataDir(), fmt.Sprintf("%s-%d", topic, p))
		segments, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil {
			return 0, err
		}
		for _, s := range segments {
			info, err := os.Stat(s)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return 0, err
			}
			sum += info.Size()
		}
	}
	return sum, nil
}

// bytesAt makes a watch's progress of what lies on a broker's disk.
func bytesAt(node *harness.Node, topic string, partitions int, want int64) func() (float64, error) {
	return func() (float64, error) {
		n, err := logBytes(node, topic, partitions)
		return float64(n) / float64(want), err
	}
}

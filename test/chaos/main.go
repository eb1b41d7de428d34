// Command chaos is what `make chaos` runs: a live source of three brokers, mirrored by three
// sidecars to a destination of three brokers, all of which are killed, frozen, wiped, cut off
// and bothered by their operator as a seed says, while a checker reads every log of both sides
// and two consumers read the mirror through the proxies. The last line of its output sums up, and
// its exit status is 0 only if nothing was lost, doubled, out of order, different, foreign, or
// did not come back.
//
// A run with the same seed deals the same faults at the same times. What they hit depends on who
// leads what at that moment, which no seed can say.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// commit is set by the linker.
var commit = "unknown"

func main() {
	var opt options
	minutes := flag.Float64("minutes", 20, "length of the part with faults")
	flag.Uint64Var(&opt.seed, "seed", 1, "what the schedule is made from")
	flag.IntVar(&opt.from, "from", 1, "first round that is dealt, to come to one that went wrong")
	flag.StringVar(&opt.bin, "bin", ownFolder(), "folder of mirror-sidecar and kafka-cluster-mirrors")
	flag.StringVar(&opt.report, "report", "", "file for the report as JSON; its text goes beside it")
	flag.StringVar(&opt.keep, "keep", "", "folder for the processes' logs, if something is wrong")
	flag.StringVar(&opt.version, "kafka", "", "Kafka version of both clusters; empty: the newest that is tested")
	selftest := flag.Bool("selftest", false, "plant one fault of each kind into real logs: the checker must find it")
	judged := flag.String("judge", "", "judge the report of an earlier run in this file, as its own run did; nothing is run")
	verbose := flag.Bool("v", false, "log what the parts do")
	flag.Parse()

	if *judged != "" {
		os.Exit(judgeAgain(*judged))
	}
	opt.length = time.Duration(*minutes * float64(time.Minute))
	opt.log = discard()
	if *verbose {
		opt.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	begun := time.Now()
	opt.say = func(format string, args ...any) {
		fmt.Printf("%7.1fs  %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	limit := opt.length + 15*time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("took longer than %s", limit))
	defer cancel()
	if *selftest {
		if err := plantAll(ctx, opt); err != nil {
			fmt.Fprintln(os.Stderr, "chaos selftest:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(judge(ctx, opt))
}

// judge runs and prints; it gives the exit status.
func judge(ctx context.Context, opt options) int {
	r, err := run(ctx, opt)
	if err != nil {
		if r.good() {
			r.Unrecovered++
		}
		r.Trouble = append(r.Trouble, err.Error())
	}
	if err := r.wide(); err != nil {
		r.Trouble = append(r.Trouble, err.Error())
	}
	if err := r.write(opt.report); err != nil {
		r.Trouble = append(r.Trouble, err.Error())
	}
	return r.end()
}

// judgeAgain gives the exit status of a run that has left its report.
func judgeAgain(file string) int {
	data, err := os.ReadFile(file)
	var r report
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	if err := r.wide(); err != nil {
		r.Trouble = append(r.Trouble, err.Error())
	}
	return r.end()
}

// end prints the report; it gives the exit status.
func (r *report) end() int {
	fmt.Print("\n", r.text())
	if !r.good() {
		return 1
	}
	return 0
}

// ownFolder is where this binary is: the others are built beside it.
func ownFolder() string {
	self, err := os.Executable()
	if err != nil {
		return "."
	}
	return filepath.Dir(self)
}

package coordinator

import (
	"testing"

	"pgregory.net/rapid"
)

func allStates() []State {
	return []State{Unknown, LogTruncation, Mirroring, Pausing, Paused, Stopping, Stopped, Failed}
}

// TestVerbs is the verb table of contract-additions.md §2.
func TestVerbs(t *testing.T) {
	for _, c := range []struct {
		verb Event
		want map[State]Refusal
	}{
		{VerbStart, map[State]Refusal{Unknown: None, Stopped: None, LogTruncation: Done, Mirroring: Done, Pausing: NotStopped, Paused: NotStopped, Stopping: BeingStopped, Failed: None}},
		{VerbStop, map[State]Refusal{Unknown: NotInMirror, Stopped: Done, LogTruncation: None, Mirroring: None, Pausing: None, Paused: None, Stopping: Done, Failed: None}},
		{VerbPause, map[State]Refusal{Unknown: InvalidState, Stopped: BeingStopped, LogTruncation: InvalidState, Mirroring: None, Pausing: AlreadyPaused, Paused: AlreadyPaused, Stopping: BeingStopped, Failed: InvalidState}},
		{VerbResume, map[State]Refusal{Unknown: NotPaused, Stopped: BeingStopped, LogTruncation: NotPaused, Mirroring: NotPaused, Pausing: NotPaused, Paused: None, Stopping: BeingStopped, Failed: NotPaused}},
		{VerbRecover, map[State]Refusal{Unknown: InvalidState, Stopped: InvalidState, LogTruncation: InvalidState, Mirroring: InvalidState, Pausing: InvalidState, Paused: InvalidState, Stopping: InvalidState, Failed: None}},
	} {
		for _, s := range allStates() {
			if _, got := Next(s, Mirroring, c.verb); got != c.want[s] {
				t.Errorf("verb %d in %s: got %d, want %d", c.verb, s, got, c.want[s])
			}
		}
	}
}

// TestNextIsATransition: whatever Next answers is allowed by Transition, and a refusal
// never moves.
func TestNextIsATransition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(allStates()).Draw(t, "state")
		prev := rapid.SampledFrom(allStates()).Draw(t, "previous")
		e := Event(rapid.IntRange(int(VerbStart), int(EventFailed)).Draw(t, "event"))
		next, why := Next(s, prev, e)
		if why != None && next != s {
			t.Fatalf("refused, but moved from %s to %s", s, next)
		}
		// Recover re-enters the state before the failure, which is not an ordinary step.
		if why == None && e != VerbRecover && !Transition(s, next) {
			t.Fatalf("%s -> %s is not allowed", s, next)
		}
	})
}

// TestNext: where each event leads from each state; states that are not named refuse it or
// are there already.
func TestNext(t *testing.T) {
	for _, c := range []struct {
		event Event
		want  map[State]State
	}{
		{VerbStart, map[State]State{Unknown: LogTruncation, Stopped: LogTruncation, Failed: LogTruncation}},
		{VerbStop, map[State]State{LogTruncation: Stopping, Mirroring: Stopping, Pausing: Stopping, Paused: Stopping, Failed: Stopping}},
		{VerbPause, map[State]State{Mirroring: Pausing}},
		{VerbResume, map[State]State{Paused: Mirroring}},
		{EventAligned, map[State]State{LogTruncation: Mirroring, Failed: Mirroring}},
		{EventPaused, map[State]State{Pausing: Paused}},
		{EventStopped, map[State]State{Stopping: Stopped}},
		{EventFailed, map[State]State{Unknown: Failed, LogTruncation: Failed, Mirroring: Failed, Pausing: Failed, Paused: Failed, Stopping: Failed, Stopped: Failed, Failed: Failed}},
	} {
		for _, s := range allStates() {
			want, moves := c.want[s]
			got, why := Next(s, Mirroring, c.event)
			if moves && (got != want || why != None) || !moves && (got != s || why == None) {
				t.Errorf("%s in %s: %s, refusal %d; want %s (moves: %t)", c.event, s, got, why, want, moves)
			}
		}
	}
	// Recover goes on where it failed, or begins anew where there was nothing.
	for _, before := range allStates() {
		want := before
		if before == Unknown || before == Stopped || before == Failed {
			want = LogTruncation
		}
		if got, why := Next(Failed, before, VerbRecover); got != want || why != None {
			t.Errorf("recover after %s: %s, refusal %d", before, got, why)
		}
	}
}

func TestTransitions(t *testing.T) {
	allowed := map[[2]State]bool{}
	for to, from := range map[State][]State{
		LogTruncation: {Unknown, Stopped, Failed},
		Mirroring:     {LogTruncation, Paused, Failed},
		Pausing:       {Mirroring},
		Paused:        {Pausing},
		Stopping:      {Unknown, LogTruncation, Mirroring, Pausing, Paused, Failed},
		Stopped:       {Stopping},
		Failed:        allStates(),
	} {
		for _, f := range from {
			allowed[[2]State{f, to}] = true
		}
	}
	for _, from := range allStates() {
		for _, to := range allStates() {
			if want := allowed[[2]State{from, to}] || from == to; Transition(from, to) != want {
				t.Errorf("%s -> %s: want %v", from, to, want)
			}
		}
	}
}

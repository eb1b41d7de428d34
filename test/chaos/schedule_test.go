package main

import (
	"reflect"
	"testing"
)

func TestScheduleIsItsSeed(t *testing.T) {
	deal := func(seed uint64) (rounds [][]planned) {
		s := newSchedule(seed)
		for range 30 {
			rounds = append(rounds, s.next())
		}
		return rounds
	}
	if !reflect.DeepEqual(deal(7), deal(7)) {
		t.Error("one seed gives two schedules")
	}
	if reflect.DeepEqual(deal(7), deal(8)) {
		t.Error("two seeds give one schedule")
	}
}

// TestScheduleIsWide: what 20 minutes have time for holds every kind often enough and none too often.
func TestScheduleIsWide(t *testing.T) {
	for seed := range uint64(20) {
		s := newSchedule(seed)
		counts := map[kind]int{}
		total := 0
		for range 32 {
			round := s.next()
			for _, p := range round {
				counts[p.Kind]++
				total++
				if p.Hold < holdLeast || p.Hold > holdMost || p.Start < 0 || p.Start > startSpread {
					t.Errorf("seed %d: %+v", seed, p)
				}
			}
			if len(round) > len(groups) {
				t.Errorf("seed %d: a round of %d", seed, len(round))
			}
		}
		often := 0
		for k, n := range counts {
			if n >= 5 {
				often++
			}
			if n > total/4 {
				t.Errorf("seed %d: %d of %d are %s", seed, n, total, k)
			}
		}
		if total < 110 || often < 14 {
			t.Errorf("seed %d: %d faults, %d kinds five times: %v", seed, total, often, counts)
		}
	}
}

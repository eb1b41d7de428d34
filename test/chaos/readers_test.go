package main

import (
	"errors"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/test/chaos/check"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

// made is a load that gave out the numbers below 10, of which it has aborted 4 and lost track of 7.
type made struct{}

func (made) Number(r *kgo.Record) (int64, error) {
	n, err := strconv.ParseInt(string(r.Value), 10, 64)
	if err != nil {
		return 0, errors.New("no number")
	}
	return n, nil
}

func (made) Account(string, int32) (workload.Account, error) {
	a := workload.Account{Next: 10}
	for n := range int64(10) {
		if n == 7 {
			continue
		}
		a.Acked.Add(n)
		if n == 4 {
			a.Aborted.Add(n)
		} else {
			a.Committed.Add(n)
		}
	}
	return a, nil
}

func TestReaderFindsWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name      string
		kind      workload.Kind
		committed bool
		offsets   []int64
		values    []string
		want      check.Counts
	}{
		{"all", workload.Idempotent, false, []int64{0, 1, 2, 3, 4, 5, 6, 8}, []string{"0", "1", "2", "3", "4", "5", "6", "7"}, check.Counts{}},
		{"committed", workload.Transactional, true, []int64{0, 1, 2, 3, 6, 7}, []string{"0", "1", "2", "3", "5", "6"}, check.Counts{}},
		{"not read to the end", workload.Idempotent, false, []int64{0, 1}, []string{"0", "1"}, check.Counts{}},
		{"passed over", workload.Idempotent, false, []int64{0, 1, 4}, []string{"0", "1", "4"}, check.Counts{Lost: 2}},
		{"what was never acknowledged is missing", workload.Idempotent, false, []int64{0, 1, 2, 3, 4, 5, 6, 9}, []string{"0", "1", "2", "3", "4", "5", "6", "9"}, check.Counts{Lost: 1}},
		{"the aborted is passed over", workload.Transactional, true, []int64{0, 1, 2, 3, 9}, []string{"0", "1", "2", "3", "5"}, check.Counts{}},
		{"the aborted is visible", workload.Transactional, true, []int64{0, 1, 2, 3, 4}, []string{"0", "1", "2", "3", "4"}, check.Counts{Foreign: 1}},
		{"again at one offset", workload.Idempotent, false, []int64{0, 1, 1}, []string{"0", "1", "1"}, check.Counts{Doubled: 1}},
		{"again at another offset", workload.Idempotent, false, []int64{0, 1, 2}, []string{"0", "1", "1"}, check.Counts{Doubled: 1}},
		{"a plain producer's retry", workload.Plain, false, []int64{0, 1, 2}, []string{"0", "1", "1"}, check.Counts{}},
		{"backwards", workload.Idempotent, false, []int64{0, 1, 2}, []string{"0", "2", "1"}, check.Counts{Reordered: 1}},
		{"foreign", workload.Idempotent, false, []int64{0, 1}, []string{"0", "rogue"}, check.Counts{Foreign: 1}},
		{"compacted", workload.Compacted, false, []int64{0, 5}, []string{"0", "5"}, check.Counts{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &reader{name: "all", committed: tt.committed, load: made{}, kinds: map[string]workload.Kind{"t": tt.kind}, at: map[tp]*seen{}}
			for i, o := range tt.offsets {
				r.record(&kgo.Record{Topic: "t", Offset: o, Value: []byte(tt.values[i])})
			}
			rs := &readers{all: []*reader{r}}
			f := rs.found([]tp{{"t", 0}})
			if f.Counts != tt.want {
				t.Errorf("%+v", f)
			}
			if end := tt.offsets[len(tt.offsets)-1] + 1; rs.behind(map[tp]int64{{"t", 0}: end}) != nil || rs.behind(map[tp]int64{{"t", 0}: end + 1}) == nil {
				t.Errorf("behind: the position is %d", r.position(tp{"t", 0}))
			}
		})
	}
}

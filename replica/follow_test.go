package replica

import "testing"

// TestR21Shows: joining a real leader makes visible what only it has if the ISR is just one short
// of min.insync.replicas.
func TestR21Shows(t *testing.T) {
	const self = 10001
	replicas := []int32{10001, 10002, 1, 2, 3}
	for _, c := range []struct {
		name   string
		isr    []int32
		minISR int
		want   bool
	}{
		{"one short", []int32{1, 2}, 3, true},
		{"raised", []int32{1, 2}, 5, false},
		{"enough without it", []int32{1, 2, 3}, 3, false},
		{"more would be needed", []int32{1}, 3, false},
		{"in sync already", []int32{1, self}, 3, false},
		{"capped by the number of replicas", []int32{1, 2, 3, 10002}, 9, true},
	} {
		if got := shows(c.isr, replicas, self, c.minISR); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

package metadata

import "testing"

func TestBringBack(t *testing.T) {
	replicas := []int32{10001, 10002, 1, 2, 3}
	for want, p := range map[string]Partition{
		"bring back broker 3, which has all data":         {ELR: []int32{10001, 3}, LastRealISR: []int32{2}},
		"bring back broker 2 or 3, which has all data":    {ELR: []int32{2, 3}},
		"bring back broker 3, which was the last in sync": {LastRealISR: []int32{3}},
		"bring back broker 2, which was the last in sync": {LastRealISR: []int32{2, 4}}, // 4 was unassigned since
		"bring back broker 1, 2, 3":                       {LastRealISR: []int32{4}},
	} {
		p.Replicas = replicas
		if got := p.BringBack(10000); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
	}
	p := Partition{Replicas: replicas}
	if got, want := p.BringBackAll(10000, []int32{1, 3}), "bring back broker 1, 3: who has all data is known when the logs of broker 1, 2, 3 were compared"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

package batch

import "testing"

func TestAnchorRefutes(t *testing.T) {
	a := Anchor{Base: 10, Last: 14, count: 5, crc: 1}
	for name, tc := range map[string]struct {
		b    Anchor
		want bool
	}{
		"the same":                {a, false},
		"another one":             {Anchor{Base: 10, Last: 14, count: 5, crc: 2}, true},
		"longer":                  {Anchor{Base: 10, Last: 15, count: 6, crc: 2}, true},
		"begins below":            {Anchor{Base: 9, Last: 14, count: 6, crc: 2}, true},
		"inside":                  {Anchor{Base: 11, Last: 12, count: 2, crc: 2}, true},
		"records were taken out":  {Anchor{Base: 10, Last: 14, count: 3, crc: 2}, false},
		"tombstones have a date":  {Anchor{Base: 10, Last: 14, count: 5, crc: 2, cleaned: true}, false},
		"it is gone, the next is": {Anchor{Base: 15, Last: 20, count: 6, crc: 2}, false},
		"below":                   {Anchor{Base: 5, Last: 9, count: 5, crc: 2}, false},
	} {
		if got := a.Refutes(tc.b); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
		if got := tc.b.Refutes(a); got != tc.want {
			t.Errorf("%s, the other way: %t", name, got)
		}
	}
	if !a.Covers(10) || !a.Covers(14) || a.Covers(9) || a.Covers(15) {
		t.Error("covers the wrong offsets")
	}
}

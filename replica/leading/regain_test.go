package leading

import "testing"

// All that is in sync ends below what the buffer has, and nobody could serve it: it is begun
// anew from there.
func TestRegain(t *testing.T) {
	for _, c := range []struct {
		name string
		ends [3]int64
		want Phase
	}{
		{"all below", [3]int64{79, 70, 75}, Resigned},
		{"one can serve the others", [3]int64{79, 80, 75}, Leading},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.follows(120)
			for id, end := range c.ends {
				r.fetch(int32(id+1), end, 4)
			}
			r.phase(c.want)
		})
	}
	t.Run("one was not heard yet", func(t *testing.T) {
		r := newRig(t)
		r.leads(80)
		r.fetch(1, 79, 4)
		r.fetch(2, 70, 4)
		r.phase(Leading)
	})
}

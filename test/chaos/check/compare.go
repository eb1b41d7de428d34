package check

import "fmt"

// Counts says what is wrong.
type Counts struct {
	// Lost records are at the source and nowhere in the mirror; Doubled are in the mirror once
	// more than at the source; Reordered are at another offset than at the source; Diverged are at
	// the right offset with other bytes, or not the same in all replicas; Foreign are in the
	// mirror and were never at the source.
	Lost      int64 `json:"lost"`
	Doubled   int64 `json:"doubled"`
	Reordered int64 `json:"reordered"`
	Diverged  int64 `json:"diverged"`
	Foreign   int64 `json:"foreign"`
}

// Zero tells whether nothing is wrong.
func (c Counts) Zero() bool { return c == Counts{} }

// Plus adds two.
func (c Counts) Plus(o Counts) Counts {
	return Counts{c.Lost + o.Lost, c.Doubled + o.Doubled, c.Reordered + o.Reordered, c.Diverged + o.Diverged, c.Foreign + o.Foreign}
}

// maxExamples bounds what a Findings remembers in words.
const maxExamples = 20

// Findings are counts with examples in words.
type Findings struct {
	Counts
	Examples []string `json:"examples,omitempty"`
}

// Add counts one finding and keeps it as an example, while there is room.
func (f *Findings) Add(counter *int64, format string, args ...any) {
	*counter++
	if len(f.Examples) < maxExamples {
		f.Examples = append(f.Examples, fmt.Sprintf(format, args...))
	}
}

// Merge adds the findings of o.
func (f *Findings) Merge(o Findings) {
	f.Counts = f.Counts.Plus(o.Counts)
	for _, e := range o.Examples {
		if len(f.Examples) < maxExamples {
			f.Examples = append(f.Examples, e)
		}
	}
}

// Range is the part of two logs that is compared: offsets from From on and below To.
type Range struct{ From, To int64 }

func (r Range) of(records []Record) []Record {
	lo, hi := 0, len(records)
	for lo < hi && records[lo].Offset < r.From {
		lo++
	}
	for hi > lo && records[hi-1].Offset >= r.To {
		hi--
	}
	return records[lo:hi]
}

// Compare compares a log of the mirror with one of the source, neither of them compacted. name
// says in examples whose log it is.
func Compare(name string, source, mirror []Record, part Range) Findings {
	var f Findings
	source, mirror = part.of(source), part.of(mirror)
	var missing, misplaced []Record
	right := map[int64]bool{} // numbers that are where they belong; only filled when asked for
	last := int64(-1)
	i, j := 0, 0
	for i < len(source) || j < len(mirror) {
		switch {
		case j < len(mirror) && mirror[j].Offset <= last:
			misplaced = append(misplaced, mirror[j]) // offsets must rise, whatever is in them
			j++
		case j == len(mirror) || i < len(source) && source[i].Offset < mirror[j].Offset:
			missing = append(missing, source[i])
			i++
		case i == len(source) || mirror[j].Offset < source[i].Offset:
			misplaced = append(misplaced, mirror[j])
			last = mirror[j].Offset
			j++
		default:
			s, m := source[i], mirror[j]
			last = m.Offset
			switch {
			case s.Number != m.Number:
				missing, misplaced = append(missing, s), append(misplaced, m)
			case s.Sum != m.Sum:
				f.Add(&f.Diverged, "%s: offset %d, number %d is not what it is at the source", name, m.Offset, m.Number)
			}
			i, j = i+1, j+1
		}
	}
	if len(missing) == 0 && len(misplaced) == 0 {
		return f
	}
	at := make(map[int64]int64, len(source)) // number → offset at the source
	for _, s := range source {
		at[s.Number] = s.Offset
	}
	for _, m := range mirror {
		if o, ok := at[m.Number]; ok && o == m.Offset {
			right[m.Number] = true
		}
	}
	found := map[int64]bool{}
	for _, m := range misplaced {
		o, known := at[m.Number]
		switch {
		case m.Number < 0 || !known:
			f.Add(&f.Foreign, "%s: offset %d holds what the source never had (number %d)", name, m.Offset, m.Number)
		case right[m.Number] || found[m.Number]:
			f.Add(&f.Doubled, "%s: number %d is also at offset %d", name, m.Number, m.Offset)
		default:
			f.Add(&f.Reordered, "%s: number %d is at offset %d, at the source at %d", name, m.Number, m.Offset, o)
			found[m.Number] = true
		}
	}
	for _, s := range missing {
		if !right[s.Number] && !found[s.Number] {
			f.Add(&f.Lost, "%s: number %d, at the source at offset %d, is missing", name, s.Number, s.Offset)
		}
	}
	return f
}

// Same compares the logs of two replicas of the mirror, neither of them compacted: what differs
// is diverged.
func Same(name string, a, b []Record, part Range) Findings {
	var f Findings
	a, b = part.of(a), part.of(b)
	for i := range min(len(a), len(b)) {
		if x, y := a[i], b[i]; x.Offset != y.Offset || x.Number != y.Number || x.Sum != y.Sum {
			f.Add(&f.Diverged, "%s: the replicas have number %d at offset %d and number %d at offset %d", name, x.Number, x.Offset, y.Number, y.Offset)
			return f
		}
	}
	if len(a) != len(b) {
		f.Add(&f.Diverged, "%s: the replicas have %d and %d records in [%d, %d)", name, len(a), len(b), part.From, part.To)
	}
	return f
}

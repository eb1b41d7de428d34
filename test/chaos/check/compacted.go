package check

// newest is the last record of a key that consumers see.
func newest(records []Record) map[uint64]Record {
	out := map[uint64]Record{}
	for _, r := range records {
		if !r.Aborted {
			out[r.Key] = r
		}
	}
	return out
}

// CompareCompacted compares a log of the mirror with one of the source, each of which its own
// broker has compacted as it saw fit: what both still have must be the same, and the last record
// of each key must be there. given is the number that the load will give out next.
func CompareCompacted(name string, source, mirror []Record, part Range, given int64) Findings {
	var f Findings
	source, mirror = part.of(source), part.of(mirror)
	at := make(map[int64]Record, len(source)) // by offset
	where := make(map[int64]int64, len(source))
	for _, s := range source {
		at[s.Offset], where[s.Number] = s, s.Offset
	}
	seen := map[int64]bool{}
	lastOffset, lastNumber := int64(-1), int64(-1)
	for _, m := range mirror {
		s, both := at[m.Offset]
		o, known := where[m.Number]
		switch {
		case m.Number < 0 || m.Number >= given:
			f.Add(&f.Foreign, "%s: offset %d holds what no producer made (number %d)", name, m.Offset, m.Number)
			continue
		case seen[m.Number]:
			f.Add(&f.Doubled, "%s: number %d is also at offset %d", name, m.Number, m.Offset)
			continue
		case m.Offset <= lastOffset || m.Number <= lastNumber:
			f.Add(&f.Reordered, "%s: number %d at offset %d comes after number %d", name, m.Number, m.Offset, lastNumber)
		case both && s.Number == m.Number && s.Sum != m.Sum:
			f.Add(&f.Diverged, "%s: offset %d, number %d is not what it is at the source", name, m.Offset, m.Number)
		case both && s.Number != m.Number, known && o != m.Offset:
			f.Add(&f.Reordered, "%s: number %d is at offset %d, at the source it is elsewhere", name, m.Number, m.Offset)
		}
		seen[m.Number] = true
		lastOffset, lastNumber = max(lastOffset, m.Offset), max(lastNumber, m.Number)
	}
	want, got := newest(source), newest(mirror)
	for key, w := range want {
		g, ok := got[key]
		switch {
		case !ok && w.Tombstone: // the mirror's cleaner has removed it already
		case !ok || g.Offset < w.Offset:
			if !seen[w.Number] {
				f.Add(&f.Lost, "%s: number %d at offset %d, the last of its key at the source, is missing", name, w.Number, w.Offset)
			}
		}
	}
	for key, g := range got {
		if w, ok := want[key]; ok && g.Offset > w.Offset || !ok && !g.Tombstone {
			f.Add(&f.Lost, "%s: the key of number %d at offset %d is deleted at the source by a later record that is missing here", name, g.Number, g.Offset)
		}
	}
	return f
}

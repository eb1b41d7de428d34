package main

import (
	"fmt"
	"strings"
)

// cell is what the comparison of one part of one client gave.
type cell struct {
	Part    string   `json:"part"`
	Seen    int      `json:"observations"`
	Outcome string   `json:"outcome"`
	Details []string `json:"details,omitempty"`
}

const (
	outcomeEqual     = "equal"
	outcomeDifferent = "DIFFERENT"
	outcomeBroken    = "BROKEN" // the script itself could not go on, on either way
	// outcomeNoticed is a difference that was planted.
	outcomeNoticed = "noticed"
)

func (c *cell) good() bool { return c.Outcome == outcomeEqual || c.Outcome == outcomeNoticed }

// shownDifferences bounds the details of a cell.
const shownDifferences = 8

// compare makes the cells of one client. Both transcripts are normalised.
func compare(direct, proxied *transcript) []cell {
	var cells []cell
	for _, d := range direct.Parts {
		p := proxied.part(d.Name)
		if p == nil {
			p = &part{Name: d.Name, Broken: "the part was not reached"}
		}
		cells = append(cells, comparePart(d, p))
	}
	for _, p := range proxied.Parts {
		if direct.part(p.Name) == nil {
			cells = append(cells, comparePart(&part{Name: p.Name, Broken: "the part was not reached"}, p))
		}
	}
	if direct.Broken != "" || proxied.Broken != "" || len(cells) == 0 {
		c := cell{Part: "end", Outcome: outcomeBroken}
		c.broken("direct", direct.Broken)
		c.broken("proxied", proxied.Broken)
		cells = append(cells, c)
	}
	return cells
}

func (c *cell) broken(way, why string) {
	if why != "" {
		c.Outcome = outcomeBroken
		c.Details = append(c.Details, way+": "+why)
	}
}

func comparePart(d, p *part) cell {
	c := cell{Part: d.Name, Seen: len(d.Seen), Outcome: outcomeEqual}
	differ := func(format string, args ...any) {
		c.Outcome = outcomeDifferent
		if len(c.Details) < shownDifferences {
			c.Details = append(c.Details, fmt.Sprintf(format, args...))
		}
	}
	for i := range max(len(d.Seen), len(p.Seen)) {
		switch {
		case i >= len(p.Seen):
			differ("%s: seen by direct only: %s", d.Seen[i].Step, oneLine(d.Seen[i].Value))
		case i >= len(d.Seen):
			differ("%s: seen through the proxy only: %s", p.Seen[i].Step, oneLine(p.Seen[i].Value))
		case d.Seen[i].Step != p.Seen[i].Step:
			differ("step %d is %s direct, %s through the proxy", i, d.Seen[i].Step, p.Seen[i].Step)
		case d.Seen[i].Value != p.Seen[i].Value:
			direct, proxied := firstDifference(d.Seen[i].Value, p.Seen[i].Value)
			differ("%s:\n      direct  %s\n      proxied %s", d.Seen[i].Step, direct, proxied)
		}
	}
	if c.Outcome == outcomeEqual && len(d.Seen) == 0 {
		c.broken("both", "nothing was observed")
	}
	c.broken("direct", d.Broken)
	c.broken("proxied", p.Broken)
	return c
}

// shownBytes bounds a value in a report.
const shownBytes = 600

func oneLine(s string) string {
	s = strings.ReplaceAll(s, "\n", " ⏎ ")
	if len(s) > shownBytes {
		s = s[:shownBytes] + "…"
	}
	return s
}

// firstDifference leaves out the lines that long texts begin with in common.
func firstDifference(a, b string) (partOfA, partOfB string) {
	la, lb := strings.Split(a, "\n"), strings.Split(b, "\n")
	i := 0
	for i < len(la)-1 && i < len(lb)-1 && la[i] == lb[i] {
		i++
	}
	short := func(lines []string) string {
		s := strings.Join(lines[i:], "\n")
		if i > 0 {
			s = fmt.Sprintf("(line %d) %s", i+1, s)
		}
		return oneLine(s)
	}
	return short(la), short(lb)
}

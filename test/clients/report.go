package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// row is one client.
type row struct {
	Client  string `json:"client"`
	Version string `json:"version"`
	ID      string `json:"id"`
	Tools   bool   `json:"tools,omitempty"`
	Cells   []cell `json:"cells"`
}

func (r *row) cell(part string) *cell {
	for i := range r.Cells {
		if r.Cells[i].Part == part {
			return &r.Cells[i]
		}
	}
	return nil
}

// report is the outcome of a run.
type report struct {
	Commit       string `json:"commit"`
	Seed         int    `json:"seed"` // nothing is drawn
	Duration     string `json:"duration"`
	Form         string `json:"form"`
	Passed       int    `json:"passed"`
	Failed       int    `json:"failed"`
	Observations int    `json:"observations"`
	Rows         []row  `json:"rows"`
	// Known are the differences that stay, with how often they were met.
	Known []knownUse `json:"knownDifferences"`
	// Trouble is what failed beside the cells.
	Trouble []string `json:"trouble,omitempty"`
}

type knownUse struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
	Times  int    `json:"times"`
}

func newReport(opt options) *report {
	r := &report{Commit: commit, Form: "whole"}
	switch {
	case opt.control:
		r.Form = "control"
	case opt.plant:
		r.Form = "planted difference"
	case opt.quick:
		r.Form = "quick"
	case len(opt.only) > 0:
		r.Form = strings.Join(opt.only, ",")
	}
	return r
}

// sum counts the cells.
func (r *report) sum(used map[string]int, opt options) {
	for _, k := range knownDifferences() {
		r.Known = append(r.Known, knownUse{k.ID, k.Reason, used[k.ID]})
		if used[k.ID] == 0 && r.Form == "whole" {
			r.Trouble = append(r.Trouble, fmt.Sprintf("the known difference %s was not met: take it off the list", k.ID))
		}
	}
	for i := range r.Rows {
		for j := range r.Rows[i].Cells {
			c := &r.Rows[i].Cells[j]
			if opt.plant {
				c.expectPlanted(&r.Rows[i])
			}
			r.Observations += c.Seen
			if c.good() {
				r.Passed++
			} else {
				r.Failed++
			}
		}
	}
	r.Failed += len(r.Trouble)
}

// expectPlanted turns a cell around that has noticed what was planted, and nothing else.
func (c *cell) expectPlanted(r *row) {
	noticed := c.Outcome == outcomeDifferent
	for _, d := range c.Details {
		noticed = noticed && strings.Contains(d, planted)
	}
	switch {
	case noticed:
		c.Outcome, c.Details = outcomeNoticed, nil
	case c.Outcome == outcomeEqual && c.Part == seesRacks(r):
		c.Outcome = outcomeBroken
		c.Details = append(c.Details, "what was planted was not noticed")
	}
}

// seesRacks is the part that shows every user racks.
func seesRacks(r *row) string {
	if r.Tools {
		return "kafka-broker-api-versions"
	}
	return "metadata"
}

// text is the matrix, what differs, and the sum on the last line.
func (r *report) text() string {
	var b strings.Builder
	r.matrix(&b, false)
	r.matrix(&b, true)
	for _, row := range r.Rows {
		for _, c := range row.Cells {
			if c.good() {
				continue
			}
			fmt.Fprintf(&b, "! %s %s, %s: %s\n", row.Client, row.Version, c.Part, c.Outcome)
			for _, d := range c.Details {
				fmt.Fprintf(&b, "    %s\n", d)
			}
		}
	}
	for _, t := range r.Trouble {
		fmt.Fprintf(&b, "! %s\n", t)
	}
	for _, k := range r.Known {
		fmt.Fprintf(&b, "known difference %s, met %d times: %s\n", k.ID, k.Times, k.Reason)
	}
	fmt.Fprintf(&b, "%d observations of %d clients compared (%s form, %s)\n", r.Observations, len(r.Rows), r.Form, r.Duration)
	fmt.Fprintf(&b, "%d passed, %d failed\n", r.Passed, r.Failed)
	return b.String()
}

// matrix draws the rows of clients, or, turned by a quarter, that of the tools.
func (r *report) matrix(b *strings.Builder, tools bool) {
	var rows []row
	var parts []string
	for _, row := range r.Rows {
		if row.Tools != tools {
			continue
		}
		rows = append(rows, row)
		for _, c := range row.Cells {
			if !slices.Contains(parts, c.Part) {
				parts = append(parts, c.Part)
			}
		}
	}
	if len(rows) == 0 {
		return
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	if tools {
		for _, row := range rows {
			fmt.Fprintf(w, "%s %s\t\n", row.Client, row.Version)
			for _, c := range row.Cells {
				fmt.Fprintf(w, "%s\t%s\t(%d)\n", c.Part, c.Outcome, c.Seen)
			}
		}
	} else {
		fmt.Fprintf(w, "client\tversion\t%s\n", strings.Join(parts, "\t"))
		for _, row := range rows {
			fmt.Fprintf(w, "%s\t%s", row.Client, row.Version)
			for _, p := range parts {
				text := "-"
				if c := row.cell(p); c != nil {
					text = c.Outcome
				}
				fmt.Fprintf(w, "\t%s", text)
			}
			fmt.Fprintln(w)
		}
	}
	_ = w.Flush()
	b.WriteByte('\n')
}

func (r *report) write(file string) error {
	if file == "" {
		return nil
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// describedPolicy is one policy of a mirror.
type describedPolicy struct {
	Mirror    string        `json:"mirror"`
	Kind      string        `json:"kind"`
	Plugin    string        `json:"plugin"`
	LastRunMs int64         `json:"lastRunMs"`
	LastError string        `json:"lastError,omitempty"`
	Skipped   []skippedItem `json:"skipped"`
	Warnings  []string      `json:"warnings,omitempty"`
}

type skippedItem struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// writePolicies shows what decides on mirrors, and what was left out.
func (o *options) writePolicies(out io.Writer, mirrors []protocol.DescribedMirror) error {
	rows := []describedPolicy{}
	for _, m := range mirrors {
		for _, p := range m.Policies {
			row := describedPolicy{m.MirrorName, p.Kind, p.Plugin, p.LastRunMs, deref(p.LastError), []skippedItem{}, p.Warnings}
			for _, s := range p.Skipped {
				row.Skipped = append(row.Skipped, skippedItem{s.Name, s.Reason})
			}
			rows = append(rows, row)
		}
	}
	if o.json {
		return writeJSON(out, rows)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, "No policies were asked yet.")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MIRROR\tKIND\tPOLICY\tLAST-RUN\tSKIPPED\tERROR")
	for _, r := range rows {
		run := "-"
		if r.LastRunMs > 0 {
			run = at(r.LastRunMs)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", r.Mirror, r.Kind, dash(r.Plugin), run, len(r.Skipped), dash(oneLine(r.LastError)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		for _, text := range r.Warnings {
			fmt.Fprintf(out, "%s, %s: warning of %s: %s\n", r.Mirror, r.Kind, r.Plugin, oneLine(text))
		}
		for _, s := range r.Skipped {
			fmt.Fprintf(out, "%s, %s: %s is left out: %s\n", r.Mirror, r.Kind, s.Name, oneLine(s.Reason))
		}
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

type explanation struct {
	Mirror   string            `json:"mirror"`
	Kind     string            `json:"kind"` // topic, config, group, acl or quota
	Name     string            `json:"name"`
	Mirrored bool              `json:"mirrored"`
	Steps    []explanationStep `json:"steps"`
}

type explanationStep struct {
	Rule          string `json:"rule"`
	Plugin        string `json:"plugin,omitempty"`
	Passed        bool   `json:"passed"`
	Reason        string `json:"reason"`
	SinceMs       int64  `json:"sinceMs"`
	LastAppliedMs int64  `json:"lastAppliedMs"`
	LastError     string `json:"lastError,omitempty"`
}

func (o *options) explain(ctx context.Context, cl *kgo.Client, out io.Writer) error {
	req := protocol.NewExplainClusterMirrorRequest()
	switch {
	case o.topic != "":
		req.Kind, req.Name = "topic", o.topic
	case o.groupName != "":
		req.Kind, req.Name = "group", o.groupName
	case o.topicConfig != "":
		req.Kind, req.Name = "config", o.topicConfig
	case o.quota != "":
		req.Kind, req.Name = "quota", o.quota
	default:
		req.Kind, req.Name = "acl", o.acl
	}
	if o.mirror != "" {
		req.MirrorName = &o.mirror
	}
	r, err := ask[*protocol.ExplainClusterMirrorResponse](ctx, cl, &req)
	if err != nil {
		return err
	}
	rows := []explanation{}
	for _, e := range r.Explanations {
		row := explanation{Mirror: e.MirrorName, Kind: req.Kind, Name: req.Name, Mirrored: e.Mirrored, Steps: []explanationStep{}}
		for _, s := range e.Steps {
			row.Steps = append(row.Steps, explanationStep{s.Rule, s.Plugin, s.Passed, s.Reason, s.SinceMs, s.LastAppliedMs, deref(s.LastError)})
		}
		rows = append(rows, row)
	}
	if o.json {
		return writeJSON(out, rows)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, "No mirrors found.")
		return err
	}
	var errs []error
	for i, row := range rows {
		if i > 0 {
			fmt.Fprintln(out)
		}
		errs = append(errs, row.write(out))
	}
	return errors.Join(errs...)
}

func (e *explanation) write(out io.Writer) error {
	verdict := "is not mirrored"
	if e.Mirrored {
		verdict = "is mirrored"
	}
	fmt.Fprintf(out, "%s %s %s by mirror %s.\n", e.Kind, e.Name, verdict, e.Mirror)
	if len(e.Steps) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  RULE\tPASSED\tREASON")
	for _, s := range e.Steps {
		rule, passed := s.Rule, "no"
		if s.Plugin != "" {
			rule += " (" + s.Plugin + ")"
		}
		if s.Passed {
			passed = "yes"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", rule, passed, dash(oneLine(s.Reason+s.history())))
	}
	return w.Flush()
}

// history says since when a step says what it says, and what came of it.
func (s explanationStep) history() string {
	var parts []string
	if s.SinceMs > 0 {
		parts = append(parts, "since "+at(s.SinceMs))
	}
	if s.LastAppliedMs > 0 {
		parts = append(parts, "last applied "+at(s.LastAppliedMs))
	}
	if s.LastError != "" {
		parts = append(parts, "last error: "+s.LastError)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func at(millis int64) string { return time.UnixMilli(millis).UTC().Format(time.RFC3339) }

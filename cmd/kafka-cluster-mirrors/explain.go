package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
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
	rows := explanations(&req, r)
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

func explanations(req *protocol.ExplainClusterMirrorRequest, r *protocol.ExplainClusterMirrorResponse) []explanation {
	rows := []explanation{}
	for _, e := range r.Explanations {
		row := explanation{Mirror: e.MirrorName, Kind: req.Kind, Name: req.Name, Mirrored: e.Mirrored, Steps: []explanationStep{}}
		for _, s := range e.Steps {
			row.Steps = append(row.Steps, explanationStep{s.Rule, s.Plugin, s.Passed, s.Reason, s.SinceMs, s.LastAppliedMs, deref(s.LastError)})
		}
		rows = append(rows, row)
	}
	return rows
}

// everything is the name that asks what would be changed of all ACLs or quotas.
const everything = "*"

// foresee says what a change of configuration would do to ACLs and quotas, for those of the two that
// it is about.
func (o *options) foresee(ctx context.Context, cl *kgo.Client, out io.Writer, changes []kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	for _, about := range []struct {
		kind string
		keys []string
	}{
		{"acl", []string{config.ACLsIncludeKey, config.ACLsExcludeKey, config.PolicyPrefix + "acls"}},
		{"quota", []string{config.QuotasIncludeKey, config.PolicyPrefix + "quotas"}},
	} {
		if !slices.ContainsFunc(changes, func(c kmsg.IncrementalAlterConfigsRequestResourceConfig) bool {
			return slices.Contains(about.keys, c.Name)
		}) {
			continue
		}
		req := protocol.NewExplainClusterMirrorRequest()
		req.MirrorName, req.Kind, req.Name = &o.mirror, about.kind, everything
		for _, c := range changes {
			with := protocol.NewExplainedConfig()
			with.Name, with.Value = c.Name, c.Value
			req.With = append(req.With, with)
		}
		r, err := ask[*protocol.ExplainClusterMirrorResponse](ctx, cl, &req)
		if err != nil {
			return err
		}
		for _, row := range explanations(&req, r) {
			if err := row.write(out); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *explanation) write(out io.Writer) error {
	verdict := "is not mirrored"
	if e.Mirrored {
		verdict = "is mirrored"
	}
	switch {
	case e.Name == everything && e.Mirrored:
		fmt.Fprintf(out, "Nothing would be changed of the %ss of mirror %s.\n", e.Kind, e.Mirror)
	case e.Name == everything:
		fmt.Fprintf(out, "What would be done about the %ss of mirror %s:\n", e.Kind, e.Mirror)
	default:
		fmt.Fprintf(out, "%s %s %s by mirror %s.\n", e.Kind, e.Name, verdict, e.Mirror)
	}
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

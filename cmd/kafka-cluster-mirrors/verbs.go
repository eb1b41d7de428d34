package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// topicOutcome is what became of one topic of a verb.
type topicOutcome struct {
	Topic   string `json:"topic"`
	Done    bool   `json:"done"` // accepted, or true already; with --wait: reached
	Error   string `json:"error,omitempty"`
	Message string `json:"errorMessage,omitempty"`
	// State is the one that all partitions have after --wait, or the least advanced one.
	State string `json:"state,omitempty"`
	// Skipped: a pattern matches, and it would be left out all the same. Only with --dry-run.
	Skipped bool `json:"skipped,omitempty"`

	code int16
}

// words are how a verb is spoken of.
type words struct {
	accepted, would string
	goal            string // of --wait
}

func verbWords(action string) words {
	switch action {
	case "start":
		return words{"started", "started", "mirrored, without lag"}
	case "stop":
		return words{"being stopped", "stopped", "STOPPED and writable"}
	case "pause":
		return words{"being paused", "paused", "PAUSED"}
	case "resume":
		return words{"resumed", "resumed", "MIRRORING"}
	case "recover":
		return words{"being tried again", "tried again", "MIRRORING"}
	}
	return words{}
}

func (o *options) topicsVerb(ctx context.Context, cl *kgo.Client, out io.Writer, p *progress) error {
	w := &waiter{action: o.action}
	wait := o.wait && !o.dryRun
	if wait { // what failed before the verb is not the verb's failure
		if m, err := o.fetchMirrors(ctx, cl); err == nil {
			w.remember(m[0])
		}
	}
	outcomes, err := o.sendVerb(ctx, cl)
	if err != nil {
		return err
	}
	if err := o.forgive(ctx, cl, outcomes); err != nil {
		return err
	}
	var refused int
	for _, t := range outcomes {
		switch {
		case t.Done:
			w.topics = append(w.topics, t.Topic)
		case !t.Skipped:
			refused++
		}
	}
	if !o.json {
		excluded := ""
		if len(outcomes) == 0 && o.action == "start" {
			excluded = o.excluded(ctx, cl)
		}
		o.writeOutcomes(out, outcomes, len(w.topics), excluded)
	}
	if wait && len(w.topics) > 0 {
		err = o.await(ctx, cl, p, w)
		for i := range outcomes {
			outcomes[i].State = w.states[outcomes[i].Topic]
			outcomes[i].Done = outcomes[i].Done && w.reached[outcomes[i].Topic]
		}
		if err == nil && !o.json {
			fmt.Fprintf(out, "%s of mirror %s %s %s.\n", plural(len(w.topics), "topic"), o.mirror, isAre(len(w.topics)), verbWords(o.action).goal)
		}
	}
	if o.json {
		err = errors.Join(err, writeJSON(out, outcomes))
	}
	if refused > 0 {
		err = errors.Join(err, fmt.Errorf("mirror %s: %d of %s refused", o.mirror, refused, plural(len(outcomes), "topic")))
	}
	return errors.Join(err, o.nothingDone(outcomes))
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// nothingDone is the error of a verb that found no topic, unless it has left its patterns
// with the mirror.
func (o *options) nothingDone(outcomes []topicOutcome) error {
	_, patterns := split(o.topics)
	if len(outcomes) > 0 || len(patterns) > 0 && (o.action == "start" || o.action == "stop") {
		return nil
	}
	return fmt.Errorf("mirror %s: no topic matches %s", o.mirror, strings.Join(o.topics, ","))
}

// excluded tells what the mirror leaves out, as a remark: a stop with patterns has put them there.
func (o *options) excluded(ctx context.Context, cl *kgo.Client) string {
	const key = "mirror.topics.exclude"
	rows, err := o.fetchConfigs(ctx, cl, key)
	for _, r := range rows {
		if err == nil && r.Name == key && deref(r.Value) != "" {
			return fmt.Sprintf(" and is not excluded (%s=%s)", key, deref(r.Value))
		}
	}
	return ""
}

func (o *options) writeOutcomes(out io.Writer, outcomes []topicOutcome, done int, excluded string) {
	for _, t := range outcomes {
		switch {
		case !t.Done && !t.Skipped:
			fmt.Fprintf(out, "%s: %s: %s\n", t.Topic, t.Error, t.Message)
		case t.Error != "":
			fmt.Fprintf(out, "%s: already so (%s)\n", t.Topic, t.Error)
		case t.Message != "":
			fmt.Fprintf(out, "%s: %s\n", t.Topic, t.Message)
		}
	}
	say, patterns := verbWords(o.action), strings.Join(o.topics, ",")
	switch {
	case len(outcomes) == 0 && o.action == "start" && o.dryRun:
		fmt.Fprintf(out, "No topic at the source of mirror %s matches %s%s; the patterns would be kept.\n", o.mirror, patterns, excluded)
	case len(outcomes) == 0 && o.action == "start":
		fmt.Fprintf(out, "No topic at the source of mirror %s matches %s%s; the patterns are kept, and topics that appear are started.\n", o.mirror, patterns, excluded)
	case len(outcomes) == 0 && o.action == "stop":
		fmt.Fprintf(out, "No topic of mirror %s matches %s.\n", o.mirror, patterns)
	case len(outcomes) == 0: // an error says it
	case o.dryRun:
		fmt.Fprintf(out, "%d of %s would be %s in mirror %s.\n", done, plural(len(outcomes), "topic"), say.would, o.mirror)
	default:
		fmt.Fprintf(out, "%d of %s %s in mirror %s.\n", done, plural(len(outcomes), "topic"), say.accepted, o.mirror)
	}
}

// sendVerb asks for the verb and returns what was said of each topic, and of those that were
// named and not spoken of.
func (o *options) sendVerb(ctx context.Context, cl *kgo.Client) ([]topicOutcome, error) {
	names, patterns := split(o.topics)
	var results []protocol.TopicResult
	var err error
	switch o.action {
	case "start":
		req := protocol.NewStartMirrorTopicsRequest()
		req.MirrorName, req.Topics, req.IncludePatterns, req.ExcludePatterns = o.mirror, names, patterns, o.exclude
		req.AllowTruncate, req.ValidateOnly = o.allowTruncate, o.dryRun
		var r *protocol.StartMirrorTopicsResponse
		if r, err = ask[*protocol.StartMirrorTopicsResponse](ctx, cl, &req); err == nil {
			results = r.Topics
		}
	case "stop":
		req := protocol.NewStopMirrorTopicsRequest()
		req.MirrorName, req.Topics, req.Patterns, req.ValidateOnly = o.mirror, names, patterns, o.dryRun
		var r *protocol.StopMirrorTopicsResponse
		if r, err = ask[*protocol.StopMirrorTopicsResponse](ctx, cl, &req); err == nil {
			results = r.Topics
		}
	case "pause":
		req := protocol.NewPauseMirrorTopicsRequest()
		req.MirrorName, req.Topics, req.ValidateOnly = o.mirror, append(names, patterns...), o.dryRun
		var r *protocol.PauseMirrorTopicsResponse
		if r, err = ask[*protocol.PauseMirrorTopicsResponse](ctx, cl, &req); err == nil {
			results = r.Topics
		}
	case "resume":
		req := protocol.NewResumeMirrorTopicsRequest()
		req.MirrorName, req.Topics, req.ValidateOnly = o.mirror, append(names, patterns...), o.dryRun
		var r *protocol.ResumeMirrorTopicsResponse
		if r, err = ask[*protocol.ResumeMirrorTopicsResponse](ctx, cl, &req); err == nil {
			results = r.Topics
		}
	case "recover":
		req := protocol.NewRecoverMirrorTopicsRequest()
		req.MirrorName, req.Topics, req.AllowTruncate, req.ValidateOnly = o.mirror, append(names, patterns...), o.allowTruncate, o.dryRun
		var r *protocol.RecoverMirrorTopicsResponse
		if r, err = ask[*protocol.RecoverMirrorTopicsResponse](ctx, cl, &req); err == nil {
			results = r.Topics
		}
	default:
		err = fmt.Errorf("--%s is not a verb of topics", o.action)
	}
	if err != nil {
		return nil, err
	}
	return o.outcomes(results), nil
}

func (o *options) outcomes(results []protocol.TopicResult) []topicOutcome {
	outcomes := []topicOutcome{}
	spoken := map[string]bool{}
	for _, t := range results {
		spoken[t.Name] = true
		c := topicOutcome{Topic: t.Name, Done: t.ErrorCode == 0 && !t.Skipped, Skipped: t.Skipped, Message: deref(t.ErrorMessage), code: t.ErrorCode}
		if t.ErrorCode != 0 {
			c.Error = protocol.CodeName(t.ErrorCode)
		}
		outcomes = append(outcomes, c)
	}
	names, _ := split(o.topics)
	for _, n := range names {
		if !spoken[n] {
			outcomes = append(outcomes, topicOutcome{
				Topic: n, code: protocol.TopicNotInClusterMirror, Error: protocol.CodeName(protocol.TopicNotInClusterMirror),
				Message: fmt.Sprintf("topic %s is not in mirror %s", n, o.mirror),
			})
		}
	}
	slices.SortFunc(outcomes, func(a, b topicOutcome) int { return strings.Compare(a.Topic, b.Topic) })
	return outcomes
}

// forgive counts what is already as it should be as done: a topic to pause that is paused,
// one to resume that is MIRRORING (contract-additions.md §2).
func (o *options) forgive(ctx context.Context, cl *kgo.Client, outcomes []topicOutcome) error {
	var resumed []int
	for i := range outcomes {
		switch {
		case o.action == "pause" && outcomes[i].code == protocol.MirrorTopicAlreadyPaused:
			outcomes[i].Done = true
		case o.action == "resume" && outcomes[i].code == protocol.MirrorTopicNotPaused:
			resumed = append(resumed, i)
		}
	}
	if len(resumed) == 0 {
		return nil
	}
	mirrors, err := o.fetchMirrors(ctx, cl)
	if err != nil {
		return err
	}
	running := map[string]bool{}
	for _, t := range mirrors[0].Topics {
		running[t.TopicName] = len(t.Partitions) > 0
		for _, p := range t.Partitions {
			if coordinator.State(p.State) != coordinator.Mirroring {
				running[t.TopicName] = false
			}
		}
	}
	for _, i := range resumed {
		outcomes[i].Done = running[outcomes[i].Topic]
	}
	return nil
}

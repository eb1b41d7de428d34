package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/verify"
)

// requestTimeout is above what a sidecar takes to give up on a source.
const requestTimeout = 60 * time.Second

func (o *options) do(ctx context.Context, out, progress io.Writer) error {
	switch o.action {
	case "version":
		_, err := fmt.Fprintf(out, "kafka-cluster-mirrors %s (commit %s)\n", version, commit)
		return err
	case "decode-log":
		return decodeLogs(out, o.files)
	case "decode-state":
		return o.decodeState(ctx, out)
	}
	cl, err := dial(o.bootstrap, o.commandConfig, kgo.RequestTimeoutOverhead(requestTimeout))
	if err != nil {
		return err
	}
	defer cl.Close()
	switch o.action {
	case "create":
		return o.create(ctx, cl, out)
	case "delete":
		return o.delete(ctx, cl, out)
	case "list":
		return o.list(ctx, cl, out)
	case "describe":
		return o.describe(ctx, cl, out)
	case "verify":
		return o.verify(ctx, cl, out, progress)
	}
	return o.topicsVerb(ctx, cl, out, progress)
}

func (o *options) create(ctx context.Context, cl *kgo.Client, out io.Writer) error {
	p, err := config.ReadPropertiesFile(o.mirrorConfig)
	if err != nil {
		return err
	}
	// Most mistakes are found before anybody is asked.
	if _, err := config.ParseMirror(p); err != nil {
		return fmt.Errorf("%s: %w", o.mirrorConfig, err)
	}
	req := protocol.NewCreateClusterMirrorRequest()
	req.MirrorName, req.ValidateOnly = o.mirror, o.dryRun
	for _, k := range p.Keys() {
		c := protocol.NewMirrorConfig()
		v := p[k]
		c.Name, c.Value = k, &v
		req.Configs = append(req.Configs, c)
	}
	r, err := ask[*protocol.CreateClusterMirrorResponse](ctx, cl, &req)
	if err == nil {
		err = protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	}
	if err != nil {
		return err
	}
	return o.say(out, map[string]any{"mirror": o.mirror, "created": !o.dryRun}, o.would("Mirror %s %screated.", o.mirror))
}

func (o *options) delete(ctx context.Context, cl *kgo.Client, out io.Writer) error {
	req := protocol.NewDeleteClusterMirrorRequest()
	req.MirrorName, req.ValidateOnly = o.mirror, o.dryRun
	r, err := ask[*protocol.DeleteClusterMirrorResponse](ctx, cl, &req)
	if err == nil {
		err = protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	}
	if err != nil {
		return err
	}
	return o.say(out, map[string]any{"mirror": o.mirror, "deleted": !o.dryRun}, o.would("Mirror %s %sdeleted.", o.mirror))
}

func (o *options) would(format, name string) string {
	if o.dryRun {
		return fmt.Sprintf(format, name, "would be ")
	}
	return fmt.Sprintf(format, name, "")
}

// say prints one outcome, in JSON or as a sentence.
func (o *options) say(out io.Writer, v any, text string) error {
	if !o.json {
		_, err := fmt.Fprintln(out, text)
		return err
	}
	return writeJSON(out, v)
}

func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// topicOutcome is what became of one topic of a start, stop or recover.
type topicOutcome struct {
	Topic   string `json:"topic"`
	Error   string `json:"error,omitempty"`
	Message string `json:"errorMessage,omitempty"`
}

func (o *options) topicsVerb(ctx context.Context, cl *kgo.Client, out, progress io.Writer) error {
	names, patterns := split(o.topics)
	var code int16
	var message *string
	var topics []protocol.TopicResult
	switch o.action {
	case "start":
		req := protocol.NewStartMirrorTopicsRequest()
		req.MirrorName, req.Topics, req.IncludePatterns, req.ExcludePatterns = o.mirror, names, patterns, o.exclude
		req.AllowTruncate, req.ValidateOnly = o.allowTruncate, o.dryRun
		r, err := ask[*protocol.StartMirrorTopicsResponse](ctx, cl, &req)
		if err != nil {
			return err
		}
		code, message, topics = r.ErrorCode, r.ErrorMessage, r.Topics
	case "stop":
		req := protocol.NewStopMirrorTopicsRequest()
		req.MirrorName, req.Topics, req.Patterns, req.ValidateOnly = o.mirror, names, patterns, o.dryRun
		r, err := ask[*protocol.StopMirrorTopicsResponse](ctx, cl, &req)
		if err != nil {
			return err
		}
		code, message, topics = r.ErrorCode, r.ErrorMessage, r.Topics
	case "recover":
		req := protocol.NewRecoverMirrorTopicsRequest()
		req.MirrorName, req.Topics, req.AllowTruncate, req.ValidateOnly = o.mirror, o.topics, o.allowTruncate, o.dryRun
		r, err := ask[*protocol.RecoverMirrorTopicsResponse](ctx, cl, &req)
		if err != nil {
			return err
		}
		code, message, topics = r.ErrorCode, r.ErrorMessage, r.Topics
	default:
		return usagef("--%s is not supported yet", o.action)
	}
	if err := protocol.ErrorForCode(code, message); err != nil {
		return err
	}
	var outcomes []topicOutcome
	var done []string
	refused := 0
	for _, t := range topics {
		c := topicOutcome{Topic: t.Name}
		if t.ErrorCode != 0 {
			refused++
			c.Error = protocol.CodeName(t.ErrorCode)
			if t.ErrorMessage != nil {
				c.Message = *t.ErrorMessage
			}
		} else {
			done = append(done, t.Name)
		}
		outcomes = append(outcomes, c)
	}
	if o.json {
		if err := writeJSON(out, outcomes); err != nil {
			return err
		}
	} else {
		for _, c := range outcomes {
			if c.Error != "" {
				fmt.Fprintf(out, "%s: %s: %s\n", c.Topic, c.Error, c.Message)
			}
		}
		verb := map[string]string{"start": "started", "stop": "stopping", "recover": "tried again"}[o.action]
		if o.dryRun {
			verb = "would be " + map[string]string{"start": "started", "stop": "stopped", "recover": "tried again"}[o.action]
		}
		fmt.Fprintf(out, "%d of %d topics %s in mirror %s.\n", len(done), len(topics), verb, o.mirror)
	}
	if len(topics) == 0 {
		return fmt.Errorf("no topic matches %s", strings.Join(o.topics, ","))
	}
	if o.wait && !o.dryRun && len(done) > 0 {
		if err := o.await(ctx, cl, progress, done); err != nil {
			return err
		}
		if !o.json && o.action == "stop" {
			fmt.Fprintf(out, "%d topics stopped in mirror %s.\n", len(done), o.mirror)
		}
	}
	if refused > 0 {
		return fmt.Errorf("%d of %d topics were refused", refused, len(topics))
	}
	return nil
}

// await shows progress until the topics are MIRRORING without lag (start) or STOPPED (stop).
func (o *options) await(ctx context.Context, cl *kgo.Client, progress io.Writer, topics []string) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	last, waits := "", ""
	for {
		m, err := o.fetch(ctx, cl)
		if err == nil && len(m) == 1 {
			var done, all int
			var lag int64
			waits = ""
			seen := map[string]bool{}
			for _, t := range m[0].Topics {
				if !slices.Contains(topics, t.TopicName) {
					continue
				}
				seen[t.TopicName] = len(t.Partitions) > 0
				for _, p := range t.Partitions {
					all++
					state := coordinator.State(p.State)
					switch {
					case o.action == "stop" && state == coordinator.Stopped,
						o.action == "start" && state == coordinator.Mirroring && p.SourceOffset >= 0 && p.DestinationOffset >= p.SourceOffset:
						done++
						continue
					case o.action == "start" && state == coordinator.Failed:
						return fmt.Errorf("%s-%d FAILED: %s", t.TopicName, p.PartitionIndex, deref(p.ErrorMessage))
					}
					if p.SourceOffset >= 0 && p.DestinationOffset >= 0 {
						lag += max(p.SourceOffset-p.DestinationOffset, 0)
					}
					if waits == "" {
						waits = strings.TrimSpace(fmt.Sprintf("%s-%d is %s %s %s", t.TopicName, p.PartitionIndex, state, deref(p.Detail), deref(p.ErrorMessage)))
					}
				}
			}
			for _, t := range topics {
				if !seen[t] && o.action == "start" {
					all++ // not created yet
				}
			}
			line := fmt.Sprintf("%d of %d partitions done, lag %d", done, all, lag)
			if waits != "" {
				line += "; " + waits
			}
			if line != last && !o.quiet {
				fmt.Fprintln(progress, line)
				last = line
			}
			if done == all {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("not done within %s: %w", o.timeout, err)
			}
			return fmt.Errorf("not done within %s: %s", o.timeout, waits)
		case <-tick.C:
		}
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// fetch describes the mirror that was named, or all of them.
func (o *options) fetch(ctx context.Context, cl *kgo.Client) ([]protocol.DescribedMirror, error) {
	req := protocol.NewDescribeClusterMirrorsRequest()
	if o.mirror != "" {
		req.MirrorNames = []string{o.mirror}
	}
	r, err := ask[*protocol.DescribeClusterMirrorsResponse](ctx, cl, &req)
	if err == nil {
		err = protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	}
	if err != nil {
		return nil, err
	}
	for _, m := range r.Mirrors {
		if err := protocol.ErrorForCode(m.ErrorCode, m.ErrorMessage); err != nil {
			return nil, err
		}
	}
	return r.Mirrors, nil
}

type listed struct {
	Mirror    string `json:"mirror"`
	Topics    int32  `json:"topics"`
	ClusterID string `json:"sourceClusterId"`
	Bootstrap string `json:"sourceBootstrapServer"`
}

func (o *options) list(ctx context.Context, cl *kgo.Client, out io.Writer) error {
	req := protocol.NewListClusterMirrorsRequest()
	r, err := ask[*protocol.ListClusterMirrorsResponse](ctx, cl, &req)
	if err == nil {
		err = protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	}
	if err != nil {
		return err
	}
	rows := []listed{}
	for _, m := range r.Mirrors {
		if o.mirror == "" || o.mirror == m.MirrorName {
			rows = append(rows, listed{m.MirrorName, m.TopicCount, m.SourceClusterID, m.SourceBootstrap})
		}
	}
	if o.json {
		return writeJSON(out, rows)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, "No mirrors found.")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MIRROR\tTOPICS\tSOURCE-CLUSTER-ID\tSOURCE-BOOTSTRAP-SERVER")
	for _, m := range rows {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", m.Mirror, m.Topics, dash(m.ClusterID), dash(m.Bootstrap))
	}
	return w.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func number(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

type described struct {
	Mirror            string `json:"mirror"`
	Topic             string `json:"topic"`
	Partition         int32  `json:"partition"`
	SourceOffset      int64  `json:"sourceOffset"`
	DestinationOffset int64  `json:"destinationOffset"`
	Lag               int64  `json:"lag"`
	LagMs             int64  `json:"lagMs"`
	State             string `json:"state"`
	Detail            string `json:"detail,omitempty"`
	StateSince        int64  `json:"stateSince"`
	Leader            int32  `json:"leader"`
	LastMirrorEpoch   int32  `json:"lastMirrorEpoch"`
	LastMirrorOffset  int64  `json:"lastMirrorOffset"`
	RetryAttempt      int16  `json:"retryAttempt"`
	ErrorMessage      string `json:"errorMessage,omitempty"`
}

func (o *options) describe(ctx context.Context, cl *kgo.Client, out io.Writer) error {
	mirrors, err := o.fetch(ctx, cl)
	if err != nil {
		return err
	}
	match, err := config.ParsePattern(strings.Join(o.topics, ","))
	if err != nil {
		return usageError{err}
	}
	rows := []described{}
	for _, m := range mirrors {
		for _, t := range m.Topics {
			if len(o.topics) > 0 && !match.Match(t.TopicName) {
				continue
			}
			for _, p := range t.Partitions {
				if o.failed && coordinator.State(p.State) != coordinator.Failed {
					continue
				}
				lag := int64(-1)
				if p.SourceOffset >= 0 && p.DestinationOffset >= 0 {
					lag = max(p.SourceOffset-p.DestinationOffset, 0)
				}
				rows = append(rows, described{
					m.MirrorName, t.TopicName, p.PartitionIndex, p.SourceOffset, p.DestinationOffset, lag, p.LagMs,
					coordinator.State(p.State).String(), deref(p.Detail), p.StateSince, p.LeaderID,
					p.LastMirrorEpoch, p.LastMirrorOffset, p.RetryAttempt, deref(p.ErrorMessage),
				})
			}
		}
	}
	if o.json {
		return writeJSON(out, rows)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if o.failed {
		fmt.Fprintln(w, "MIRROR\tTOPIC\tPARTITION\tRETRY\tERROR")
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", r.Mirror, r.Topic, r.Partition, r.RetryAttempt, dash(r.ErrorMessage))
		}
		return w.Flush()
	}
	fmt.Fprintln(w, "MIRROR\tTOPIC\tPARTITION\tSOURCE-OFFSET\tDESTINATION-OFFSET\tLAG\tSTATE")
	for _, r := range rows {
		state := r.State
		if r.Detail != "" {
			state += " (" + r.Detail + ")"
		}
		if r.ErrorMessage != "" {
			state += ": " + r.ErrorMessage
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", r.Mirror, r.Topic, r.Partition, number(r.SourceOffset), number(r.DestinationOffset), number(r.Lag), state)
	}
	return w.Flush()
}

// verify compares the mirror's topics with the source. Partitions that were stopped are
// compared up to where the mirror ended: they may have been written to since.
func (o *options) verify(ctx context.Context, cl *kgo.Client, out, progress io.Writer) error {
	mirrors, err := o.fetch(ctx, cl)
	if err != nil {
		return err
	}
	match, err := config.ParsePattern(strings.Join(o.topics, ","))
	if err != nil {
		return usageError{err}
	}
	opts := verify.Options{UpTo: map[verify.TopicPartition]int64{}}
	bootstrap := o.sourceBootstrap
	var topics []string
	for _, m := range mirrors {
		if len(bootstrap) == 0 {
			bootstrap = config.SplitList(m.SourceBootstrap)
		}
		for _, t := range m.Topics {
			if len(o.topics) > 0 && !match.Match(t.TopicName) {
				continue
			}
			topics = append(topics, t.TopicName)
			for _, p := range t.Partitions {
				if coordinator.State(p.State) == coordinator.Stopped && p.LastMirrorOffset >= 0 {
					opts.UpTo[verify.TopicPartition{Topic: t.TopicName, Partition: p.PartitionIndex}] = p.LastMirrorOffset
				}
			}
		}
	}
	if len(topics) == 0 {
		return fmt.Errorf("mirror %s has no topics to compare", o.mirror)
	}
	src, err := dial(bootstrap, o.sourceConfig)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := dial(o.bootstrap, o.commandConfig)
	if err != nil {
		return err
	}
	defer dst.Close()
	if !o.quiet {
		last := time.Now()
		opts.Progress = func(p verify.Progress) {
			if time.Since(last) > time.Second {
				last = time.Now()
				fmt.Fprintf(progress, "%s-%d: %d of %d\n", p.Topic, p.Partition, p.At, p.End)
			}
		}
	}
	report, err := verify.Compare(ctx, src, dst, topics, opts)
	if o.json {
		err = errors.Join(err, writeJSON(out, report))
	} else {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "TOPIC\tPARTITION\tSTART\tEND\tBATCHES\tRECORDS\tRESULT")
		for _, p := range report.Partitions {
			result := "equal"
			switch {
			case p.Error != "":
				result = "not compared: " + p.Error
			case p.Difference != nil:
				result = fmt.Sprintf("DIFFERS at offset %d in %s: source %s, mirror %s", p.Difference.Offset, p.Difference.Field, p.Difference.Source, p.Difference.Mirror)
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%s\n", p.Topic, p.Partition, p.Start, p.End, p.Batches, p.Records, result)
		}
		err = errors.Join(err, w.Flush())
	}
	if err == nil && !report.Equal() {
		err = errors.New("the mirror differs from the source")
	}
	return err
}

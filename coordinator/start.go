package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// startRequest is StartMirrorTopics in this package's terms.
type startRequest struct {
	mirror           string
	topics           []string
	include, exclude []string
	allowTruncate    bool
	validateOnly     bool
}

// beginning is a topic that may start: what its record becomes.
type beginning struct {
	topic         string
	source        SourceTopic
	id            ids.UUID // this cluster's, zero for one that is adopted or created
	allowTruncate bool
	// otherSource says that the source's topic is another one than before: what is known of
	// the logs' common history is wrong now.
	otherSource bool
}

// apply returns the topic's record for a start; now is the one it has, or none.
func (b beginning) apply(mirror string, now Topic) Topic {
	// One that was stopped before its id was recorded has the lock, and its values are kept.
	again := now.Desired == Stopped && !now.TopicID.IsZero() || now.TopicID != b.id
	now.Mirror, now.Name = mirror, b.topic
	now.TopicID, now.SourceTopicID = b.id, b.source.ID
	now.Desired, now.Since = Mirroring, time.Now().UnixMilli()
	now.AllowTruncate, now.Fault, now.GiveUp = b.allowTruncate, "", nil
	if again {
		now.Wanted, now.Locked = nil, false // restored at stop; taken anew before the lock is set
	}
	if b.id.IsZero() {
		now.RealReplicas = nil
	}
	return now
}

// startTopics runs on the coordinator of the mirror's name. Nothing is changed for a
// topic that is refused; patterns are kept even if they match nothing yet.
func (c *Coordinator) startTopics(ctx context.Context, r startRequest) ([]TopicResult, error) {
	if err := c.act(ctx, r.mirror, func() error { return nil }); err != nil {
		return nil, err
	}
	m, src, cfg, err := c.sourceToStart(ctx, r)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	names, left, err := namesToStart(ctx, src, cfg, m, r)
	if err != nil {
		return nil, err
	}
	found, err := src.Topics(ctx, slices.DeleteFunc(slices.Clone(names), internalTopic))
	if err != nil {
		return nil, refuse(kerr.InvalidRequest.Code, "mirror %s: the source at %s: %v; nothing was changed", m.Name, strings.Join(cfg.Bootstrap, ","), err)
	}
	if err := c.askBefore(ctx, src, m, found); err != nil {
		return nil, err
	}
	results := make([]TopicResult, 0, len(names))
	var begin []beginning
	for _, n := range names {
		b, again, err := c.checkStart(ctx, m, n, found, r.allowTruncate)
		results = append(results, TopicResult{Name: n, Err: asError(err, kerr.UnknownServerError.Code)})
		if err == nil && !again {
			begin = append(begin, b)
		}
	}
	against, err := c.policiesAgainst(ctx, m, begin, r.validateOnly)
	if err != nil {
		return nil, err
	}
	begin = slices.DeleteFunc(begin, func(b beginning) bool { return against[b.topic] != nil })
	var literal []string
	for i, t := range results {
		if t.Err == nil {
			results[i].Err = against[t.Name]
		}
		if results[i].Err == nil && slices.Contains(r.topics, t.Name) {
			literal = append(literal, t.Name)
		}
	}
	if r.validateOnly {
		c.preview(ctx, m, begin, results)
		results = append(results, left[:min(len(left), MaxSkips)]...)
		slices.SortFunc(results, func(a, b TopicResult) int { return strings.Compare(a.Name, b.Name) })
		return results, nil
	}
	refused, err := c.begin(ctx, m.Name, begin, func(now Mirror) (config.Properties, error) { return c.withPatterns(now, r, literal) })
	if err != nil {
		return nil, err
	}
	for i := range results {
		if e := refused[results[i].Name]; e != nil {
			results[i].Err = e
		}
	}
	return results, nil
}

// sourceOf opens the source of a mirror, which is still the cluster that the mirror was created for: a
// wrong one behind the address must be found before anything is compared with it.
func (c *Coordinator) sourceOf(ctx context.Context, m Mirror) (Source, *config.Mirror, error) {
	src, cfg, err := c.source(m)
	if err != nil {
		return nil, nil, err
	}
	id, err := src.ClusterID(ctx)
	switch {
	case err != nil:
		err = refuse(kerr.InvalidRequest.Code, "mirror %s: the source at %s does not answer: %v; nothing was changed", m.Name, strings.Join(cfg.Bootstrap, ","), err)
	case id != m.SourceClusterID:
		err = refuse(kerr.InvalidRequest.Code, "mirror %s: %s is cluster %s now, the mirror was created for %s; nothing was changed", m.Name, strings.Join(cfg.Bootstrap, ","), id, m.SourceClusterID)
	}
	if err != nil {
		src.Close()
		return nil, nil, err
	}
	return src, cfg, nil
}

// namesToStart returns the topics that a start means, in order, and what is said of others that its
// patterns match. cfg is the mirror's configuration with those patterns.
func namesToStart(ctx context.Context, src Source, cfg *config.Mirror, m Mirror, r startRequest) (names []string, left []TopicResult, err error) {
	names = slices.Clone(r.topics)
	if len(r.include) > 0 {
		all, err := src.List(ctx)
		if err != nil {
			return nil, nil, refuse(kerr.InvalidRequest.Code, "mirror %s: the source at %s does not answer: %v; nothing was changed", m.Name, strings.Join(cfg.Bootstrap, ","), err)
		}
		include, err := config.ParsePattern(config.JoinList(r.include))
		if err != nil {
			return nil, nil, refuse(kerr.InvalidRequest.Code, "mirror %s: %v", m.Name, err)
		}
		for _, t := range all {
			switch {
			case !include.Match(t.Name) || slices.Contains(r.topics, t.Name):
			case internalTopic(t.Name):
				left = append(left, TopicResult{Name: t.Name, Skipped: true, Note: "would be left out: it is internal to Kafka, and never mirrored"})
			case cfg.TopicsExclude.Match(t.Name):
				by := matching(config.SplitList(cfg.TopicsExclude.String()), t.Name)
				left = append(left, TopicResult{Name: t.Name, Skipped: true, Note: fmt.Sprintf("would be left out: excluded by the pattern %q", by)})
			default:
				names = append(names, t.Name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > maxTopicsPerRequest {
		return nil, nil, refuse(kerr.InvalidRequest.Code, "mirror %s: %d topics in one request, at most %d", m.Name, len(names), maxTopicsPerRequest)
	}
	return names, left, nil
}

// startMeans returns the topics that a start means. Whoever is asked finds that out, wherever the mirror
// is coordinated: it takes what is on record and the source's list, and nobody's opinion of a topic.
func (c *Coordinator) startMeans(ctx context.Context, r startRequest) ([]string, error) {
	if err := c.barrier(ctx, r.mirror); err != nil {
		return nil, asError(err, kerr.CoordinatorNotAvailable.Code)
	}
	m, src, cfg, err := c.sourceToStart(ctx, r)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	names, _, err := namesToStart(ctx, src, cfg, m, r)
	return names, err
}

// sourceToStart opens the source of the mirror that a start is for, and returns the mirror as it would be with
// the start's patterns.
func (c *Coordinator) sourceToStart(ctx context.Context, r startRequest) (Mirror, Source, *config.Mirror, error) {
	m, err := c.mirror(r.mirror)
	if err != nil {
		return m, nil, nil, err
	}
	if m.Configs, err = c.withPatterns(m, r, nil); err != nil {
		return m, nil, nil, err
	}
	src, cfg, err := c.sourceOf(ctx, m)
	return m, src, cfg, err
}

// withPatterns returns a mirror's configuration with a start's patterns in it, checked.
func (c *Coordinator) withPatterns(m Mirror, r startRequest, started []string) (config.Properties, error) {
	next := startPatterns(m.Configs, r.include, r.exclude, started)
	if _, err := config.ParseMirror(next); err != nil {
		return nil, refuse(kerr.InvalidRequest.Code, "mirror %s: %v", m.Name, err)
	}
	return next, nil
}

// begin writes what starts: the mirror's configuration if it changes, then the topics. It
// returns those that something else happened to since they were checked, and those that
// have to be started once more.
func (c *Coordinator) begin(ctx context.Context, mirror string, begin []beginning, configs func(Mirror) (config.Properties, error)) (map[string]*Error, error) {
	refused := map[string]*Error{}
	if len(begin) > 0 {
		// Another mirror may have started one of them, at another sidecar.
		if err := c.readAll(ctx); err != nil {
			return nil, fmt.Errorf("mirror %s: start topics: %w", mirror, err)
		}
	}
	var started []Topic
	err := c.act(ctx, mirror, func() error {
		clear(refused)
		started = nil
		m, err := c.mirror(mirror)
		if err != nil {
			return err
		}
		var forget, records []record
		if configs != nil {
			next, err := configs(m)
			if err != nil {
				return err
			}
			if !maps.Equal(next, m.Configs) {
				m.Configs = next
				records = append(records, record{kind: kindMirror, mirror: mirror, value: m})
			}
		}
		for _, b := range begin {
			now, how, e := c.decide(mirror, b.topic, VerbStart)
			if e != nil || how == Done {
				if e != nil {
					refused[b.topic] = e
				}
				continue
			}
			t := b.apply(mirror, now)
			if b.otherSource {
				for _, k := range c.view.partitionKeys(mirror) {
					if k.tp.TopicID == now.TopicID {
						forget = append(forget, record{kind: kindLineage, partition: k})
					}
				}
			}
			records = append(records, record{kind: kindTopic, topic: topicKey{mirror, b.topic}, value: t})
			started = append(started, t)
		}
		// What is wrong now must be gone before anybody leads.
		for _, part := range [][]record{forget, records} {
			for chunk := range slices.Chunk(part, maxRecordsPerPut) {
				if err := c.store.PutAs(ctx, mirror, chunk...); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("mirror %s: start topics: %w", mirror, err)
	}
	for _, t := range started {
		c.log.Info("mirror topic started", "mirror", mirror, "topic", t.Name)
		if err := c.retryFailed(ctx, t, VerbStart); err != nil {
			refused[t.Name] = notRetried(t, "start", err)
		}
	}
	if len(started) > 0 {
		c.requestRefresh(mirror)
	}
	return refused, nil
}

// checkStart decides whether one topic may start. again says that it runs already.
func (c *Coordinator) checkStart(ctx context.Context, m Mirror, name string, found map[string]SourceTopic, allowTruncate bool) (b beginning, again bool, err error) {
	if internalTopic(name) {
		return b, false, refuse(kerr.InvalidTopicException.Code, "topic %s is internal to Kafka and is never mirrored", name)
	}
	known, how, refused := c.decide(m.Name, name, VerbStart)
	switch {
	case refused != nil:
		return b, false, refused
	case how == Done:
		return b, true, nil
	}
	exclude := startPatterns(m.Configs, nil, nil, []string{name})
	if p := matching(listOf(exclude, config.TopicsExcludeKey), name); p != "" {
		return b, false, refuse(kerr.InvalidRequest.Code, "topic %s is excluded by the pattern %q of mirror %s; take it out of %s first", name, p, m.Name, config.TopicsExcludeKey)
	}
	source, ok := found[name]
	if !ok {
		return b, false, refuse(kerr.UnknownTopicOrPartition.Code, "topic %s does not exist at the source of mirror %s (%s)", name, m.Name, m.Configs["bootstrap.servers"])
	}
	if source.Err != nil {
		return b, false, refuse(codeOf(source.Err), "topic %s at the source of mirror %s: %v", name, m.Name, source.Err)
	}
	was := known.Name != ""
	b = beginning{topic: name, source: source, allowTruncate: allowTruncate}
	b.otherSource = was && !known.SourceTopicID.IsZero() && !source.ID.IsZero() && source.ID != known.SourceTopicID
	if b.otherSource && known.Desired != Stopped {
		// Whoever leads it now goes by what the former topic's log looked like.
		return b, false, refuse(protocol.MirrorTopicNotStopped, "topic %s was created anew at the source of mirror %s; stop it, then start it again, with --allow-truncate to give up what is here", name, m.Name)
	}
	id, exists := c.img.Topic(name)
	if !exists {
		return b, false, nil
	}
	mine := was && known.TopicID == id && !b.otherSource
	// What is ours and has fewer partitions than the source grows once it runs.
	if n := len(c.img.TopicPartitions(id)); n != int(source.Partitions) && (!mine || n > int(source.Partitions)) {
		return b, false, refuse(kerr.InvalidPartitions.Code, "topic %s has %d partitions here and %d at the source of mirror %s; delete it here, or make the numbers equal", name, n, source.Partitions, m.Name)
	}
	if v := c.img.TopicConfig(name)[configRemoteStorage]; v == "true" {
		return b, false, refuse(kerr.InvalidConfig.Code, "topic %s has remote.storage.enable=true here; tiered topics cannot be mirror topics", name)
	}
	if mine {
		b.id = id
		return b, false, nil
	}
	if allowTruncate || source.linked {
		return b, false, nil // compared once it is led: only what differs would have to go
	}
	n, err := c.deps.Destination.records(ctx, name)
	if err != nil {
		return b, false, refuse(kerr.InvalidRequest.Code, "topic %s exists here and what it holds is not known: %v", name, err)
	}
	if n > 0 {
		return b, false, refuse(kerr.InvalidRequest.Code, "topic %s exists here with %d records that mirror %s did not write; delete the topic, or allow truncation (--allow-truncate) to give up what differs from the source", name, n, m.Name)
	}
	return b, false, nil
}

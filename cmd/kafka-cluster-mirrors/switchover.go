package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// switchover moves topics to this cluster without losing a record: no writes, nothing left
// to copy, offsets of groups, stop. Up to the stop nothing is changed that does not end by itself.
type switchover struct {
	o        *options
	cl       *kgo.Client // sidecars here
	src      *kgo.Client
	srcAdmin *kadm.Client
	out      io.Writer
	p        *progress

	moving []string // topics that are still mirrored
	ended  []string // topics whose stop was asked for in an earlier run
	moved  []string // groups whose offsets were committed here
	fence  *fence   // nil without sidecars at the source

	report switchoverReport
}

// switchoverReport is the answer in JSON.
type switchoverReport struct {
	Mirror string   `json:"mirror"`
	Topics []string `json:"topics"`
	// Found are topics that the mirror began meanwhile, and goes on with.
	Found  []string         `json:"found,omitempty"`
	Fenced bool             `json:"fenced"`
	Steps  []switchoverStep `json:"steps"`
	Groups []groupOutcome   `json:"groups"`
	Done   bool             `json:"done"`
	DryRun bool             `json:"dryRun,omitempty"`
}

type switchoverStep struct {
	Step string `json:"step"` // check, fence, drain, groups, stop, keep-fence
	Text string `json:"text"`
}

func (o *options) switchover(ctx context.Context, cl *kgo.Client, out io.Writer, p *progress) error {
	s := &switchover{o: o, cl: cl, out: out, p: p}
	s.report = switchoverReport{Mirror: o.mirror, Topics: []string{}, Steps: []switchoverStep{}, Groups: []groupOutcome{}, DryRun: o.dryRun}
	within, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	err := s.run(within)
	p.end()
	switch {
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("interrupted: %w", err)
	case err != nil && within.Err() != nil:
		err = timeoutError{fmt.Errorf("not done within %s: %w", o.timeout, err)}
	}
	if err != nil {
		err = fmt.Errorf("switchover of mirror %s: %w", o.mirror, err)
	}
	s.report.Done = err == nil && !o.dryRun
	if o.json {
		return errors.Join(err, writeJSON(out, s.report))
	}
	if s.report.Done {
		fmt.Fprintf(out, "Switchover of mirror %s done.\n", o.mirror)
	}
	return err
}

func (s *switchover) run(ctx context.Context) error {
	m, err := s.describe(ctx)
	if err != nil {
		return err
	}
	if err := s.check(m); err != nil {
		return err
	}
	if len(s.moving)+len(s.ended) > 0 && len(s.moving) == 0 {
		s.step("groups", "moved by the run that asked for the stop")
		if err := s.stop(ctx); err != nil {
			return err
		}
		return s.newcomers(ctx)
	}
	if s.src, err = s.o.dialSource(m.SourceBootstrap); err != nil {
		return err
	}
	defer s.src.Close()
	s.srcAdmin = kadm.NewClient(s.src)
	if err := s.checkSource(ctx, m); err != nil {
		return err
	}
	if s.o.dryRun {
		return s.plan(ctx, m)
	}
	if err := s.raiseFence(ctx); err != nil {
		return err
	}
	defer s.fence.end()
	asked, err := s.move(ctx)
	if err == nil {
		return s.newcomers(ctx)
	}
	if !asked {
		return errors.Join(err, s.undo(ctx))
	}
	return fmt.Errorf("%w; the stop goes on by itself, repeat this command to see it through; writes at the source stay refused until the fence ends", err)
}

// step says that something is done.
func (s *switchover) step(name, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.report.Steps = append(s.report.Steps, switchoverStep{name, text})
	s.p.end()
	if !s.o.json {
		fmt.Fprintf(s.out, "%s: %s\n", name, text)
	}
}

// list says where groups stood and stand.
func (s *switchover) list(moves groupMoves) error {
	if s.o.json {
		return nil // the report does
	}
	return moves.write(s.out)
}

func (s *switchover) describe(ctx context.Context) (protocol.DescribedMirror, error) {
	mirrors, err := s.o.fetchMirrors(ctx, s.cl)
	if err != nil {
		return protocol.DescribedMirror{}, err
	}
	return mirrors[0], nil
}

// check sorts the topics, and refuses while one is neither mirrored nor stopped.
func (s *switchover) check(m protocol.DescribedMirror) error {
	pick, err := newSelector(s.o.topics)
	if err != nil {
		return usageError{err}
	}
	var wrong []string
	partitions := 0
	found := map[string]bool{}
	for _, t := range m.Topics {
		if !pick.match(t.TopicName) {
			continue
		}
		found[t.TopicName] = true
		ended := true
		for _, p := range t.Partitions {
			switch coordinator.State(p.State) {
			case coordinator.Mirroring:
				ended = false
			case coordinator.Stopping, coordinator.Stopped:
			default:
				ended = false
				wrong = append(wrong, fmt.Sprintf("%s-%d is %s", t.TopicName, p.PartitionIndex, stateText(p)))
			}
		}
		switch {
		case len(t.Partitions) == 0:
			wrong = append(wrong, "topic "+t.TopicName+" is not created here yet")
		case ended:
			s.ended = append(s.ended, t.TopicName)
		default:
			s.moving = append(s.moving, t.TopicName)
			partitions += len(t.Partitions)
		}
	}
	for n := range pick.names {
		if !found[n] {
			wrong = append(wrong, "topic "+n+" is not in the mirror")
		}
	}
	slices.Sort(wrong)
	if len(wrong) > 0 {
		const shown = 10
		more := ""
		if len(wrong) > shown {
			wrong, more = wrong[:shown], fmt.Sprintf(" and %d more", len(wrong)-shown)
		}
		return fmt.Errorf("nothing was changed: %s%s; all topics have to be MIRRORING (--resume or --recover them, or choose others with --topics)", strings.Join(wrong, ", "), more)
	}
	if len(found) == 0 {
		return fmt.Errorf("no topic of the mirror matches; nothing was changed")
	}
	s.report.Topics = slices.Concat(s.moving, s.ended)
	slices.Sort(s.report.Topics)
	text := fmt.Sprintf("%s with %s MIRRORING", plural(len(s.moving), "topic"), plural(partitions, "partition"))
	if len(s.ended) > 0 {
		text += fmt.Sprintf(", %d stopped or stopping already", len(s.ended))
	}
	s.step("check", "%s", text)
	return nil
}

// checkSource makes sure that the address is the mirror's source, and asks whether sidecars stand there.
func (s *switchover) checkSource(ctx context.Context, m protocol.DescribedMirror) error {
	about, err := s.srcAdmin.BrokerMetadata(ctx)
	if err != nil {
		return fmt.Errorf("nothing was changed: the source does not answer: %w; if it is lost, use --stop", err)
	}
	if m.SourceClusterID != "" && about.Cluster != m.SourceClusterID {
		return fmt.Errorf("nothing was changed: the source's address is cluster %s, the mirror's source is %s", about.Cluster, m.SourceClusterID)
	}
	has, err := canFence(ctx, s.src)
	if err != nil {
		return fmt.Errorf("nothing was changed: ask the source for its APIs: %w", err)
	}
	if has {
		s.fence = newFence(s.src, s.moving, s.o.lease)
	}
	return nil
}

// plan says what would be done.
func (s *switchover) plan(ctx context.Context, m protocol.DescribedMirror) error {
	if s.fence != nil {
		s.step("fence", "writes to %s at the source would be refused", plural(len(s.moving), "topic"))
	} else {
		s.step("fence", "none: no sidecars stand before the source; its writers must be stopped first")
	}
	left, err := s.left(ctx, m)
	if err != nil {
		return err
	}
	s.step("drain", "%s", left.text())
	if s.o.skipGroups {
		s.step("groups", "would be left alone")
	} else {
		moves, err := s.planGroups(ctx)
		if err != nil {
			return err
		}
		s.report.Groups = moves.outcomes()
		s.step("groups", "%s", moves.text("would be moved"))
		if err := s.list(moves); err != nil {
			return err
		}
	}
	s.step("stop", "%s would be stopped", plural(len(s.moving), "topic"))
	return nil
}

func (s *switchover) raiseFence(ctx context.Context) error {
	if s.fence == nil {
		s.step("fence", "none: no sidecars stand before the source; writers must be stopped now, or records that they write from now on may be lost")
		return nil
	}
	if err := s.fence.begin(ctx); err != nil {
		return errors.Join(fmt.Errorf("fence writes at the source: %w", err), s.undo(ctx))
	}
	s.report.Fenced = true
	s.step("fence", "writes to %s are refused at the source", plural(len(s.moving), "topic"))
	return nil
}

// changed says what undo leaves as it is: offsets of groups are not put back, since a repeated
// run sets them again.
func (s *switchover) changed() string {
	if len(s.moved) == 0 {
		return "nothing was changed"
	}
	return fmt.Sprintf("offsets were committed here for %s: %s; nothing else was changed", plural(len(s.moved), "group"), strings.Join(s.moved, ", "))
}

// undo lets writers at the source go on, also when the command was interrupted.
func (s *switchover) undo(ctx context.Context) error {
	if s.fence == nil {
		return errors.New(s.changed())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := s.fence.lift(ctx); err != nil {
		if !s.fence.up() {
			return fmt.Errorf("%s; where writes are refused already, they are allowed again within %s", s.changed(), s.o.lease)
		}
		return fmt.Errorf("%s, but writes at the source stay refused for up to %s: %w", s.changed(), s.o.lease, err)
	}
	return fmt.Errorf("%s, and writes at the source are allowed again", s.changed())
}

// move does what follows the fence. asked says that the stop has been asked for, after
// which there is no way back.
func (s *switchover) move(ctx context.Context) (asked bool, err error) {
	if err := s.drain(ctx); err != nil {
		return false, err
	}
	var moves groupMoves
	if !s.o.skipGroups {
		if moves, err = s.planGroups(ctx); err != nil {
			return false, err
		}
		s.report.Groups = moves.outcomes()
	}
	// The fence must have held until here, or something may have been written meanwhile. It is
	// asked for before the offsets too: nothing is committed for a switchover that is given up.
	if err := s.fenceHeld(ctx); err != nil {
		return false, err
	}
	if s.o.skipGroups {
		s.step("groups", "left alone")
	} else {
		err := s.moveGroups(ctx, moves)
		s.report.Groups = moves.outcomes()
		if err != nil {
			return false, err
		}
		s.step("groups", "%s", moves.text("moved"))
		if err := s.list(moves); err != nil {
			return false, err
		}
		if err := s.fenceHeld(ctx); err != nil {
			return false, err
		}
	}
	if err := s.stop(ctx); err != nil {
		return true, err
	}
	return true, s.keepFence(ctx)
}

func (s *switchover) fenceHeld(ctx context.Context) error {
	if s.fence == nil {
		return nil
	}
	return s.fence.held(ctx)
}

// drain waits until the source stands still and all of it is here.
func (s *switchover) drain(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var before *remaining
	var since time.Time
	for {
		m, err := s.describe(ctx)
		var now *remaining
		if err == nil {
			now, err = s.left(ctx, m)
		}
		switch {
		case err != nil && ctx.Err() == nil:
			var gone *stateError
			if errors.As(err, &gone) {
				return err
			}
			s.p.show(err.Error())
			before = nil
		case err == nil && (before == nil || !now.sameEnds(before) || !now.none()):
			before, since = now, time.Now()
			s.p.show(now.text())
		case err == nil && time.Since(since) >= s.o.quietPeriod:
			s.step("drain", "source and mirror end at the same offsets, no transaction is open, nothing was written for %s", s.o.quietPeriod)
			return nil
		}
		select {
		case <-ctx.Done():
			if before != nil {
				return fmt.Errorf("%s", before.text())
			}
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// stop asks for the stop and waits for it.
func (s *switchover) stop(ctx context.Context) error {
	topics := s.report.Topics
	if s.o.dryRun {
		s.step("stop", "asked for already")
		return nil
	}
	if len(s.moving) > 0 {
		// By name: patterns would also stop what was found since, which nothing was done for.
		req := protocol.NewStopMirrorTopicsRequest()
		req.MirrorName, req.Topics = s.o.mirror, s.moving
		r, err := ask[*protocol.StopMirrorTopicsResponse](ctx, s.cl, &req)
		if err != nil {
			return err
		}
		for _, t := range r.Topics {
			if err := protocol.ErrorForCode(t.ErrorCode, t.ErrorMessage); err != nil {
				return fmt.Errorf("stop topic %s: %w", t.Name, err)
			}
		}
	}
	w := &waiter{action: "stop", topics: topics}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if m, err := s.describe(ctx); err == nil {
			line, done, err := w.look(m)
			if err != nil {
				return err
			}
			s.p.show(line)
			if done {
				ended, err := s.endDiscovery(ctx)
				if err != nil {
					return err
				}
				s.step("stop", "%s %s STOPPED and writable here%s", plural(len(topics), "topic"), isAre(len(topics)), ended)
				return nil
			}
		} else if ctx.Err() == nil {
			s.p.show(err.Error())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// endDiscovery takes the patterns away by which the mirror finds topics, if all of it moves:
// what appears at the old source later is not for this cluster any more. It returns what is to
// be said of that.
func (s *switchover) endDiscovery(ctx context.Context) (string, error) {
	const key = "mirror.topics.include"
	if len(s.o.topics) > 0 {
		return "", nil
	}
	rows, err := s.o.fetchConfigs(ctx, s.cl, key)
	if err != nil {
		return "", fmt.Errorf("by which patterns the mirror finds topics: %w", err)
	}
	if !slices.ContainsFunc(rows, func(r configRow) bool { return r.Name == key && len(config.SplitList(deref(r.Value))) > 0 }) {
		return "", nil
	}
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op = key, kmsg.IncrementalAlterConfigOpDelete
	if err := s.o.alterConfigs(ctx, s.cl, []kmsg.IncrementalAlterConfigsRequestResourceConfig{c}); err != nil {
		return "", fmt.Errorf("the topics are stopped, but the mirror goes on to look for new ones: delete %s: %w", key, err)
	}
	return "; new topics are not looked for any more", nil
}

// newcomers are topics that the mirror began since the check. They were not waited for, and
// are not moved: nobody has held their writers back.
func (s *switchover) newcomers(ctx context.Context) error {
	if len(s.o.topics) > 0 {
		return nil
	}
	m, err := s.describe(ctx)
	if err != nil {
		return fmt.Errorf("%s moved; whether the mirror has begun others meanwhile is not known: %w", plural(len(s.report.Topics), "topic"), err)
	}
	for _, t := range m.Topics {
		over := len(t.Partitions) > 0
		for _, p := range t.Partitions {
			if state := coordinator.State(p.State); state != coordinator.Stopping && state != coordinator.Stopped {
				over = false
			}
		}
		if !over && !slices.Contains(s.report.Topics, t.TopicName) {
			s.report.Found = append(s.report.Found, t.TopicName)
		}
	}
	if len(s.report.Found) == 0 {
		return nil
	}
	return fmt.Errorf("%s moved, but not all of the mirror: meanwhile it has found %s, which it goes on mirroring; repeat this command to move that too",
		plural(len(s.report.Topics), "topic"), some(s.report.Found))
}

// keepFence leaves writers at the source time to come here.
func (s *switchover) keepFence(ctx context.Context) error {
	switch {
	case s.fence == nil:
		s.step("keep-fence", "nothing refuses writes at the source: keep its writers stopped and start them here")
		return nil
	case s.o.keepFence == 0: // lift ends it
		if err := s.fence.lift(ctx); err != nil {
			return err
		}
		s.step("keep-fence", "writes at the source are allowed again; start writers here")
		return nil
	}
	s.fence.end() // or it would be prolonged to less
	if err := s.fence.extend(ctx, s.o.keepFence); err != nil {
		return fmt.Errorf("keep writes at the source refused: %w", err)
	}
	s.step("keep-fence", "writes at the source stay refused for %s; start writers here until then", s.o.keepFence)
	return nil
}

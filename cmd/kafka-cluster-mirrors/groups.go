package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/syncs/offsets"
)

// The keys of a mirror that say which groups it means.
const (
	groupsIncludeKey = config.GroupsIncludeKey
	groupsExcludeKey = "mirror.groups.exclude"
	groupsPolicyKey  = "mirror.policy.groups"
)

// groupOutcome is what became of one group of the source.
type groupOutcome struct {
	Group      string        `json:"group"`
	Type       string        `json:"type"`
	Partitions int           `json:"partitions"`
	Skipped    string        `json:"skipped,omitempty"` // why
	Offsets    []groupOffset `json:"offsets,omitempty"`
}

// groupOffset is where a group stands in a partition here; -1 is nowhere.
type groupOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Source    int64  `json:"source"`
	Before    int64  `json:"before"`
	After     int64  `json:"after"`
	Kept      string `json:"kept,omitempty"` // why it was not moved
}

// groupMove is a group's offsets as they shall be here.
type groupMove struct {
	groupOutcome
	plan offsets.Plan
}

// leftToStop tells whether all of it is for the mirror to decide.
func (m groupMove) leftToStop() bool {
	return len(m.plan.Moves)+len(m.plan.Same) == 0 && slices.ContainsFunc(m.plan.Kept, func(k offsets.Kept) bool { return k.Reason == leftToStop })
}

type groupMoves []groupMove

func (g groupMoves) outcomes() []groupOutcome {
	out := []groupOutcome{}
	for _, m := range g {
		out = append(out, m.groupOutcome)
	}
	return out
}

func (g groupMoves) text(verb string) string {
	var moved, left int
	var skipped []string
	for _, m := range g {
		switch {
		case m.Skipped != "":
			skipped = append(skipped, fmt.Sprintf("%s (%s)", m.Group, m.Skipped))
		case m.leftToStop():
			left++
		default:
			moved++
		}
	}
	text := fmt.Sprintf("offsets of %s %s", plural(moved, "group"), verb)
	if left > 0 {
		text += fmt.Sprintf("; left to the mirror, which looks as it stops whether they were deleted here: %s", plural(left, "group"))
	}
	if len(skipped) > 0 {
		text += "; skipped: " + strings.Join(skipped, ", ")
	}
	return text
}

// write lists where groups stood and stand, as far as anybody reads.
func (g groupMoves) write(out io.Writer) error {
	const shown = 40
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows := 0
	for _, m := range g {
		for _, o := range m.Offsets {
			if rows++; rows > shown {
				continue
			}
			if rows == 1 {
				fmt.Fprintln(w, "  GROUP\tTOPIC\tPARTITION\tSOURCE\tBEFORE\tAFTER\tKEPT")
			}
			fmt.Fprintf(w, "  %s\t%s\t%d\t%d\t%s\t%s\t%s\n", m.Group, o.Topic, o.Partition, o.Source, offsetText(o.Before), offsetText(o.After), dash(o.Kept))
		}
	}
	if rows > shown {
		fmt.Fprintf(w, "  and %d more; --json lists all\n", rows-shown)
	}
	return w.Flush()
}

func offsetText(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// groupFilter tells which groups the mirror's configuration means. ours is false if other policies
// than the built-in one decide on that.
func (s *switchover) groupFilter(ctx context.Context) (include, exclude config.Pattern, ours bool, err error) {
	rows, err := s.o.fetchConfigs(ctx, s.cl, groupsIncludeKey, groupsExcludeKey, groupsPolicyKey)
	if err != nil {
		return include, exclude, false, fmt.Errorf("which groups the mirror means: %w", err)
	}
	values := map[string]string{}
	for _, r := range rows {
		if r.Value != nil {
			values[r.Name] = *r.Value
		}
	}
	if include, err = config.ParsePattern(values[groupsIncludeKey]); err != nil {
		return include, exclude, false, err
	}
	exclude, err = config.ParsePattern(values[groupsExcludeKey])
	return include, exclude, policy.BuiltInOnly(values, policy.Groups), err
}

// planGroups reads the groups of the source and what they would be here.
func (s *switchover) planGroups(ctx context.Context) (groupMoves, error) {
	include, exclude, ours, err := s.groupFilter(ctx)
	if err != nil {
		return nil, err
	}
	listed, err := offsets.List(ctx, s.src, nil)
	if err != nil {
		return nil, fmt.Errorf("groups of the source: %w", err)
	}
	source, err := fetchOffsets(ctx, s, listed, func(name string) bool {
		return listed[name].Type != offsets.Streams && include.Match(name) && !exclude.Match(name)
	})
	if err != nil || len(source) == 0 {
		return nil, err
	}
	ranges, err := offsets.Ranges(ctx, s.cl, s.moving)
	if err != nil {
		return nil, fmt.Errorf("what is mirrored here: %w", err)
	}
	here, err := s.groupsHere(ctx, source)
	if err != nil {
		return nil, err
	}
	known, err := s.knownHere(ctx)
	if err != nil {
		return nil, err
	}
	var moves groupMoves
	for _, g := range source {
		plan := offsets.PlanGroup(offsets.Facts{
			Source: g, Here: here[g.Name], Ranges: ranges, Removed: func(string) bool { return known.deleted[g.Name] },
		})
		known.leave(&plan)
		if plan.Outside() {
			continue // it reads other topics
		}
		if !ours && plan.Skipped == "" {
			plan.Skipped = "left to " + groupsPolicyKey + ", which the mirror asks when it stops"
		}
		moves = append(moves, groupMove{outcomeOf(plan), plan})
	}
	return moves, moves.findEpochs(ctx, s, ranges)
}

// leftToStop is why nothing is committed where a group has nothing here: whether that was deleted is on
// the mirror's record, and decided by it as it stops.
const leftToStop = "left to the mirror, which looks as it stops whether its offsets were deleted here"

// hereKnown is what the mirror tells of where groups have nothing here.
type hereKnown struct {
	none    bool            // it tells nothing, or not all
	deleted map[string]bool // groups that have had offsets deleted
	other   map[string]bool // groups of which it tells something else, which may hide that
}

// knownHere asks what the mirror knows. What it tells is bounded, and made anew by whoever coordinates
// it: before that, and where it is cut, nothing says that a group was not deleted.
func (s *switchover) knownHere(ctx context.Context) (hereKnown, error) {
	m, err := s.describe(ctx)
	if err != nil {
		return hereKnown{}, fmt.Errorf("which groups were deleted here: %w", err)
	}
	k := hereKnown{none: true, deleted: map[string]bool{}, other: map[string]bool{}}
	for _, p := range m.Policies {
		if p.Kind != string(policy.Groups) {
			continue
		}
		k.none = p.LastRunMs <= 0 || p.LastError != nil || len(p.Skipped) >= coordinator.MaxSkips
		for _, skip := range p.Skipped {
			if strings.Contains(skip.Reason, offsets.DeletedHere) {
				k.deleted[skip.Name] = true
			} else {
				k.other[skip.Name] = true
			}
		}
		if k.none {
			break
		}
	}
	return k, nil
}

// leave takes out of a plan what is for the mirror to decide.
func (k hereKnown) leave(p *offsets.Plan) {
	if !k.none && !k.other[p.Group.Name] {
		return
	}
	p.Moves = slices.DeleteFunc(p.Moves, func(m offsets.Move) bool {
		if m.From >= 0 {
			return false
		}
		p.Kept = append(p.Kept, offsets.Kept{Partition: m.Partition, Here: -1, Reason: leftToStop})
		return true
	})
}

// fetchOffsets returns the groups that are picked, with their offsets, in order.
func fetchOffsets(ctx context.Context, s *switchover, listed map[string]offsets.Group, pick func(name string) bool) ([]offsets.Group, error) {
	var picked []offsets.Group
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if pick(name) {
			picked = append(picked, listed[name])
		}
	}
	source, failed := offsets.Fetch(ctx, s.src, picked)
	return source, firstOf(failed, "at the source")
}

// groupsHere returns the groups here of the same names as those of the source.
func (s *switchover) groupsHere(ctx context.Context, source []offsets.Group) (map[string]offsets.Group, error) {
	here, err := offsets.List(ctx, s.cl, nil)
	if err != nil {
		return nil, fmt.Errorf("groups here: %w", err)
	}
	var ask []offsets.Group
	for _, g := range source {
		// Of another type it has no offsets that could be compared.
		if h, ok := here[g.Name]; ok && h.Type != offsets.Streams && (h.Type == offsets.Share) == (g.Type == offsets.Share) {
			ask = append(ask, h)
		}
	}
	filled, failed := offsets.Fetch(ctx, s.cl, ask)
	for _, g := range filled {
		here[g.Name] = g
	}
	return here, firstOf(failed, "here")
}

func firstOf(failed map[string]error, where string) error {
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		return fmt.Errorf("offsets of group %s %s: %w", name, where, failed[name])
	}
	return nil
}

func outcomeOf(p offsets.Plan) groupOutcome {
	out := groupOutcome{Group: p.Group.Name, Type: string(p.Group.Type), Skipped: p.Skipped}
	add := func(tp offsets.Partition, before, after int64, kept string) {
		out.Offsets = append(out.Offsets, groupOffset{tp.Topic, tp.Partition, p.Group.Positions[tp].At, before, after, kept})
	}
	for _, m := range slices.Concat(p.Moves, p.Same) {
		after := m.To
		if p.Skipped != "" {
			after = m.From
		}
		add(m.Partition, m.From, after, "")
	}
	for _, k := range p.Kept {
		add(k.Partition, k.Here, k.Here, k.Reason)
	}
	slices.SortFunc(out.Offsets, func(a, b groupOffset) int {
		return offsets.Partition{Topic: a.Topic, Partition: a.Partition}.Compare(offsets.Partition{Topic: b.Topic, Partition: b.Partition})
	})
	out.Partitions = len(out.Offsets)
	return out
}

// findEpochs gives the moves their leader epochs. Without one an offset is as good for any consumer
// that has not to notice a lost record.
func (g groupMoves) findEpochs(ctx context.Context, s *switchover, ranges map[offsets.Partition]offsets.Range) error {
	var moves []*offsets.Move
	for i := range g {
		for j := range g[i].plan.Moves {
			moves = append(moves, &g[i].plan.Moves[j])
		}
	}
	if err := offsets.Epochs(ctx, s.cl, ranges, moves); err != nil {
		s.p.show(fmt.Sprintf("some offsets are committed without a leader epoch: %v", err))
	}
	return ctx.Err()
}

func (s *switchover) moveGroups(ctx context.Context, moves groupMoves) error {
	var errs []error
	for i := range moves {
		m := &moves[i]
		if m.Skipped != "" || len(m.plan.Moves) == 0 {
			continue
		}
		s.p.show("moving the offsets of group " + m.Group)
		if why := s.lookAgain(ctx, m); why != nil {
			m.took(nil)
			errs = append(errs, fmt.Errorf("offsets of group %s here: %w (--skip-groups leaves groups alone)", m.Group, why))
			continue
		}
		m.kept()
		if len(m.plan.Moves) == 0 {
			continue
		}
		done, err := offsets.Commit(ctx, s.cl, m.plan.Group, m.plan.Moves)
		m.took(done)
		if errors.Is(err, offsets.ErrActive) {
			m.Skipped = err.Error() // its consumers are here by now, and go on where they are
			continue
		}
		// After an error too: some of it may be done.
		s.moved = append(s.moved, m.Group)
		if err != nil {
			errs = append(errs, fmt.Errorf("offsets of group %s: %w (--skip-groups leaves groups alone)", m.Group, err))
		}
	}
	return errors.Join(errs...)
}

// lookAgain looks at where a group stands here just before it is moved. Its coordinator may take a
// moment to come up.
func (s *switchover) lookAgain(ctx context.Context, m *groupMove) error {
	planned, begun := slices.Clone(m.plan.Moves), time.Now()
	for {
		m.plan.Moves = slices.Clone(planned)
		err := offsets.LookAgain(ctx, s.cl, []*offsets.Plan{&m.plan})[m.Group]
		if err == nil || !protocol.ComesUp(err) || time.Since(begun) >= coordinatorPatience {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryPause):
		}
	}
}

// kept corrects what was planned by what is kept.
func (m *groupMove) kept() {
	for _, k := range m.plan.Kept {
		for i := range m.Offsets {
			if o := &m.Offsets[i]; o.Topic == k.Topic && o.Partition == k.Partition.Partition {
				o.Before, o.After, o.Kept = k.Here, k.Here, k.Reason
			}
		}
	}
}

// took corrects what was planned by what was done.
func (m *groupMove) took(done []offsets.Move) {
	after := map[offsets.Partition]bool{}
	for _, d := range done {
		after[d.Partition] = true
	}
	for i := range m.Offsets {
		o := &m.Offsets[i]
		if o.After != o.Before && !after[offsets.Partition{Topic: o.Topic, Partition: o.Partition}] {
			o.After = o.Before
		}
	}
}

package syncs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/syncs/offsets"
)

const (
	// commitsAtATime is how many groups are committed for at once: each is one request to the
	// group's coordinator.
	commitsAtATime = 8
	// groupsBetweenLooks is after how many groups it is asked again which topics are mirrored: one
	// that was stopped meanwhile is nobody's to commit for.
	groupsBetweenLooks = 200
	// maxGroupErrors bounds how many errors of one round are told.
	maxGroupErrors = 5
)

// GroupPolicies say which groups are copied; policy.Engine does.
type GroupPolicies interface {
	Groups(ctx context.Context, q policy.Question, facts []*policyv1.GroupFacts) ([]policy.Verdict, error)
}

// GroupsConfig is what Groups needs.
type GroupsConfig struct {
	Here
	Virtual  ids.Virtual // its brokers are asked nothing: they coordinate no groups
	Policies GroupPolicies
}

// Groups copies what groups have committed: for mirrored topics, into groups without members here,
// up to what is mirrored. What this cluster has is compared with at each run, and only what
// differs is committed.
//
// A group whose offsets are deleted here stays deleted: what this mirror has written to is on
// record as its own, by topic and group, and what is its own and not here was taken away, unless
// Kafka may have let it expire. That is forgotten, and the group is copied anew, once the policies refuse the group, it is gone at the
// source, or its topic is stopped. Groups that are deleted at the source are left alone here.
type Groups struct {
	cfg       GroupsConfig
	retention retention
	now       func() time.Time

	mu       sync.Mutex // guards the following
	memories map[string]*groupMemory
}

var _ Sync = (*Groups)(nil)

// NewGroups returns the sync of group offsets.
func NewGroups(cfg GroupsConfig) *Groups {
	return &Groups{cfg: cfg, retention: retention{cl: cfg.Destination, virtual: cfg.Virtual, log: cfg.Log}, now: time.Now, memories: map[string]*groupMemory{}}
}

// Kind implements Sync.
func (*Groups) Kind() policy.Kind { return policy.Groups }

// Wanted implements Sync.
func (*Groups) Wanted(m Mirror) bool { return m.asks(policy.Groups, !m.Config.GroupsInclude.Empty()) }

// Sync implements Sync.
func (g *Groups) Sync(ctx context.Context, m Mirror, src *kgo.Client, why policyv1.Round_Why) (Report, error) {
	r := g.newRound(m, why)
	r.src = src
	return r.run(ctx)
}

// Release implements Releaser: a topic that is stopped because its source is lost is given up all
// the same, or it would not be started anew one day.
func (g *Groups) Release(ctx context.Context, m Mirror) error {
	r := g.newRound(m, policyv1.Round_REFRESH)
	r.releaseStopped()
	r.record(ctx)
	return firstErrors(r.errs, maxGroupErrors)
}

func (g *Groups) newRound(m Mirror, why policyv1.Round_Why) *groupRound {
	r := &groupRound{
		round: round{Here: g.cfg.Here, kind: policy.Groups, m: m, why: why}, g: g, mem: g.memory(m.Name), now: g.now(),
		topics: map[string]Topic{}, owned: g.cfg.Mirrors.Owned(m.Name, policy.Groups),
		add: map[string]bool{}, remove: map[string]bool{}, late: map[string]string{}, left: map[string]bool{}, joined: map[string]bool{},
	}
	for _, t := range m.Topics {
		r.topics[t.Name] = t
	}
	return r
}

// memory returns what is remembered of a mirror. Those that are not coordinated here any more are
// forgotten: somebody else writes for them now.
func (g *Groups) memory(mirror string) *groupMemory {
	mine := g.cfg.Mirrors.Coordinated()
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.memories, func(name string, _ *groupMemory) bool {
		_, ok := mine[name]
		return !ok && name != mirror
	})
	mem := g.memories[mirror]
	if mem == nil {
		mem = newGroupMemory()
		g.memories[mirror] = mem
	}
	return mem
}

// groupRound is one run for one mirror.
type groupRound struct {
	round
	g   *Groups
	src *kgo.Client
	mem *groupMemory
	now time.Time // when it began

	topics map[string]Topic
	ranges map[offsets.Partition]offsets.Range
	owned  map[string]int64
	part   bool              // not everything that was asked for is known
	late   map[string]string // items of partitions that could not be looked at, and their topics
	left   map[string]bool   // topics of which a group could not be looked at, or not be committed for
	joined map[string]bool   // groups that have had members here
	listed bool              // all groups here are known
	keep   time.Duration     // how long offsets are kept here

	errs   []error
	plans  []*offsets.Plan
	add    map[string]bool // items that are this mirror's from now on
	remove map[string]bool
}

// fail records an error of one group, which holds up no other one.
func (r *groupRound) fail(group string, err error) {
	err = fmt.Errorf("group %s: %w", group, err)
	r.errs = append(r.errs, err)
	if !r.acts() {
		return
	}
	if e, _ := r.Ledger.Get(r.m.Name, policy.Groups, group); e.Accepted {
		r.applied(group, err)
	} else {
		r.Ledger.LeftOut(r.m.Name, policy.Groups, group, "offsets of the group", err.Error())
	}
}

// leave records that a group could not be looked at, or not be committed for: what is committed here
// by others is not known to be of the mirror's log.
func (r *groupRound) leave(g offsets.Group) {
	for p := range g.Positions {
		r.left[p.Topic] = true
	}
}

// unknown records that not all of something is known.
func (r *groupRound) unknown(what string, err error) {
	r.part = true
	r.errs = append(r.errs, fmt.Errorf("%s: %w", what, err))
}

func (r *groupRound) run(ctx context.Context) (Report, error) {
	r.releaseStopped()
	if len(r.topics) == 0 {
		r.report.Note = "no topic is mirrored now"
		r.record(ctx)
		return r.report, firstErrors(r.errs, maxGroupErrors)
	}
	r.keep = r.g.retention.get(ctx)
	r.mem.begin(r.owned)
	source, listErr := offsets.List(ctx, r.src, nil)
	if listErr != nil {
		r.unknown("groups of the source", listErr)
	}
	read := r.read(ctx, source)
	if listErr == nil {
		r.releaseGone(source)
	}
	if err := r.decide(ctx, read); err != nil {
		return r.report, err
	}
	if !r.acts() {
		for _, p := range r.plans {
			r.change(p, p.Moves)
		}
		return r.report, firstErrors(r.errs, maxGroupErrors)
	}
	r.commit(ctx)
	r.looked(ctx.Err() == nil)
	r.record(ctx)
	return r.report, firstErrors(r.errs, maxGroupErrors)
}

// read returns the groups of the source that have committed something for topics of the mirror.
func (r *groupRound) read(ctx context.Context, source map[string]offsets.Group) []offsets.Group {
	var candidates []offsets.Group
	for _, name := range slices.Sorted(maps.Keys(source)) {
		if g := source[name]; g.Type == offsets.Streams {
			r.leaveOut(name, "type of the group", "streams groups are not copied: their state is more than their offsets")
		} else {
			candidates = append(candidates, g)
		}
	}
	filled, errs := offsets.Fetch(ctx, r.src, candidates)
	for _, name := range slices.Sorted(maps.Keys(errs)) {
		r.part = true
		r.fail(name, fmt.Errorf("its offsets at the source: %w", errs[name]))
	}
	return slices.DeleteFunc(filled, func(g offsets.Group) bool {
		for p := range g.Positions {
			if _, mirrored := r.topics[p.Topic]; mirrored {
				return false
			}
		}
		// There may be thousands that have nothing to do with this mirror.
		if _, known := r.Ledger.Get(r.m.Name, policy.Groups, g.Name); known && r.acts() {
			r.Ledger.LeftOut(r.m.Name, policy.Groups, g.Name, "topics of the group", "it has committed nothing for topics that this mirror mirrors now")
		}
		return true
	})
}

// decide asks the policies, and plans what they have accepted.
func (r *groupRound) decide(ctx context.Context, source []offsets.Group) error {
	var err error
	if r.ranges, err = offsets.Ranges(ctx, r.Destination, slices.Sorted(maps.Keys(r.topics))); err != nil {
		// The partitions that are known go on.
		r.errs = append(r.errs, fmt.Errorf("what is mirrored here: %w", err))
	}
	for _, t := range r.topics {
		for _, p := range t.Truncating {
			delete(r.ranges, offsets.Partition{Topic: t.Name, Partition: p})
			r.missed(offsets.Partition{Topic: t.Name, Partition: p})
		}
	}
	for _, g := range source {
		for p := range g.Positions {
			if _, known := r.ranges[p]; !known {
				r.missed(p)
			}
		}
	}
	here, unread, err := r.readHere(ctx, source)
	if err != nil {
		return err
	}
	var facts []*policyv1.GroupFacts
	var asked []offsets.Group
	for _, g := range source {
		if why := unread[g.Name]; why != nil {
			r.leave(g)
			r.fail(g.Name, fmt.Errorf("its offsets here: %w", why))
			continue
		}
		asked = append(asked, g)
		facts = append(facts, r.facts(g, here[g.Name]))
	}
	verdicts, err := r.g.cfg.Policies.Groups(ctx, r.question(), facts)
	if err != nil {
		return err
	}
	refused := map[string]bool{}
	for i, v := range verdicts {
		g := asked[i]
		if !v.Accepted {
			r.report.Skipped = append(r.report.Skipped, Skip{g.Name, v.Reason})
			if v.Undecided {
				r.leave(g)
			} else if !v.Stale {
				refused[g.Name] = true
			}
			continue
		}
		r.plan(g, here[g.Name])
	}
	r.release(refused)
	return nil
}

// readHere returns this cluster's groups of the names of source, with what they have committed.
// Those of another type have no offsets: nothing is committed for them.
func (r *groupRound) readHere(ctx context.Context, source []offsets.Group) (here map[string]offsets.Group, unread map[string]error, err error) {
	listed, err := offsets.List(ctx, r.Destination, r.g.cfg.Virtual.Is)
	if err != nil {
		// A broker that is down leads no groups for long. Whether a group that is not listed has
		// members its coordinator says when something is committed.
		r.unknown("groups here", err)
	}
	r.listed = err == nil
	here = map[string]offsets.Group{}
	var ask []offsets.Group
	for _, g := range source {
		h, ok := listed[g.Name]
		switch {
		case !ok:
			ask = append(ask, offsets.Group{Name: g.Name, Type: g.Type})
		case h.Type == offsets.Streams || (h.Type == offsets.Share) != (g.Type == offsets.Share):
			here[g.Name] = h
		default:
			ask = append(ask, h)
		}
	}
	filled, unread := offsets.Fetch(ctx, r.Destination, ask)
	for _, g := range filled {
		here[g.Name] = g
	}
	return here, unread, ctx.Err()
}

func (r *groupRound) facts(source, here offsets.Group) *policyv1.GroupFacts {
	f := &policyv1.GroupFacts{Group: source.Name, Type: string(source.Type), SourceState: source.State, StateHere: here.State}
	topics := map[string]bool{}
	for _, p := range offsets.Sorted(source.Positions) {
		room, ok := r.ranges[p]
		if !ok {
			continue
		}
		topics[p.Topic] = true
		o := &policyv1.GroupOffset{
			Topic: p.Topic, Partition: p.Partition, SourceOffset: source.Positions[p].At, OffsetHere: -1, StartHere: room.Start, EndHere: room.End,
		}
		if at, ok := here.Positions[p]; ok {
			o.OffsetHere = at.At
		}
		f.Offsets = append(f.Offsets, o)
	}
	for topic := range topics {
		if _, f.Owned = r.owned[groupItem(r.topics[topic], source.Name)]; f.Owned {
			break
		}
	}
	return f
}

// plan decides what is committed for a group, and what has to be committed again before it expires.
func (r *groupRound) plan(source, here offsets.Group) {
	r.emptied(here)
	seen := map[string]bool{}
	for p := range here.Positions {
		seen[p.Topic] = true
	}
	p := offsets.PlanGroup(offsets.Facts{
		Source: source, Here: here, Ranges: r.ranges,
		Fresh:   func(p offsets.Partition) bool { return r.fresh(p, source.Name) },
		Wrote:   func(p offsets.Partition) (int64, bool) { return r.mem.wrote(source.Name, p) },
		Removed: func(topic string) bool { return !seen[topic] && r.removed(topic, source.Name, here.Active()) },
	})
	for topic := range seen {
		if t, ok := r.topics[topic]; ok && r.acts() {
			r.mem.saw(groupItem(t, source.Name), r.now)
			r.drop(goneItem(t, source.Name))
			if here.Active() {
				r.theirs(topic, source.Name)
			}
		}
	}
	if p.Skipped != "" {
		if !p.Outside() {
			r.skip(source.Name, p.Skipped)
		}
		return
	}
	if !r.acts() {
		r.plans = append(r.plans, &p)
		if len(p.Moves) == 0 && len(p.Kept) > 0 {
			r.skip(source.Name, keptText(p.Kept))
		}
		return
	}
	for _, m := range p.Same {
		// Where share groups begin does not expire, and what they have acquired beyond would be lost.
		if source.Type != offsets.Share && r.mem.due(source.Name, m.Partition, m.To, r.now, r.keep) {
			p.Moves = append(p.Moves, m)
		}
	}
	r.plans = append(r.plans, &p)
}

// commit brings the plans to this cluster.
func (r *groupRound) commit(ctx context.Context) {
	var moves []*offsets.Move
	for _, p := range r.plans {
		for i := range p.Moves {
			moves = append(moves, &p.Moves[i])
		}
	}
	if err := offsets.Epochs(ctx, r.Destination, r.ranges, moves); err != nil {
		r.report.Warnings = append(r.report.Warnings, fmt.Sprintf("some offsets are committed without a leader epoch: %v", err))
	}
	for chunk := range slices.Chunk(r.plans, groupsBetweenLooks) {
		if err := r.look(ctx); err != nil {
			r.unknown("what is still mirrored", err)
			return
		}
		r.commitSome(ctx, chunk)
	}
}

// look asks which topics are still mirrored: what is stopped is not this mirror's any more. At a
// stop's own round nobody has begun with it yet.
func (r *groupRound) look(ctx context.Context) error {
	if r.why == policyv1.Round_STOP {
		return ctx.Err()
	}
	now, err := r.Mirrors.Mirror(ctx, r.m.Name)
	if err != nil {
		return err
	}
	still := map[string]Topic{}
	for _, t := range now.Topics {
		if was, ok := r.topics[t.Name]; ok && was.ID == t.ID {
			still[t.Name] = t
		}
	}
	r.topics = still
	return nil
}

func (r *groupRound) commitSome(ctx context.Context, plans []*offsets.Plan) {
	var group sync.WaitGroup
	slots := make(chan struct{}, commitsAtATime)
	for _, p := range plans {
		p.Moves = slices.DeleteFunc(p.Moves, func(m offsets.Move) bool { _, ok := r.topics[m.Topic]; return !ok })
		p.Same = slices.DeleteFunc(p.Same, func(m offsets.Move) bool { _, ok := r.topics[m.Topic]; return !ok })
	}
	out := r.lookAgain(ctx, plans)
	for i, p := range plans {
		if len(p.Moves) == 0 {
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			done, err := offsets.Commit(ctx, r.Destination, p.Group, p.Moves)
			if err != nil && !errors.Is(err, offsets.ErrActive) {
				err = fmt.Errorf("commit: %w", err)
			}
			out[i].done, out[i].err = done, err
		})
	}
	group.Wait()
	for i, p := range plans {
		r.took(p, out[i])
	}
}

// outcome is what has become of the moves that a plan had still.
type outcome struct {
	asked, done []offsets.Move
	err         error
}

// lookAgain drops moves from where a group no longer stands: since it was looked at policies were
// asked and others committed for. The next round sees what has come of it.
func (r *groupRound) lookAgain(ctx context.Context, plans []*offsets.Plan) []outcome {
	out := make([]outcome, len(plans))
	for i, p := range plans {
		out[i].asked = p.Moves
	}
	failed := offsets.LookAgain(ctx, r.Destination, plans)
	for i, p := range plans {
		if err := failed[p.Group.Name]; err != nil {
			out[i].err = fmt.Errorf("its offsets here: %w", err)
		} else {
			out[i].asked = p.Moves
		}
	}
	return out
}

// took records what has become of a plan.
func (r *groupRound) took(p *offsets.Plan, o outcome) {
	name, now := p.Group.Name, r.g.now()
	undone := r.undone(o)
	for _, k := range p.Kept {
		if k.Here >= 0 && !undone[k.Topic] {
			r.theirs(k.Topic, name)
		}
	}
	for _, m := range p.Same {
		r.mem.found(name, m.Partition, m.To, now, r.keep, !r.joined[name])
		if !undone[m.Topic] {
			r.mine(m.Topic, name, now)
		}
	}
	for _, m := range o.done {
		if m.From == m.To {
			r.mem.renewed(name, m.Partition, m.To, now)
		} else {
			r.mem.committed(name, m.Partition, m.To, now)
		}
		if !undone[m.Topic] {
			r.mine(m.Topic, name, now)
		}
	}
	r.change(p, o.done)
	if o.err == nil && len(p.Same)+len(o.done) > 0 {
		r.applied(name, nil)
	}
	switch {
	case errors.Is(o.err, offsets.ErrActive):
		r.skip(name, o.err.Error())
	case o.err != nil:
		r.fail(name, o.err)
	case len(p.Kept) > 0:
		r.skip(name, keptText(p.Kept))
	}
}

// undone are the topics of a plan in which something could not be committed: a group that is not this
// mirror's there yet is none before all of it is.
func (r *groupRound) undone(o outcome) map[string]bool {
	if o.err == nil || errors.Is(o.err, offsets.ErrActive) {
		return nil
	}
	is := map[offsets.Partition]bool{}
	for _, m := range o.done {
		is[m.Partition] = true
	}
	out := map[string]bool{}
	for _, m := range o.asked {
		if !is[m.Partition] {
			out[m.Topic], r.left[m.Topic] = true, true
		}
	}
	return out
}

// change says what was or would be done for a group. What is only kept from expiring is none.
func (r *groupRound) change(p *offsets.Plan, moves []offsets.Move) {
	const shown = 5
	var text []string
	n := 0
	for _, m := range moves {
		if m.From == m.To {
			continue
		}
		if n++; n > shown {
			continue
		}
		from := "none"
		if m.From >= 0 {
			from = fmt.Sprint(m.From)
		}
		text = append(text, fmt.Sprintf("%s-%d: %s to %d", m.Topic, m.Partition.Partition, from, m.To))
	}
	if n == 0 {
		return
	}
	if n > shown {
		text = append(text, fmt.Sprintf("and %d more", n-shown))
	}
	r.tell("set", []string{p.Group.Name}, strings.Join(text, ", "))
}

func keptText(kept []offsets.Kept) string {
	const shown = 3
	// What was deleted here comes first: --switchover goes by it.
	deleted := func(k offsets.Kept) int {
		if strings.HasPrefix(k.Reason, offsets.DeletedHere) {
			return 0
		}
		return 1
	}
	kept = slices.SortedStableFunc(slices.Values(kept), func(a, b offsets.Kept) int { return deleted(a) - deleted(b) })
	var text []string
	for i, k := range kept {
		if i == shown {
			text = append(text, fmt.Sprintf("and %d more", len(kept)-shown))
			break
		}
		text = append(text, fmt.Sprintf("%s-%d: %s", k.Topic, k.Partition.Partition, k.Reason))
	}
	return strings.Join(text, "; ")
}

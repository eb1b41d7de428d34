package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cluster-mirroring/mirror-sidecar/config"
)

// groupOutcome is what became of one group of the source.
type groupOutcome struct {
	Group      string `json:"group"`
	Partitions int    `json:"partitions"`
	Skipped    string `json:"skipped,omitempty"` // why
}

// groupMove is a group's offsets as they shall be here.
type groupMove struct {
	groupOutcome
	offsets kadm.Offsets
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
	var moved int
	var skipped []string
	for _, m := range g {
		if m.Skipped != "" {
			skipped = append(skipped, fmt.Sprintf("%s (%s)", m.Group, m.Skipped))
		} else {
			moved++
		}
	}
	text := fmt.Sprintf("offsets of %s %s", plural(moved, "group"), verb)
	if len(skipped) > 0 {
		text += "; skipped: " + strings.Join(skipped, ", ")
	}
	return text
}

// groupFilter tells which groups the mirror's configuration means.
func (s *switchover) groupFilter(ctx context.Context) (include, exclude config.Pattern, err error) {
	rows, err := s.o.fetchConfigs(ctx, s.cl, "mirror.groups.include", "mirror.groups.exclude")
	if err != nil {
		return include, exclude, fmt.Errorf("which groups the mirror means: %w", err)
	}
	for _, r := range rows {
		p, err := config.ParsePattern(deref(r.Value))
		if err != nil {
			return include, exclude, err
		}
		switch r.Name {
		case "mirror.groups.include":
			include = p
		case "mirror.groups.exclude":
			exclude = p
		}
	}
	return include, exclude, nil
}

// planGroups reads the groups of the source and what they would be here.
func (s *switchover) planGroups(ctx context.Context) (groupMoves, error) {
	include, exclude, err := s.groupFilter(ctx)
	if err != nil {
		return nil, err
	}
	listed, err := s.srcAdmin.ListGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("groups of the source: %w", err)
	}
	names := pickGroups(listed, include, exclude)
	if len(names) == 0 {
		return nil, nil
	}
	dst := kadm.NewClient(s.cl)
	here, err := dst.ListGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("groups here: %w", err)
	}
	starts, err := offsetsOf(dst.ListStartOffsets(ctx, s.moving...))
	if err != nil {
		return nil, fmt.Errorf("starts of the topics here: %w", err)
	}
	ends, err := offsetsOf(dst.ListEndOffsets(ctx, s.moving...))
	if err != nil {
		return nil, fmt.Errorf("ends of the topics here: %w", err)
	}
	var moves groupMoves
	fetched := s.srcAdmin.FetchManyOffsets(ctx, names...)
	for _, name := range names {
		r := fetched[name]
		if r.Err != nil {
			return nil, fmt.Errorf("offsets of group %s at the source: %w", name, r.Err)
		}
		m := groupMove{groupOutcome: groupOutcome{Group: name}, offsets: kadm.Offsets{}}
		for _, o := range r.Fetched.Sorted() {
			tp := topicPartition{o.Topic, o.Partition}
			end, ok := ends[tp]
			if o.Err != nil {
				return nil, fmt.Errorf("offset of group %s in %s-%d at the source: %w", name, o.Topic, o.Partition, o.Err)
			}
			if !ok || o.At < 0 {
				continue
			}
			m.Partitions++
			m.offsets.Add(kadm.Offset{
				Topic: o.Topic, Partition: o.Partition, At: max(starts[tp], min(o.At, end)), LeaderEpoch: -1, Metadata: o.Metadata,
			})
		}
		if m.Partitions == 0 {
			continue // it reads other topics
		}
		if state := here[name].State; state != "" && state != "Empty" && state != "Dead" {
			m.Skipped = "active here: " + state
		}
		moves = append(moves, m)
	}
	return moves, nil
}

// pickGroups leaves out what has no offsets of this kind.
func pickGroups(listed kadm.ListedGroups, include, exclude config.Pattern) []string {
	var names []string
	for _, g := range listed {
		if g.GroupType == "share" || g.GroupType == "streams" || !include.Match(g.Group) || exclude.Match(g.Group) {
			continue
		}
		names = append(names, g.Group)
	}
	slices.Sort(names)
	return names
}

func (s *switchover) moveGroups(ctx context.Context, moves groupMoves) error {
	dst := kadm.NewClient(s.cl)
	var errs []error
	for _, m := range moves {
		if m.Skipped != "" {
			continue
		}
		s.p.show("moving the offsets of group " + m.Group)
		err := dst.CommitAllOffsets(ctx, m.Group, m.offsets)
		// After an error too: some of it may be done.
		s.moved = append(s.moved, m.Group)
		if err != nil {
			errs = append(errs, fmt.Errorf("offsets of group %s: %w (--skip-groups leaves groups alone)", m.Group, err))
		}
	}
	return errors.Join(errs...)
}

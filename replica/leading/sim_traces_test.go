package leading

import (
	"strings"
	"testing"
)

// Walks that once ended badly, shrunk. Each of them fails again when what was mended for it
// is undone.

var simTraces = []struct {
	name, config, acts string
}{
	{
		"all real replicas go while a stop begins: the takeover that is refused lets the one in that has everything",
		"stop", `
			real is killed 1 (59)
			operator stops 1 (55)
			real stops cleanly 0 (7)
		`,
	},
	{
		"a real broker is to lead before a hand-back, and the first of those asked for has left the ISR since",
		"stop, no ELR, coordinators die", `
			virtual views 2 (17)
			message of virtual moves 0 (39)
			real views 3 (28)
			message of virtual moves 0 (1)
			operator stops 3 (23)
			real views 2 (25)
			real sends 4 (22)
			virtual notices what is wanted 0 (8)
			real's request is answered 4 (4)
			real sends 5 (10)
			real's request is answered 5 (14)
			real takes the answer 5 (6)
			message of virtual moves 4 (8)
			message of virtual moves 4 (27)
			real takes the answer 4 (49)
			message of virtual moves 4 (57)
			real sends 2 (54)
			real sends 3 (34)
			message of virtual moves 4 (40)
			real's request is answered 3 (61)
			real's request is answered 0 (58)
			message of virtual moves 4 (8)
			real is killed 4 (30)
			coordinator acts 3 (17)
			coordinator acts 3 (60)
			virtual is fenced 4 (0)
		`,
	},
	{
		"a cancelled reassignment leaves the real replicas in front of the virtual ones: they are put in order again",
		"virtual brokers are replaced", `
			virtual dies 2 (9)
			virtual is fenced 3 (39)
			virtual is fenced 1 (56)
			coordinator acts 4 (26)
			reassignment arrives 4 (57)
			virtual is unfenced 1 (24)
			virtual starts 5 (9)
			coordinator acts 1 (9)
			reassignment arrives 0 (62)
		`,
	},
	{
		"min.insync.replicas is not changed while the controller knows only by the ELR who has the data, which the change empties",
		"min.insync.replicas changes", `
			real stops cleanly 3 (56)
			real stops cleanly 1 (50)
			virtual is fenced 3 (36)
			real is fenced 3 (30)
			real is fenced 4 (55)
			virtual is fenced 1 (16)
			real stops cleanly 2 (13)
			real is fenced 5 (24)
			coordinator acts 5 (22)
		`,
	},
	{
		"a client writes under the epoch of a real leader whose history was on record before",
		"write lock refused", `
			virtual dies 5 (30)
			virtual is fenced 4 (22)
			virtual starts 3 (47)
			virtual views 3 (32)
			real views 4 (61)
			virtual is unfenced 3 (1)
			virtual fetches 1 (58)
			client writes 2 (57)
			real views 0 (48)
			virtual fetches 5 (32)
			virtual fetches 1 (11)
			coordinator acts 1 (26)
			reassignment arrives 5 (39)
			real views 2 (0)
			preferred election 3 (20)
		`,
	},
	{
		"all logs in sync are cut to where a compaction gap begins, below what was read: a new takeover begins there",
		"retention and compaction", `
			real views 0 (36)
			source appends 1 (8)
			source appends 3 (41)
			virtual views 4 (26)
			real views 3 (52)
			message of virtual moves 4 (43)
			message of virtual moves 0 (11)
			real sends 5 (21)
			real's request is answered 1 (21)
			real sends 2 (2)
			real's request is answered 4 (39)
			message of virtual moves 2 (30)
			message of virtual moves 0 (20)
			real takes the answer 2 (22)
			message of virtual moves 2 (32)
			message of virtual moves 2 (15)
			virtual pulls 0 (59)
			source appends 4 (14)
			source elects 3 (8)
			message of virtual moves 4 (57)
			source appends 1 (32)
			source appends 2 (11)
			message of virtual moves 0 (38)
			real takes the answer 1 (44)
			real sends 2 (24)
			real sends 1 (5)
			real's request is answered 1 (33)
			real's request is answered 2 (59)
			real takes the answer 1 (10)
			real sends 3 (18)
			real's request is answered 5 (39)
			virtual dies 0 (4)
			source retains or compacts 4 (27)
			virtual starts 4 (8)
			virtual views 1 (9)
			message of virtual moves 1 (22)
			real takes the answer 4 (26)
			source retains or compacts 3 (21)
			real takes the answer 5 (10)
			real views 0 (34)
			real views 3 (53)
			real sends 0 (44)
			real's request is answered 0 (40)
			source retains or compacts 5 (55)
			real sends 1 (4)
			real's request is answered 5 (12)
			message of virtual moves 5 (22)
			message of virtual moves 1 (29)
			message of virtual moves 5 (8)
			message of virtual moves 3 (46)
			message of virtual moves 5 (57)
			virtual pulls 5 (50)
			real's request times out 0 (31)
			message of virtual moves 5 (26)
			message of virtual moves 3 (40)
			real sends 0 (45)
			real's request is answered 2 (27)
			real takes the answer 2 (38)
			real sends 4 (48)
			real's request is answered 2 (3)
			source elects uncleanly 0 (2)
			virtual pulls 5 (16)
		`,
	},
}

func TestModelTraces(t *testing.T) {
	for _, c := range simTraces {
		t.Run(c.name, func(t *testing.T) {
			acts := parseActs(c.acts)
			if lines := strings.Count(strings.TrimSpace(c.acts), "\n") + 1; len(acts) != lines {
				t.Fatalf("%d acts in %d lines", len(acts), lines)
			}
			for _, cfg := range simConfigs {
				if cfg.name != c.config {
					continue
				}
				if failure := simReplay(cfg, acts, nil); failure != "" {
					t.Errorf("%s\n%s", failure, simStory(cfg, acts))
				}
				return
			}
			t.Fatalf("no configuration %q", c.config)
		})
	}
}

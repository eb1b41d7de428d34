package metadata

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

func TestOnline(t *testing.T) {
	a, b := ids.UUID{0: 1}, ids.UUID{0: 2}
	unassigned, lost, migrating := ids.UUID{}, ids.UUID{15: 1}, ids.UUID{15: 2}
	for _, tc := range []struct {
		name   string
		dir    ids.UUID
		broker int32
		dirs   []ids.UUID
		want   bool
	}{
		{"in a directory that works", a, 2, []ids.UUID{b, a}, true},
		{"in one that has failed", a, 2, []ids.UUID{b}, false},
		{"not assigned yet", unassigned, 2, []ids.UUID{b}, true},
		{"being moved", migrating, 2, []ids.UUID{b}, true},
		{"lost", lost, 2, []ids.UUID{b}, false},
		{"of a broker that tells none", a, 2, nil, true},
		{"no replica", a, 3, []ids.UUID{b}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Partition{Replicas: []int32{1, 2}, Directories: []ids.UUID{b, tc.dir}}
			if got := p.Online(Broker{ID: tc.broker, LogDirs: tc.dirs}); got != tc.want {
				t.Errorf("online: %t", got)
			}
		})
	}
	if !(&Partition{Replicas: []int32{2}}).Online(Broker{ID: 2, LogDirs: []ids.UUID{a}}) {
		t.Error("offline although no directories are on record")
	}
}

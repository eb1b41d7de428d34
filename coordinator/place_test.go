package coordinator

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

func TestPlace(t *testing.T) {
	r := newRig(t)
	r.img.Set(nil, []metadata.Broker{
		{ID: 1, Rack: "a"}, {ID: 2, Rack: "a"}, {ID: 3, Rack: "b"}, {ID: 10001, Rack: "a"}, {ID: 10002, Rack: "a"}, {ID: 10003, Rack: "b"},
	}, nil)
	all, err := r.Place("t", 0, 6, 2)
	if err != nil || len(all) != 6 {
		t.Fatal(all, err)
	}
	for _, list := range all {
		if len(list) != 2 || slices.Contains(list, 3) == slices.ContainsFunc(list, func(b int32) bool { return b > 3 }) {
			t.Errorf("replicas %v, want one of each rack", list)
		}
	}
	more, err := r.Place("t", 4, 2, 2)
	if err != nil || !slices.EqualFunc(more, all[4:], slices.Equal) {
		t.Errorf("later ones: %v, %v, want %v", more, err, all[4:])
	}
	if _, err := r.Place("t", 0, 1, 4); !errors.Is(err, kerr.InvalidReplicationFactor) || !strings.Contains(err.Error(), "only 3 broker(s) are registered") {
		t.Error(err)
	}
	if _, err := r.Place("t", 0, maxPlaced+1, 1); !errors.Is(err, kerr.InvalidPartitions) {
		t.Error(err)
	}
	r.img.Set(nil, []metadata.Broker{{ID: 1, Fenced: true}, {ID: 10001}}, nil)
	if _, err := r.Place("t", 0, 1, 1); !errors.Is(err, kerr.InvalidReplicationFactor) {
		t.Error(err)
	}
}

package replica

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestConcerns: what changed elsewhere costs a partition nothing.
func TestConcerns(t *testing.T) {
	img := &metadata.Partition{Topic: "t", TopicID: ids.UUID{9}, Replicas: []int32{wishSelf, 1, 2}}
	for _, tt := range []struct {
		name string
		d    metadata.Delta
		want bool
	}{
		{"nothing", metadata.Delta{}, false},
		{"its topic's config", metadata.Delta{Configs: []string{"a", "t"}}, true},
		{"another topic's config", metadata.Delta{Configs: []string{"a"}}, false},
		{"a replica's broker", metadata.Delta{Brokers: []int32{7, 2}}, true},
		{"this broker", metadata.Delta{Brokers: []int32{wishSelf}}, true},
		{"another broker", metadata.Delta{Brokers: []int32{7}}, false},
		{"defaults", metadata.Delta{BrokerDefaults: true}, true},
		{"features", metadata.Delta{Features: true}, false},
	} {
		if got := concerns(tt.d, img); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// TestViewCopiesNoConfigs: a view is made for each partition, on the observer's goroutine.
func TestViewCopiesNoConfigs(t *testing.T) {
	r := newWishRig(t)
	r.m.broker = &resigner{}
	p := &metadata.Partition{Topic: "t", TopicID: r.tp.TopicID, Replicas: []int32{wishSelf, 1, 2}}
	allocs := func(config map[string]string) float64 {
		r.m.image.Set([]*metadata.Partition{p}, []metadata.Broker{{ID: 1}, {ID: 2}}, map[string]map[string]string{"t": config})
		return testing.AllocsPerRun(100, func() { r.m.view(p) })
	}
	many := map[string]string{}
	for i := range 100 {
		many[fmt.Sprint(i)] = strings.Repeat("x", i)
	}
	if bare, full := allocs(nil), allocs(many); full > bare {
		t.Errorf("%v allocations with many configs, %v with none", full, bare)
	}
}

package syncs

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// Mirror is one mirror, as the coordinator of its name knows it.
type Mirror struct {
	Name            string
	SourceClusterID string
	Properties      config.Properties
	Config          *config.Mirror
	// Topics are those that are mirrored now: neither paused nor stopped, and without a fault.
	Topics []Topic
	// Held are paused, or have a fault.
	Held []Topic
	// Ended says that the mirror had topics and all of them are stopped: what it has brought here is
	// its users' now, who may have gone on from it.
	Ended bool
	// Stopped are the names of its topics that are stopped, while others are not.
	Stopped []string
}

// maxNamed bounds how many things one warning names.
const maxNamed = 10

// ended is the note of what is left alone since a mirror has ended.
func (m Mirror) ended(kind policy.Kind) string {
	return fmt.Sprintf("all topics of the mirror are stopped: the %s here are left as they are, whatever becomes of the source's", kind)
}

// leftBehind warns of what stays although the source does not have it any more.
func leftBehind(kind policy.Kind, items []string) string {
	some := strings.Join(items[:min(len(items), maxNamed)], ", ")
	if more := len(items) - maxNamed; more > 0 {
		some += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("the source does not have %d %s any more that stay here, as nobody's but yours: topics of the mirror are stopped, whose clients may need them: %s", len(items), kind, some)
}

// Question is what policies are told of the mirror: its configuration with defaults and without
// secrets. here is this cluster's id.
func (m Mirror) Question(here string, why policyv1.Round_Why) policy.Question {
	q := policy.Question{Mirror: m.Name, SourceClusterID: m.SourceClusterID, DestinationClusterID: here, Config: map[string]string{}, Why: why}
	for _, k := range config.MirrorKeys() {
		v, given := m.Properties[k.Name]
		if !given {
			v = k.Default
		}
		if !config.Hidden(k.Name, v) {
			q.Config[k.Name] = v
		}
	}
	return q
}

// with returns the mirror as if its configuration were changed so. The way to the source stays.
func (m Mirror) with(changes map[string]*string) (Mirror, error) {
	if len(changes) == 0 {
		return m, nil
	}
	props := m.Properties.Clone()
	for k, v := range changes {
		if v == nil {
			delete(props, k)
		} else {
			props[k] = *v
		}
	}
	cfg, err := config.ParseMirror(props)
	if err != nil {
		return m, fmt.Errorf("mirror %s: configuration: %w", m.Name, err)
	}
	if !config.SameSource(props, m.Properties) {
		return m, fmt.Errorf("mirror %s: another way to the source cannot be tried out", m.Name)
	}
	cfg.Name = m.Name
	m.Properties, m.Config = props, cfg
	return m, nil
}

// Topic is a mirror topic.
type Topic struct {
	Name string
	ID   ids.UUID
	// Truncating are partitions whose log here is not the source's yet.
	Truncating []int32
}

// Mirrors is what syncs need of the coordinator.
type Mirrors interface {
	// Ready is closed once everything that was written was read: what other mirrors have created is
	// known from then on.
	Ready() <-chan struct{}
	// Coordinated returns the names of the mirrors that this sidecar coordinates, as far as it
	// knows, with their configurations.
	Coordinated() map[string]config.Properties
	// Mirror returns one of them, once this sidecar has read everything that was written of it.
	Mirror(ctx context.Context, name string) (Mirror, error)
	// Changed calls fn, which must not block, when mirrors or their topics change.
	Changed(fn func()) (cancel func())
	// Owned returns what a mirror has created here of a kind, by item, and since when
	// (milliseconds since 1970).
	Owned(mirror string, kind policy.Kind) map[string]int64
	// OwnedElsewhere returns what other mirrors have created here of a kind, by item: the last of
	// them in the order of their names.
	OwnedElsewhere(mirror string, kind policy.Kind) map[string]string
	// OwnedFirst is OwnedElsewhere with the first of them. Mirrors that have ended set nothing any
	// more, and do not count.
	OwnedFirst(mirror string, kind policy.Kind) map[string]string
	// Own records that a mirror created items, or that it has given them up, before the first and
	// after the last of them is touched. An error means that nobody knows, and that nothing may be
	// created or deleted.
	Own(ctx context.Context, mirror string, kind policy.Kind, add, remove []string) error
}

// Sync mirrors one kind of thing.
type Sync interface {
	Kind() policy.Kind
	// Wanted tells whether a mirror's configuration asks for it at all. If not, its source is not
	// asked, and what was created here stays as it is.
	Wanted(m Mirror) bool
	// Sync brings this cluster to what the policies want, or only says what it would do if why is
	// DRY_RUN. src is a client of the mirror's source. An error is shown until a later run ends
	// without one; what was left out on purpose is in the report and no error. The runs of one
	// mirror and kind come one after the other.
	Sync(ctx context.Context, m Mirror, src *kgo.Client, why policyv1.Round_Why) (Report, error)
}

// Report is what a run has done, or would do.
type Report struct {
	// Note says why there was nothing to do at all; empty if there was.
	Note     string
	Changes  []Change
	Skipped  []Skip
	Warnings []string
}

// Change is one thing that was or would be done to this cluster.
type Change struct {
	Item string
	// Verb is create, delete, set or remove.
	Verb string
	// Detail is what the item is set to, and from what; may be empty.
	Detail string
}

// Skip is something of the source that is not mirrored, and why.
type Skip struct{ Item, Reason string }

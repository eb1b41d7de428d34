package syncs

import (
	"context"

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
}

// Topic is a mirror topic.
type Topic struct {
	Name string
	ID   ids.UUID
}

// Mirrors is what syncs need of the coordinator.
type Mirrors interface {
	// Coordinated returns the mirrors that this sidecar coordinates, once it has read everything
	// that was written of them.
	Coordinated(ctx context.Context) []Mirror
	// Owned returns what a mirror has created here of a kind, by item, and since when
	// (milliseconds since 1970).
	Owned(mirror string, kind policy.Kind) map[string]int64
	// Own records that a mirror created items, or that it has given them up, before the first and
	// after the last of them is touched. An error means that nobody knows, and that nothing may be
	// created or deleted.
	Own(ctx context.Context, mirror string, kind policy.Kind, add, remove []string) error
}

// Sync mirrors one kind of thing.
type Sync interface {
	Kind() policy.Kind
	// Sync brings this cluster to what the policies want, or only says what it would do if why is
	// DRY_RUN. src is a client of the mirror's source. An error is shown until a later run ends
	// without one; what was left out on purpose goes to the ledger and is no error.
	Sync(ctx context.Context, m Mirror, src *kgo.Client, why policyv1.Round_Why) error
}

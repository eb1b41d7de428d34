package metadata

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// Controllers sends a request to the active controller. replica/controller's Client
// is the one used; a Fetch or FetchSnapshot must not hold up other requests.
type Controllers interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// ObserverConfig configures an Observer. Zero durations and sizes mean the defaults.
type ObserverConfig struct {
	// ReplicaID is the id under which the log is fetched, that of the virtual broker:
	// kafka-metadata-quorum then shows how far it is. -1 fetches without a name.
	ReplicaID int32
	// DirectoryID is the virtual broker's log dir id, which names it to the quorum.
	DirectoryID ids.UUID
	// MaxWait bounds a long poll, and so how fresh Lag can be. Default 500 ms.
	MaxWait time.Duration
	// MaxBytes bounds the answer to a fetch. Default 8 MiB.
	MaxBytes int32
	// MaxSnapshotBytes bounds what a snapshot may take in memory. Default 1 GiB.
	MaxSnapshotBytes int64
}

// Observer follows the metadata log and applies it to an Image.
type Observer struct {
	cfg ObserverConfig
	img *Image
	ctl Controllers
	log *slog.Logger
}

// NewObserver returns an observer that moves img; an image has one observer only.
func NewObserver(cfg ObserverConfig, img *Image, ctl Controllers, log *slog.Logger) *Observer {
	return &Observer{cfg: cfg, img: img, ctl: ctl, log: log}
}

// Run follows the log until ctx ends, and then returns nil. Any other return is an
// error that no retry cures, such as a version of a record that has no table here.
func (o *Observer) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// CaughtUp is closed once the image has had everything up to the high watermark that
// the controller told of.
func (o *Observer) CaughtUp() <-chan struct{} { return nil }

// Lag returns for how long the image may have been behind the log: the time since it
// was last known to have everything up to the controller's high watermark. Before
// that it is the age of the observer.
func (o *Observer) Lag() time.Duration { return 0 }

package syncs

import "context"

// Releaser is a Sync that keeps what belongs to topics. What belongs to those that are stopped it
// gives up before each run, also if the source is lost.
type Releaser interface {
	Release(ctx context.Context, m Mirror) error
}

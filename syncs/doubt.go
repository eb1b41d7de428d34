package syncs

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

const (
	// secondLook is how soon a source is asked again that does not have something any more.
	secondLook = 2 * time.Second
	// doubtFor is how long it must have had so little before much is deleted here for it.
	doubtFor = 10 * time.Second
)

// doubts says what may be deleted of what a source does not have any more, and remembers, by mirror,
// where that is much. A cluster whose brokers have just started, or whose metadata was lost,
// answers like one where somebody has deleted everything.
type doubts struct {
	kind policy.Kind
	log  *slog.Logger
	// In tests these are shorter.
	look, patience time.Duration

	mu  sync.Mutex // guards the following
	was map[string]doubt
}

type doubt struct {
	gone  []string
	since time.Time
}

func newDoubts(kind policy.Kind, log *slog.Logger) *doubts {
	return &doubts{kind: kind, log: log, look: secondLook, patience: doubtFor}
}

// believe returns what can be deleted of what is gone at the source, with a warning if that is
// nothing yet. owned is how many this mirror has created, source how many are there now; again
// asks the source once more and tells whether it says the same.
func (d *doubts) believe(ctx context.Context, mirror string, gone []string, owned, source int, again func(ctx context.Context) (bool, error)) (sure []string, warning string, err error) {
	if len(gone) == 0 {
		d.forget(mirror)
		return nil, "", nil
	}
	t := time.NewTimer(d.look)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
	if same, err := again(ctx); !same || err != nil {
		// What it seemed to have lost before is as doubtful as this.
		d.forget(mirror)
		d.log.Info("the source does not say the same when it is asked again: nothing is deleted in this round", "mirror", mirror, "kind", d.kind, "err", err)
		return nil, "", nil
	}
	if !massive(len(gone), owned, source) {
		d.forget(mirror)
		return gone, "", nil
	}
	if d.settle(mirror, gone) {
		return gone, "", nil
	}
	return nil, fmt.Sprintf("%d of the %d %s that the mirror has created here are not at the source any more, which has %d now; they are deleted here once a later round finds the same",
		len(gone), owned, d.kind, source), nil
}

// massive tells whether so much is gone that it is looked at again in another round: all that the
// source has, or most of what was created here.
func massive(gone, owned, source int) bool {
	return source == 0 || gone > 10 && 2*gone > owned
}

// settle tells whether what is gone was gone already in a round some time ago. Otherwise it is
// remembered.
func (d *doubts) settle(mirror string, gone []string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if was, ok := d.was[mirror]; ok && slices.Equal(was.gone, gone) {
		return time.Since(was.since) >= d.patience
	}
	if d.was == nil {
		d.was = map[string]doubt{}
	}
	d.was[mirror] = doubt{gone: slices.Clone(gone), since: time.Now()}
	return false
}

// forget drops what is remembered of a mirror: also when its source cannot be read, since only rounds
// that come one after the other count.
func (d *doubts) forget(mirror string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.was, mirror)
}

// unanswered implements doubter.
func (s *ACLs) unanswered(mirror string) { s.doubts.forget(mirror) }

// unanswered implements doubter.
func (s *Quotas) unanswered(mirror string) { s.doubts.forget(mirror) }

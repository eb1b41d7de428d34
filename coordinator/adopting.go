package coordinator

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// This file holds who waits for topics that are adopted. To adopt one its source and its mirror's
// policies are asked, who may take as long as they like to answer, or do not answer at all: that
// must hold up neither the stops of other topics nor the other mirrors. So each mirror's are adopted
// beside the passes, and a pass that comes meanwhile leaves them alone.

// adoption is that topics of a mirror are being adopted.
type adoption struct {
	missed bool // a pass has found more, or found them changed
}

// adoptee tells whether a topic's next step is to be adopted. One whose start was refused, and which is
// its owner's again, is not until its partitions are to begin anew: it would be locked and given back
// in turns.
func (r *Reconciler) adoptee(t Topic) bool {
	return t.Desired != Stopped && !r.c.cfg.Alone && !t.lost() && (t.TopicID.IsZero() || len(t.Wanted) == 0) && !r.c.ordinary(t)
}

// adoptAll adopts topics of one mirror, and has the reconciler look again if anything came of it.
func (r *Reconciler) adoptAll(ctx context.Context, mirror string, topics []topicKey) {
	if len(topics) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if under := r.adopting[mirror]; under != nil {
		under.missed = true
		return
	}
	under := &adoption{}
	r.adopting[mirror] = under
	r.adopts.Go(func() {
		var work errgroup.Group
		work.SetLimit(topicsAtOnce)
		for _, key := range topics {
			work.Go(func() error {
				r.adoptOne(ctx, key)
				return nil
			})
		}
		_ = work.Wait()
		r.mu.Lock()
		delete(r.adopting, mirror)
		missed := under.missed
		r.mu.Unlock()
		if missed {
			r.poke()
		}
	})
}

// adoptOne adopts a topic, if that is still what is next for it when its turn comes.
func (r *Reconciler) adoptOne(ctx context.Context, key topicKey) {
	m, there := r.c.view.Mirror(key.mirror)
	if t, ok := r.c.view.Topic(key.mirror, key.topic); !ok || !there || !r.mine(key.mirror) || ctx.Err() != nil || !r.adoptee(t) {
		r.poke() // a stop is the next pass's
		return
	}
	again := r.turn(ctx, m, key)
	if t, ok := r.c.view.Topic(key.mirror, key.topic); again > 0 || !ok || !r.adoptee(t) {
		r.poke() // the next pass knows when
	}
}

// claim tells whether a step of a topic may begin: none is under way.
func (r *Reconciler) claim(key topicKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stepping[key] {
		return false
	}
	r.stepping[key] = true
	return true
}

func (r *Reconciler) release(key topicKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.stepping, key)
}

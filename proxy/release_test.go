package proxy

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// countedReply counts its releases.
type countedReply struct {
	fakeReply
	released *atomic.Int32
}

func (r countedReply) Release() { r.released.Add(1) }

// Every reply to a follower is released once, whether it could be written or not.
func TestRepliesAreReleased(t *testing.T) {
	const version = 17
	b := startBroker(t, authorize(t, true, nil))
	s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0))}
	s.cfg.Virtual = true
	var served, released atomic.Int32
	asked, gone := make(chan struct{}, 10), make(chan struct{})
	s.deps.Replica = &fakeReplica{fetch: func(ctx context.Context, _ *kmsg.FetchRequest) (FetchReply, error) {
		asked <- struct{}{}
		if served.Add(1) == 3 {
			<-gone // the follower, while its poll waits
			<-ctx.Done()
		}
		return countedReply{fakeReply{fetchResponse(version, 5000, -1)}, &released}, nil
	}}
	_, addr := s.start(t, b)
	c := dial(t, addr)
	for range 2 {
		c.ask(followerFetch(version))
		<-asked
	}
	waitFor(t, func() bool { return released.Load() == 2 })
	c.send(followerFetch(version), 7)
	<-asked
	_ = c.Close()
	close(gone)
	waitFor(t, func() bool { return released.Load() == 3 })
}

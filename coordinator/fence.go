package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// WriteFences hold back clients' writes to topics at the listeners of this sidecar.
type WriteFences interface {
	// Fence begins, prolongs or, with no lease, ends the fences of topics, and returns those
	// that were not fenced until now.
	Fence(topics []string, lease time.Duration) (anew []string, err error)
}

const (
	// maxFence is the longest lease: whoever wants more renews it, and while he lives
	// only.
	maxFence = 10 * time.Minute
	// fenceTimeout bounds how long one other sidecar may take to put a fence up.
	fenceTimeout = 5 * time.Second
	// maxNamesLogged bounds the names of topics in one line of the log.
	maxNamesLogged = 10
)

// fenceAnswer puts a fence up here and at every other sidecar. It is not kept anywhere: who
// needs it renews it, so that a sidecar which starts anew has it again, and when nobody
// renews it, it ends by itself. Who renews it must know of a sidecar that had lost it,
// and let writes through meanwhile: the answer for a topic has a message then.
func (c *Coordinator) fenceAnswer(ctx context.Context, fromPeer bool, r *protocol.FenceTopicWritesRequest) kmsg.Response {
	lease := time.Duration(r.LeaseMs) * time.Millisecond
	switch {
	case c.deps.Fences == nil:
		return failed(r, refuse(kerr.UnsupportedVersion.Code, "this sidecar has no listeners for clients"))
	case lease < 0 || lease > maxFence:
		return failed(r, refuse(kerr.InvalidRequest.Code, "a fence of %v: it may last from 0, which ends it, to %v; renew it to hold it longer", lease, maxFence))
	case len(r.Topics) > maxTopicsPerRequest:
		return failed(r, refuse(kerr.InvalidRequest.Code, "%d topics in one request, at most %d", len(r.Topics), maxTopicsPerRequest))
	}
	names := slices.Clone(r.Topics)
	slices.Sort(names)
	names = slices.Compact(names)
	var results []TopicResult
	var fence []string
	for _, n := range names {
		t := TopicResult{Name: n}
		if _, ok := c.img.Topic(n); !ok && lease > 0 {
			t.Err = refuse(kerr.UnknownTopicOrPartition.Code, "topic %s does not exist", n)
		} else {
			fence = append(fence, n)
		}
		results = append(results, t)
	}
	if len(fence) == 0 {
		return topicsAnswer(r, results, nil)
	}
	begun, err := c.deps.Fences.Fence(fence, lease)
	if err != nil {
		return failed(r, err)
	}
	anew := anewAt{}
	anew.add(c.cfg.Self, begun)
	if !fromPeer {
		err = c.fencePeers(ctx, c.img.Brokers(), fence, r.LeaseMs, anew)
	}
	for i := range results {
		if at := anew[results[i].Name]; len(at) > 0 && lease > 0 {
			results[i].Err = &Error{Message: fmt.Sprintf("fenced anew at the sidecars with virtual brokers %v", at)}
		}
	}
	c.log.Info("writes fenced", "topics", len(fence), "names", fence[:min(len(fence), maxNamesLogged)], "lease", lease)
	return topicsAnswer(r, results, err)
}

// anewAt names, by topic, the virtual brokers whose sidecars had not fenced it before.
type anewAt map[string][]int32

func (a anewAt) add(id int32, topics []string) {
	for _, t := range topics {
		a[t] = append(a[t], id)
	}
}

// fencePeers puts a fence up at the other sidecars. One whose virtual broker is alive and
// that does not answer lets writers through: that is an error.
func (c *Coordinator) fencePeers(ctx context.Context, brokers []metadata.Broker, topics []string, leaseMs int32, anew anewAt) error {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	var ask errgroup.Group
	var mu sync.Mutex // guards anew
	missing := make([]string, len(brokers))
	for i, b := range brokers {
		if !c.cfg.Virtual.Is(b.ID) || b.ID == c.cfg.Self {
			continue
		}
		dead := b.Fenced || b.ShuttingDown
		ask.Go(func() error {
			begun, err := c.fencePeer(ctx, b.ID, topics, leaseMs, !dead)
			mu.Lock()
			anew.add(b.ID, begun)
			mu.Unlock()
			switch {
			case err == nil:
			case dead:
				// It is gone, and so are its clients; if only its virtual broker is, it was asked.
				c.log.Warn("writes are not fenced at a sidecar that is not alive", "virtual_broker", b.ID, "err", err)
			default:
				missing[i] = fmt.Sprintf("%d (%v)", b.ID, err)
			}
			return nil
		})
	}
	_ = ask.Wait()
	missing = slices.DeleteFunc(missing, func(s string) bool { return s == "" })
	if len(missing) == 0 {
		return nil
	}
	return refuse(kerr.RequestTimedOut.Code, "writes are fenced here, but not at the sidecars with virtual brokers %s, which still let them through; the fences that are up end by themselves", strings.Join(missing, ", "))
}

// fencePeer puts a fence up at one other sidecar, and returns the topics that it had not
// fenced. If it insists it asks again while time is left: one that was started anew knows
// nothing of the connections to its predecessor, and may not have seen a new topic yet.
func (c *Coordinator) fencePeer(ctx context.Context, id int32, topics []string, leaseMs int32, insist bool) (anew []string, err error) {
	req := protocol.NewFenceTopicWritesRequest()
	req.Topics, req.LeaseMs = topics, leaseMs
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		resp, err := c.deps.Peers.Request(ctx, id, &req)
		if r, ok := resp.(*protocol.FenceTopicWritesResponse); ok && err == nil {
			err = errorOf(r.ErrorCode, r.ErrorMessage)
			for _, t := range r.Topics {
				if t.ErrorCode != 0 {
					err = errors.Join(err, errorOf(t.ErrorCode, t.ErrorMessage))
				} else if t.ErrorMessage != nil && !slices.Contains(anew, t.Name) {
					anew = append(anew, t.Name)
				}
			}
		}
		if err == nil || !insist {
			return anew, err
		}
		pause(ctx, wait)
		if ctx.Err() != nil {
			return anew, err
		}
	}
}

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// attemptTimeout bounds each step of an attempt (dialing, the answer), on top of the
	// time that the request itself allows the controller. A paused controller (its kernel still
	// accepts connections) must be given up well within a broker's session of 9 s.
	attemptTimeout = 2500 * time.Millisecond
	// AttemptTimeout is for dialers of the caller's own, which kgo.DialTimeout does not bound.
	AttemptTimeout = attemptTimeout
	// The pause after each controller has been asked in vain.
	minBackoff, maxBackoff = 50 * time.Millisecond, 500 * time.Millisecond
	// rest is for how long a controller that did not answer is left alone while others
	// do, lest each round of a search waits for one that is paused.
	rest = 2 * time.Second
	// maxPeers bounds what is learnt from answers, should a quorum change for ever.
	maxPeers = 32
)

// Client sends requests to the active controller. It is safe for concurrent use.
type Client struct {
	log  *slog.Logger
	opts []kgo.Opt

	mu     sync.Mutex // guards the following
	peers  []*peer    // the seeds in their order, then those learnt from answers
	active *peer      // the last one that acted as the active controller
	closed bool
}

// peer is one controller. A long poll of the metadata log has connections of its own,
// lest a heartbeat waits behind it: a broker answers a connection in order.
type peer struct {
	addr        string
	quick, poll *kgo.Client
	restUntil   time.Time // guarded by Client.mu
}

// New returns a client that starts from the controllers in bootstrap ("host:port"
// each). opts are what every connection needs, such as SASL and TLS. Nothing is
// dialed before the first request.
func New(bootstrap []string, opts []kgo.Opt, log *slog.Logger) (*Client, error) {
	if len(bootstrap) == 0 {
		return nil, errors.New("no controller given: controller.quorum.bootstrap.servers is empty")
	}
	c := &Client{log: log, opts: opts}
	for _, addr := range bootstrap {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			c.Close()
			return nil, fmt.Errorf("controller %q: %w", addr, err)
		}
		if slices.ContainsFunc(c.peers, func(p *peer) bool { return p.addr == addr }) {
			continue
		}
		p, err := c.newPeer(addr)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("controller %q: %w", addr, err)
		}
		c.peers = append(c.peers, p)
	}
	return c, nil
}

func (c *Client) newPeer(addr string) (*peer, error) {
	// Each controller has a client of its own, so that a request goes where it is meant
	// to go. Retries are this package's, and nothing here needs topic metadata.
	opts := append([]kgo.Opt{
		kgo.DialTimeout(attemptTimeout),
		kgo.RequestTimeoutOverhead(attemptTimeout),
		kgo.MetadataMaxAge(time.Hour),
		kgo.DisableClientMetrics(),
		kgo.BrokerMaxReadBytes(256 << 20),
	}, c.opts...)
	opts = append(opts, kgo.SeedBrokers(addr), kgo.RequestRetries(0))
	quick, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	poll, err := kgo.NewClient(opts...)
	if err != nil {
		quick.Close()
		return nil, err
	}
	return &peer{addr: addr, quick: quick, poll: poll}, nil
}

// Close ends all connections; requests under way fail.
func (c *Client) Close() {
	c.mu.Lock()
	peers := c.peers
	c.closed = true
	c.mu.Unlock()
	for _, p := range peers {
		p.quick.Close()
		p.poll.Close()
	}
}

// Request sends req to the active controller and returns its answer, whatever errors
// of its own that carries. Answers that mean "not the active controller" and failed
// connections lead on to the next controller, again and again until ctx ends; then the
// error is an *UnavailableError that tells what each controller last answered.
//
// A request may have been carried out although its connection failed before the
// answer came, and is then sent once more: requests that change something must be
// ones that can be repeated, or be fenced by an epoch.
func (c *Client) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = minBackoff, maxBackoff
	pause.Reset()

	failed := &UnavailableError{Request: kmsg.NameForKey(req.Key())}
	for {
		tried := make(map[*peer]bool)
		answered := false
		for p := c.next(tried, answered); p != nil; p = c.next(tried, answered) {
			if err := ctx.Err(); err != nil {
				return nil, failed.because(err)
			}
			tried[p] = true
			resp, err := p.send(ctx, req)
			if errors.Is(err, kgo.ErrClientClosed) {
				return nil, failed.because(err)
			}
			if err == nil {
				answered = true
				err = notActive(resp)
				c.learn(p, resp, err)
				if err == nil {
					return resp, nil
				}
			} else if ctx.Err() == nil {
				c.demote(p, rest)
			}
			failed.note(p.addr, err)
			c.log.Debug("controller did not take the request",
				"request", failed.Request, "controller", p.addr, "error", err)
		}
		t := time.NewTimer(pause.NextBackOff())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, failed.because(ctx.Err())
		}
	}
}

// next returns the controller to ask next in this round: the one held for active,
// else the first not tried. Those that rest come last, and only if no other answered.
func (c *Client) next(tried map[*peer]bool, answered bool) *peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active != nil && !tried[c.active] {
		return c.active
	}
	now := time.Now()
	var resting *peer
	for _, p := range c.peers {
		switch {
		case tried[p]:
		case now.After(p.restUntil):
			return p
		case resting == nil:
			resting = p
		}
	}
	if answered {
		return nil
	}
	return resting
}

// demote forgets that p is active, and lets it rest.
func (c *Client) demote(p *peer, rest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active == p {
		c.active = nil
	}
	if rest > 0 {
		p.restUntil = time.Now().Add(rest)
	}
}

// learn remembers who is active after p's answer: p itself, or the one it named.
func (c *Client) learn(p *peer, resp kmsg.Response, notActive error) {
	if notActive == nil && !provesActive(resp) {
		return
	}
	active := p
	if notActive != nil {
		active = c.named(resp)
		if active == nil || active == p {
			c.demote(p, 0)
			return
		}
	}
	c.mu.Lock()
	changed := c.active != active
	c.active = active
	c.mu.Unlock()
	if changed && notActive == nil {
		c.log.Info("active controller", "controller", active.addr)
	}
}

// named returns the controller that an answer to a fetch names as the leader of the
// metadata log. It may be one that is not among the seeds: the quorum can change.
func (c *Client) named(resp kmsg.Response) *peer {
	f, ok := resp.(*kmsg.FetchResponse)
	if !ok || len(f.Topics) == 0 || len(f.Topics[0].Partitions) == 0 {
		return nil
	}
	leader := f.Topics[0].Partitions[0].CurrentLeader.LeaderID
	for _, b := range f.Brokers {
		if b.NodeID != leader || leader < 0 {
			continue
		}
		addr := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, p := range c.peers {
			if p.addr == addr {
				return p
			}
		}
		if c.closed || len(c.peers) >= maxPeers {
			return nil
		}
		p, err := c.newPeer(addr)
		if err != nil {
			c.log.Warn("cannot use the controller that another one named", "controller", addr, "error", err)
			return nil
		}
		c.peers = append(c.peers, p)
		return p
	}
	return nil
}

// send makes one attempt. It is bounded by the timeouts that newPeer gives the client
// and not by a context of its own: when a context ends, kgo returns while it may still
// hold the request, which the next attempt would then write to at the same time.
func (p *peer) send(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	cl := p.quick
	switch req.(type) {
	case *kmsg.FetchRequest, *kmsg.FetchSnapshotRequest:
		cl = p.poll
	}
	return cl.SeedBrokers()[0].Request(ctx, req)
}

// UnavailableError says that no active controller was found in time.
type UnavailableError struct {
	Request string   // name of the API
	Answers []Answer // the last answer of each controller that was asked
	Cause   error    // why it was given up, such as the context's error
}

// Answer is what one controller last said to a request.
type Answer struct {
	Controller string
	Err        error
}

func (e *UnavailableError) note(controller string, err error) {
	for i := range e.Answers {
		if e.Answers[i].Controller == controller {
			// That its turn was cut short by the end of ctx says less than what it
			// answered before.
			if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				e.Answers[i].Err = err
			}
			return
		}
	}
	e.Answers = append(e.Answers, Answer{Controller: controller, Err: err})
}

func (e *UnavailableError) because(err error) *UnavailableError {
	e.Cause = err
	return e
}

func (e *UnavailableError) Error() string {
	s := fmt.Sprintf("no active controller took %s (%v)", e.Request, e.Cause)
	for i, a := range e.Answers {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		s += fmt.Sprintf("%s%s: %v", sep, a.Controller, a.Err)
	}
	return s
}

// Unwrap returns the cause and what the controllers answered, so that errors.Is finds
// either.
func (e *UnavailableError) Unwrap() []error {
	errs := []error{e.Cause}
	for _, a := range e.Answers {
		errs = append(errs, a.Err)
	}
	return errs
}

// notActive returns the error by which an answer says that its sender is not the
// active controller, nil if it does not say so.
func notActive(resp kmsg.Response) error {
	var first error
	for _, code := range refusals(resp) {
		switch code {
		case kerr.NotController.Code, kerr.NotLeaderForPartition.Code:
			// 6 is what the raft layer says, 41 the controller above it.
		case kerr.UnknownLeaderEpoch.Code:
			// Of a fetch: a controller that has not heard of the latest election yet.
		default:
			return nil
		}
		if first == nil {
			first = kerr.ErrorForCode(code)
		}
	}
	return first
}

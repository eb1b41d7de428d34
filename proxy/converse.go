package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// conversationID is the correlation id of the proxy's own requests. One is enough:
// there is never more than one of them under way.
const conversationID int32 = -0x4d4d

// conversation is the upstream connection while an exchange has it for itself. The
// requests go under the caller's identity and client id.
type conversation struct {
	c *conn
}

// request sends a request and waits for its response. If ctx ends before, the connection
// does: nobody would take the response from it.
func (v *conversation) request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	c := v.c
	ctx, cancel := context.WithTimeoutCause(ctx, c.p.cfg.AnswerTimeout, because(reasonNoAnswer, "none came for %v", c.p.cfg.AnswerTimeout))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		c.close(fmt.Errorf("wait for the home broker's answer to %s: %w", kmsg.NameForKey(req.Key()), context.Cause(ctx)))
	})
	defer stop()
	if _, err := c.up.Write(encodeRequest(req, conversationID, c.clientID)); err != nil {
		return nil, fmt.Errorf("write to the home broker: %w", err)
	}
	size, err := c.out.size()
	if err != nil {
		return nil, err
	}
	if size > c.p.cfg.MaxResponse {
		return nil, fmt.Errorf("response of %d bytes, at most %d are read", size, c.p.cfg.MaxResponse)
	}
	if err := c.out.checkCorrelation(conversationID); err != nil {
		return nil, err
	}
	raw := make([]byte, sizeLen+size)
	if _, err := io.ReadFull(c.out.r, raw); err != nil {
		return nil, upstreamError(err)
	}
	body, err := responseBody(raw[sizeLen:], req.Key(), req.IsFlexible())
	if err != nil {
		return nil, err
	}
	return decodeResponse(req.Key(), req.GetVersion(), body)
}

// authorityLasts is for how long the broker's verdict on a caller is believed.
const authorityLasts = 30 * time.Second

// authority is what the home broker is known to grant to the caller. The broker is
// asked on the caller's own connection: a broker hangs up on whoever has not
// authenticated, and so does the proxy then.
//
// It is asked again from time to time: a session has an end (connections.max.reauth.ms), of
// which a broker that is sent nothing says nothing, and rights are taken away.
type authority struct {
	authenticated believed
	follower      believed // the caller has CLUSTER_ACTION
}

// believed is a verdict of the broker's that holds for authorityLasts.
type believed struct{ until atomic.Int64 }

// Store keeps a verdict.
func (b *believed) Store(v bool) {
	until := int64(0)
	if v {
		until = time.Now().Add(authorityLasts).UnixNano()
	}
	b.until.Store(until)
}

// Load tells whether the verdict is known, and not too old.
func (b *believed) Load() bool { return time.Now().UnixNano() < b.until.Load() }

// mustAuthenticate makes sure that the broker has accepted the caller before an
// exchange is answered here.
func (c *conn) mustAuthenticate(ex *exchange) {
	if c.authority.authenticated.Load() {
		return
	}
	then := ex.converse
	ex.converse = func(ctx context.Context, up *conversation) error {
		if err := c.authenticate(ctx, up); err != nil || then == nil {
			return err
		}
		return then(ctx, up)
	}
}

func (c *conn) authenticate(ctx context.Context, up *conversation) error {
	if c.authority.authenticated.Load() {
		return nil
	}
	// Metadata of no topic needs no right. The version is one that all destinations have; of the
	// early ones later brokers have fewer and fewer.
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	req.Topics = []kmsg.MetadataRequestTopic{}
	if _, err := up.request(ctx, req); err != nil {
		return fmt.Errorf("ask whether the caller is authenticated: %w", err)
	}
	c.authority.authenticated.Store(true)
	c.login.done.Store(true)
	return nil
}

// isFollower tells whether the caller is known to be a broker.
func (c *conn) isFollower() bool { return c.authority.follower.Load() }

// askFollower asks the broker whether the caller has CLUSTER_ACTION: a follower's Fetch
// of a topic that does not exist says UNKNOWN_TOPIC_ID to who has it, and
// TOPIC_AUTHORIZATION_FAILED to others.
func (c *conn) askFollower(ctx context.Context, up *conversation) (bool, error) {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 13
	req.ReplicaID = c.p.cfg.Home
	req.MaxBytes = 1
	req.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.TopicID = noSuchTopic
	part := kmsg.NewFetchRequestTopicPartition()
	part.PartitionMaxBytes = 1
	t.Partitions = append(t.Partitions, part)
	req.Topics = append(req.Topics, t)
	resp, err := up.request(ctx, req)
	if err != nil {
		return false, fmt.Errorf("ask whether the caller may fetch as a follower: %w", err)
	}
	for _, t := range resp.(*kmsg.FetchResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == errUnknownTopicID || p.ErrorCode == errUnknownTopicOrPartition {
				c.authority.authenticated.Store(true)
				c.login.done.Store(true)
				c.authority.follower.Store(true)
				return true, nil
			}
		}
	}
	return false, nil
}

// noSuchTopic is an id no topic has: topic ids are random UUIDs of version 4, this is
// not.
var noSuchTopic = ids.UUID{0: 'm', 1: 'i', 2: 'r', 3: 'r', 4: 'o', 5: 'r', 15: 1}

// followerOnly makes an exchange that is answered by answer if the caller is a broker,
// else by refuse.
func (c *conn) followerOnly(ex *exchange, answer, refuse func(ctx context.Context) (net.Buffers, error)) {
	ex.answer = answer
	if c.isFollower() {
		return
	}
	allowed := false
	ex.converse = func(ctx context.Context, up *conversation) error {
		var err error
		allowed, err = c.askFollower(ctx, up)
		return err
	}
	ex.answer = func(ctx context.Context) (net.Buffers, error) {
		if !allowed {
			return refuse(ctx)
		}
		return answer(ctx)
	}
}

// local makes an exchange of a response that is known already.
func (c *conn) local(h header, resp kmsg.Response) exchange {
	ex := relayed(h)
	ex.answer = func(context.Context) (net.Buffers, error) {
		return responseFrame(resp, h)
	}
	c.mustAuthenticate(&ex)
	return ex
}

func responseFrame(resp kmsg.Response, h header) (net.Buffers, error) {
	resp.SetVersion(h.version)
	return net.Buffers{appendResponse(nil, resp, h.correlation)}, nil
}

// Caller is who sent a mirror API request.
type Caller interface {
	// ClientID is what the caller says it is.
	ClientID() string
	// Request asks the home broker on the caller's own connection, so under the caller's
	// identity: the cluster's authorizer decides what the caller may do.
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// consult holds a conversation with the broker before it is decided what becomes of a
// request. It is for handlers, which the reader runs: it returns when the earlier answers
// are delivered and fn has ended. An error ends the connection.
func (c *conn) consult(r *request, fn func(ctx context.Context, who Caller) error) error {
	ex := relayed(r.header)
	var failed error
	ex.converse = func(ctx context.Context, up *conversation) error {
		if failed = c.authenticate(ctx, up); failed != nil {
			return failed
		}
		who := &caller{up: up}
		if r.clientID != nil {
			who.clientID = *r.clientID
		}
		defer who.end()
		failed = fn(ctx, who)
		return failed
	}
	if err := c.enqueue(&ex); err != nil {
		return err
	}
	select {
	case <-ex.released:
		return failed
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}

type callerKey struct{}

// CallerOf returns the caller of the request that is being handled. It may be used
// until MirrorHandler.Handle returns.
func CallerOf(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// WithCaller returns a context with a caller, for tests of handlers.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

type caller struct {
	clientID string

	mu sync.Mutex // guards the following, and runs one request at a time
	up *conversation
}

func (c *caller) ClientID() string { return c.clientID }

func (c *caller) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.up == nil {
		return nil, errors.New("the caller's request has been answered already")
	}
	return c.up.request(ctx, req)
}

func (c *caller) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up = nil
}

// mirrorAPI lets the MirrorHandler answer. It runs as a conversation, so that the
// handler can ask the broker what the caller may do.
func (c *conn) mirrorAPI(r *request) (exchange, error) {
	ex := relayed(r.header)
	var body []byte
	ex.converse = func(ctx context.Context, up *conversation) error {
		if err := c.authenticate(ctx, up); err != nil {
			return err
		}
		who := &caller{up: up}
		if r.clientID != nil {
			who.clientID = *r.clientID
		}
		defer who.end()
		var err error
		body, err = c.p.deps.Mirror.Handle(WithCaller(ctx, who), r.key, r.version, who.clientID, r.body)
		return err
	}
	ex.answer = func(context.Context) (net.Buffers, error) {
		return net.Buffers{rawResponse(r.correlation, body)}, nil
	}
	return ex, nil
}

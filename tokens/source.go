package tokens

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Token is what a client shows.
type Token struct {
	Text string
	// From and Until bound its life as far as known; a zero Until is not known, and such a token is not kept.
	From, Until time.Time
}

// Fetch gets a token from where tokens come from.
type Fetch func(ctx context.Context) (Token, error)

// Times say when a token is replaced, and when a fetch that failed is tried again.
type Times struct {
	// Window is the part of a token's life after which the next one is fetched.
	Window float64
	// Backoff is what is waited after a failure, doubled up to MaxBackoff, which is also how long one Get
	// tries.
	Backoff, MaxBackoff time.Duration
}

// errorTemporary marks failures that may be gone a moment later.
type errorTemporary struct{ error }

func (e errorTemporary) Unwrap() error { return e.error }

// Source keeps one token. It has no goroutine: who needs a token renews it, and the others wait for him.
type Source struct {
	fetch Fetch
	times Times
	now   func() time.Time
	sleep func(ctx context.Context, d time.Duration) error

	turn chan struct{} // held by the one who fetches

	mu      sync.Mutex // guards the following
	token   Token
	failed  error
	again   time.Time // no fetch before, after one that failed
	backoff time.Duration
}

// New returns a source that has no token yet.
func New(fetch Fetch, times Times) *Source {
	return &Source{fetch: fetch, times: times, now: time.Now, sleep: sleep, turn: make(chan struct{}, 1)}
}

// Get returns a token that has not ended. One that ends soon is replaced first; if that fails, it is
// used as long as it lasts.
func (s *Source) Get(ctx context.Context) (Token, error) {
	if t, err, done := s.kept(); done {
		return t, err
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return Token{}, ctx.Err()
	}
	if t, err, done := s.kept(); done { // somebody has fetched meanwhile
		return t, err
	}
	t, err := s.try(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if err == nil && !t.Until.IsZero() && !now.Before(t.Until) {
		err = errors.New("the token has ended before it was used: compare the clocks, or replace it in time")
	}
	if err == nil {
		s.token, s.failed, s.backoff = t, nil, 0
		return t, nil
	}
	if ctx.Err() == nil { // else the caller went away, which says nothing of the endpoint
		s.backoff = min(max(2*s.backoff, s.times.Backoff), s.times.MaxBackoff)
		s.failed, s.again = err, now.Add(s.backoff)
	}
	if now.Before(s.token.Until) {
		return s.token, nil
	}
	return Token{}, err
}

// kept answers without a fetch if it can.
func (s *Source) kept() (t Token, err error, done bool) { //nolint:revive // the answer as Get returns it, and whether it is one
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	life := s.token.Until.Sub(s.token.From)
	switch {
	case now.Before(s.token.From.Add(time.Duration(s.times.Window*float64(life)))) && now.Before(s.token.Until):
		return s.token, nil, true
	case s.failed == nil || !now.Before(s.again):
		return Token{}, nil, false
	case now.Before(s.token.Until):
		return s.token, nil, true
	}
	return Token{}, s.failed, true
}

// try fetches, again and again while what fails may be gone a moment later.
func (s *Source) try(ctx context.Context) (Token, error) {
	end, wait := s.now().Add(s.times.MaxBackoff), s.times.Backoff
	for {
		t, err := s.fetch(ctx)
		var temporary errorTemporary
		if err == nil || !errors.As(err, &temporary) || s.now().Add(wait).After(end) {
			return t, err
		}
		s.mu.Lock()
		useful := s.now().Before(s.token.Until)
		s.mu.Unlock()
		if useful { // nobody needs to wait
			return t, err
		}
		if s.sleep(ctx, wait) != nil {
			return t, err
		}
		wait = min(2*wait, s.times.MaxBackoff)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

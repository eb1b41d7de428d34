package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// patience bounds what a test waits for; nothing is expected to take long.
const patience = 30 * time.Second

// sinkPlugin takes events, as long as it is not told to do otherwise.
type sinkPlugin struct {
	Plugin // nothing else is asked of it
	name   string
	// answer says what becomes of a question; nil takes it.
	answer func(ctx context.Context, r *policyv1.NotifyRequest) error

	mu    sync.Mutex // guards the following
	taken []*policyv1.NotifyRequest
	news  chan struct{}
}

func (p *sinkPlugin) Name() string { return p.name }

func (p *sinkPlugin) Notify(ctx context.Context, r *policyv1.NotifyRequest) (*policyv1.NotifyResponse, error) {
	if p.answer != nil {
		if err := p.answer(ctx, r); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	p.taken = append(p.taken, r)
	p.mu.Unlock()
	p.news <- struct{}{}
	return &policyv1.NotifyResponse{}, nil
}

// await returns the details of all events taken, once there are n, and how many were given up.
func (p *sinkPlugin) await(t *testing.T, n int) (details []string, givenUp int64) {
	t.Helper()
	deadline := time.After(patience)
	for {
		p.mu.Lock()
		details, givenUp = nil, 0
		for _, r := range p.taken {
			givenUp += r.GivenUp
			for _, e := range r.Events {
				details = append(details, e.Detail)
			}
		}
		p.mu.Unlock()
		if len(details) >= n {
			return details, givenUp
		}
		select {
		case <-p.news:
		case <-deadline:
			t.Fatalf("%s has taken %d events, not %d", p.name, len(details), n)
		}
	}
}

type sinkPlugins map[string]*sinkPlugin

func (s sinkPlugins) Get(name string) (Plugin, error) {
	if p, ok := s[name]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("there is no plugin %s", name)
}

func newSink(name string, answer func(ctx context.Context, r *policyv1.NotifyRequest) error) *sinkPlugin {
	return &sinkPlugin{name: name, answer: answer, news: make(chan struct{}, 10_000)}
}

func newDispatch(t *testing.T, sinks ...*sinkPlugin) *EventDispatch {
	t.Helper()
	ps := sinkPlugins{}
	for _, s := range sinks {
		ps[s.name] = s
	}
	d := NewEventDispatch(ps, NewLedger(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	d.minWait, d.maxWait = time.Millisecond, 5*time.Millisecond
	t.Cleanup(func() { stopped(t, d) })
	return d
}

func stopped(t *testing.T, d *EventDispatch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := d.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func numbered(from, to int) []*policyv1.Event {
	var out []*policyv1.Event
	for i := from; i < to; i++ {
		out = append(out, &policyv1.Event{Topic: "t", Detail: fmt.Sprint(i)})
	}
	return out
}

func details(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

func TestEventsInOrderAndInBatches(t *testing.T) {
	p := newSink("p", nil)
	d := newDispatch(t, p)
	d.batch = 7
	q := Question{Mirror: "m", SourceClusterID: "there", DestinationClusterID: "here", Config: map[string]string{"k": "v"}}
	d.Tell(q, []string{"p"}, numbered(0, 50))
	d.Tell(q, []string{"p"}, numbered(50, 100))
	got, _ := p.await(t, 100)
	if !slices.Equal(got, details(0, 100)) {
		t.Errorf("taken: %v", got)
	}
	for _, r := range p.taken {
		if len(r.Events) > 7 || r.Round.GetMirror() != "m" || r.Round.SourceClusterId != "there" || r.Round.DestinationClusterId != "here" || r.Round.MirrorConfig["k"] != "v" {
			t.Errorf("told of %d events with %v", len(r.Events), r.Round)
		}
	}
}

// A sink that fails is told again, from where it was: nothing is lost and nothing overtakes.
func TestEventsAgainAfterAFailure(t *testing.T) {
	calls := 0
	p := newSink("p", func(context.Context, *policyv1.NotifyRequest) error {
		if calls++; calls%3 != 0 {
			return errors.New("it has crashed")
		}
		return nil
	})
	d := newDispatch(t, p)
	d.batch = 10
	d.Tell(Question{Mirror: "m"}, []string{"p"}, numbered(0, 100))
	got, givenUp := p.await(t, 100)
	if !slices.Equal(got, details(0, 100)) || givenUp != 0 {
		t.Errorf("taken: %v, given up: %d", got, givenUp)
	}
}

// A sink that hangs holds up neither who tells nor another one, and its queue is bounded: the newest stay.
func TestEventsOfAHangingSink(t *testing.T) {
	stuck, goOn := make(chan struct{}), make(chan struct{})
	first := true
	hangs := newSink("hangs", func(ctx context.Context, _ *policyv1.NotifyRequest) error {
		if first {
			first = false
			close(stuck)
			select {
			case <-goOn:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	well := newSink("well", nil)
	d := newDispatch(t, hangs, well)
	d.batch, d.limit = 10, 50
	both := []string{"hangs", "well"}
	d.Tell(Question{Mirror: "m"}, both, numbered(0, 1))
	<-stuck
	for i := 1; i < 201; i += 20 {
		d.Tell(Question{Mirror: "m"}, both, numbered(i, i+20))
		well.await(t, i+20)
	}
	if s := d.Status("m"); len(s) != 2 || s[0].Plugin != "hangs" || s[0].Waiting != 51 || s[0].GivenUp != 150 || s[1].Waiting != 0 {
		t.Errorf("status: %+v", s)
	}
	close(goOn)
	got, givenUp := hangs.await(t, 51)
	if want := append([]string{"0"}, details(151, 201)...); !slices.Equal(got, want) || givenUp != 150 {
		t.Errorf("taken: %v, given up: %d", got, givenUp)
	}
}

// What waits for too long is given up, and how much that was is told with the next that is taken.
func TestEventsGivenUpByAge(t *testing.T) {
	var mu sync.Mutex
	down := true
	p := newSink("p", func(context.Context, *policyv1.NotifyRequest) error {
		mu.Lock()
		defer mu.Unlock()
		if down {
			return errors.New("it is down")
		}
		return nil
	})
	d := newDispatch(t, p)
	var later atomic.Int64
	begun := time.Now()
	d.now = func() time.Time { return begun.Add(time.Duration(later.Load())) }
	d.Tell(Question{Mirror: "m"}, []string{"p"}, numbered(0, 30))
	later.Store(int64(HoldEvents + time.Second))
	deadline := time.Now().Add(patience)
	for s := d.Status("m"); s[0].GivenUp < 30; s = d.Status("m") {
		if time.Now().After(deadline) {
			t.Fatalf("status: %+v", s)
		}
		time.Sleep(time.Millisecond)
	}
	mu.Lock()
	down = false
	mu.Unlock()
	d.Tell(Question{Mirror: "m"}, []string{"p"}, numbered(30, 31))
	got, givenUp := p.await(t, 1)
	if !slices.Equal(got, details(30, 31)) || givenUp != 30 {
		t.Errorf("taken: %v, given up: %d", got, givenUp)
	}
	stopped(t, d)
	if runs := d.ledger.Runs("m"); len(runs) != 1 || runs[0].Kind != Events || runs[0].Plugin != "p" || runs[0].LastError != "" ||
		len(runs[0].Warnings) != 1 || !strings.HasPrefix(runs[0].Warnings[0], "30 events were given up") {
		t.Errorf("described: %+v", runs)
	}
}

// A mirror that is coordinated elsewhere is not told of from here any more, whatever waits.
func TestEventsEndWithTheMirror(t *testing.T) {
	asked := make(chan struct{}, 1)
	p := newSink("p", func(ctx context.Context, r *policyv1.NotifyRequest) error {
		if r.Round.GetMirror() != "away" {
			return nil
		}
		asked <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	d := newDispatch(t, p)
	d.Tell(Question{Mirror: "away"}, []string{"p"}, numbered(0, 5))
	d.Tell(Question{Mirror: "stays"}, []string{"p"}, numbered(5, 10))
	<-asked
	d.Keep(map[string][]string{"stays": {"p"}})
	if s := d.Status("away"); len(s) != 0 {
		t.Errorf("status: %+v", s)
	}
	got, _ := p.await(t, 5)
	if !slices.Equal(got, details(5, 10)) {
		t.Errorf("taken: %v", got)
	}
}

// A plugin that there is none of, or none any more, is an error that is shown, and no more.
func TestEventsForNobody(t *testing.T) {
	d := newDispatch(t)
	d.Tell(Question{Mirror: "m"}, []string{"gone"}, numbered(0, 1))
	deadline := time.Now().Add(patience)
	for s := d.Status("m"); s[0].LastError == ""; s = d.Status("m") {
		if time.Now().After(deadline) {
			t.Fatalf("status: %+v", s)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestEventQueue(t *testing.T) {
	now := time.Now()
	q := eventQueue{limit: 3}
	q.add(now, numbered(0, 5)) // 2, 3, 4 stay
	texts := func(events []*policyv1.Event) (out []string) {
		for _, e := range events {
			out = append(out, e.Detail)
		}
		return out
	}
	got, givenUp := q.take(2, now)
	if !slices.Equal(texts(got), details(2, 4)) || givenUp != 2 {
		t.Errorf("%v, %d", texts(got), givenUp)
	}
	// More comes in, and what is being told is not given up for it.
	q.add(now.Add(time.Second), numbered(5, 9)) // 6, 7, 8 stay
	if got, givenUp = q.take(2, now); !slices.Equal(texts(got), details(2, 4)) || givenUp != 4 {
		t.Errorf("again: %v, %d", texts(got), givenUp)
	}
	q.done(4)
	if got, givenUp = q.take(5, now); !slices.Equal(texts(got), details(6, 9)) || givenUp != 0 {
		t.Errorf("next: %v, %d", texts(got), givenUp)
	}
	if got, givenUp = q.take(5, now.Add(time.Minute)); len(got) != 0 || givenUp != 3 || q.len() != 0 || q.total != 7 {
		t.Errorf("too old: %v, %d, %d, %d", texts(got), givenUp, q.len(), q.total)
	}
}

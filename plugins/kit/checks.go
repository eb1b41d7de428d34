package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/host"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// check is one line of the report.
type check struct {
	name string
	do   func(ctx context.Context, k *kit) error
}

const (
	// page is the most that a question is about.
	page = 2000
	// some is a page that is asked about in many ways.
	some = 120
	// atOnce questions a sidecar may have.
	atOnce = 8
)

func starts() check {
	return check{"starts, and says what it is", func(ctx context.Context, k *kit) error {
		if err := k.settle(ctx, false); err != nil {
			return err
		}
		if s := k.plugin.Status(); strings.TrimSpace(s.Version) == "" || strings.TrimSpace(s.Title) == "" {
			return errors.New("its answer to Describe has no name, or no version")
		}
		return nil
	}}
}

// settle returns when the plugin runs, which may take longer than an answer, and again if the check
// before has cost it its process.
func (k *kit) settle(ctx context.Context, again bool) error {
	ctx, cancel := context.WithTimeout(ctx, host.DefaultStartTimeout)
	defer cancel()
	for {
		err := k.plugin.Start(ctx)
		switch s := k.plugin.Status(); {
		case err == nil || ctx.Err() != nil:
			return err
		case !again && !s.LastErrorAt.IsZero(): // it has ended, and would again
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

func general() []check {
	return []check{
		{"started by hand, says that it is a plugin, and ends with an error", byHand},
		{"takes no connection but the sidecar's", func(ctx context.Context, k *kit) error { return k.plugin.RefusesStrangers(ctx) }},
	}
}

// byHand starts the program without what a sidecar tells it.
func byHand(ctx context.Context, k *kit) error {
	ctx, cancel := context.WithTimeout(ctx, max(k.cfg.Timeout, 30*time.Second))
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, k.cfg.Command[0], k.cfg.Command[1:]...)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return errors.New("it waits for something")
	case err == nil:
		return errors.New("its exit status is 0")
	case said.Len() == 0:
		return errors.New("it says nothing")
	}
	return nil
}

func ends() check {
	return check{"ends when it is told to", func(ctx context.Context, k *kit) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := k.host.Stop(ctx); err != nil {
			return err
		}
		if k.plugin.Status().Overdue {
			return errors.New("it had to be killed: plugin.GRPCController/Shutdown is how it is told")
		}
		return nil
	}}
}

// ofKind are the checks of one kind.
func ofKind(q kind) []check {
	ask := func(ctx context.Context, k *kit, facts []proto.Message) ([]proto.Message, error) {
		return q.ask(ctx, k.plugin, k.round(policyv1.Round_REFRESH), facts)
	}
	answers := func(facts func() []proto.Message) func(ctx context.Context, k *kit) error {
		return func(ctx context.Context, k *kit) error {
			_, err := ask(ctx, k, facts())
			return err
		}
	}
	list := []check{
		{"a page with nothing in it", answers(func() []proto.Message { return nil })},
		{"one item", answers(func() []proto.Message { return q.ordinary(1) })},
		{fmt.Sprintf("a page of %d items, in time", page), answers(func() []proto.Message { return q.ordinary(page) })},
		{"odd names", answers(q.odd)},
		{"a very large item", answers(func() []proto.Message { return []proto.Message{q.large()} })},
		{"facts of which almost nothing is known", answers(q.bare)},
		{"words and fields that a later version may have", func(ctx context.Context, k *kit) error {
			facts := q.unknown()
			r := k.round(99)
			later(facts[0])
			later(r)
			_, err := q.ask(ctx, k.plugin, r, facts)
			return err
		}},
		{"a question without its round", func(ctx context.Context, k *kit) error {
			_, err := q.ask(ctx, k.plugin, nil, nil)
			return err
		}},
	}
	if !q.told {
		list = append(list, decides(q, ask)...)
	}
	list = append(list,
		check{fmt.Sprintf("%d questions at once", atOnce), func(ctx context.Context, k *kit) error {
			facts := q.ordinary(some)
			want, err := ask(ctx, k, facts)
			if err != nil {
				return err
			}
			errs := make([]error, atOnce)
			var all sync.WaitGroup
			for i := range atOnce {
				all.Go(func() {
					got, err := ask(ctx, k, facts)
					if err == nil {
						err = same(facts, want, got)
					}
					errs[i] = err
				})
			}
			all.Wait()
			return errors.Join(errs...)
		}},
		check{"a question that nobody waits for", func(ctx context.Context, k *kit) error {
			before := k.plugin.Status().PID
			gone, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond, cancel)
			_, _ = ask(gone, k, q.ordinary(page))
			cancel()
			if _, err := ask(ctx, k, q.ordinary(1)); err != nil {
				return fmt.Errorf("the next one: %w", err)
			}
			if k.plugin.Status().PID != before {
				return fmt.Errorf("it did not survive: %w", k.plugin.Status().LastError)
			}
			return nil
		}},
		check{"killed, it goes on where it was", func(ctx context.Context, k *kit) error {
			facts := q.ordinary(some)
			want, err := ask(ctx, k, facts)
			if err != nil {
				return err
			}
			pid := k.plugin.Status().PID
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				return fmt.Errorf("kill it: %w", err)
			}
			ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
			defer cancel()
			var got []proto.Message
			for got == nil || k.plugin.Status().PID == pid {
				if err := k.settle(ctx, true); err != nil {
					return err
				}
				got, err = ask(ctx, k, facts)
				switch {
				case err != nil && ctx.Err() != nil:
					return err
				case err != nil:
					got = nil
				case q.told:
					got = facts[:0]
				}
			}
			return same(facts, want, got)
		}},
	)
	for i := range list {
		list[i].name = string(q.name) + ": " + list[i].name
	}
	return list
}

// decides are the checks of kinds that there is something to decide in.
func decides(q kind, ask func(ctx context.Context, k *kit, facts []proto.Message) ([]proto.Message, error)) []check {
	return []check{
		{"the same facts, the same decisions", func(ctx context.Context, k *kit) error {
			facts := q.ordinary(some)
			want, err := ask(ctx, k, facts)
			if err != nil {
				return err
			}
			got, err := ask(ctx, k, facts)
			if err != nil {
				return err
			}
			return same(facts, want, got)
		}},
		{"each item by itself: in other pages and another order", func(ctx context.Context, k *kit) error {
			facts := q.ordinary(some)
			want, err := ask(ctx, k, facts)
			if err != nil {
				return err
			}
			slices.Reverse(facts)
			slices.Reverse(want)
			var got []proto.Message
			for part := range slices.Chunk(facts, len(facts)/4+1) {
				d, err := ask(ctx, k, part)
				if err != nil {
					return err
				}
				got = append(got, d...)
			}
			return same(facts, want, got)
		}},
		{"asked why, it decides as it did", func(ctx context.Context, k *kit) error {
			facts := q.ordinary(some)
			want, err := ask(ctx, k, facts)
			if err != nil {
				return err
			}
			got, err := q.ask(ctx, k.plugin, k.round(policyv1.Round_EXPLAIN), facts)
			if err != nil {
				return err
			}
			return same(facts, want, got)
		}},
	}
}

// same tells of the first item that was decided on in two ways.
func same(facts, want, got []proto.Message) error {
	if len(want) != len(got) {
		return fmt.Errorf("%d decisions, and then %d", len(want), len(got))
	}
	for i := range want {
		if !proto.Equal(want[i], got[i]) {
			return fmt.Errorf("of %s: first %s, then %s", text(facts[i]), text(want[i]), text(got[i]))
		}
	}
	return nil
}

func text(m proto.Message) string {
	s := strings.Join(strings.Fields(fmt.Sprint(m)), " ")
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "…"
	}
	return s
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

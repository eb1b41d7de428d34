package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

const (
	undoTimeout = 15 * time.Second
	// maxFence is the longest lease that a sidecar gives.
	maxFence = 10 * time.Minute
)

// canFence asks whether the address is a sidecar's that can hold writes back.
func canFence(ctx context.Context, src *kgo.Client) (bool, error) {
	fence := protocol.NewFenceTopicWritesRequest()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = program, "1"
	var errs []error
	for _, b := range src.SeedBrokers() {
		r, err := b.RetriableRequest(ctx, req)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, k := range r.(*kmsg.ApiVersionsResponse).ApiKeys { //nolint:forcetypeassert // it answers this request
			if k.ApiKey == fence.Key() {
				return true, nil
			}
		}
		return false, nil
	}
	return false, errors.Join(errs...)
}

// fence holds writes to topics of the source back for as long as it is prolonged.
type fence struct {
	src    *kgo.Client
	topics []string
	lease  time.Duration

	stop  context.CancelFunc
	ended sync.WaitGroup

	mu    sync.Mutex
	until time.Time // as of the last answer
	gap   bool      // it ran out once
}

func newFence(src *kgo.Client, topics []string, lease time.Duration) *fence {
	return &fence{src: src, topics: topics, lease: lease}
}

// begin raises the fence and prolongs it until end.
func (f *fence) begin(ctx context.Context) error {
	if err := f.extend(ctx, f.lease); err != nil {
		return err
	}
	prolong, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	f.ended.Go(func() {
		tick := time.NewTicker(f.lease / 4)
		defer tick.Stop()
		for {
			select {
			case <-prolong.Done():
				return
			case <-tick.C:
				_ = f.extend(prolong, f.lease) // held tells
			}
		}
	})
	return nil
}

// end stops prolonging.
func (f *fence) end() {
	if f != nil && f.stop != nil {
		f.stop()
		f.ended.Wait()
		f.stop = nil
	}
}

// extend raises the fence, or lets it last for longer.
func (f *fence) extend(ctx context.Context, lease time.Duration) error {
	asked := time.Now()
	anew, err := f.ask(ctx, lease)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		return err
	}
	// A sidecar that was started anew has lost it, and let writes through until now.
	if !f.until.IsZero() && (anew || time.Now().After(f.until)) {
		f.gap = true
	}
	// It began when the sidecar got the request, which is later than asked.
	f.until = asked.Add(lease)
	return nil
}

// ask tells also whether the fence was not up everywhere until now.
func (f *fence) ask(ctx context.Context, lease time.Duration) (anew bool, err error) {
	req := protocol.NewFenceTopicWritesRequest()
	req.Topics, req.LeaseMs = f.topics, int32(lease.Milliseconds())
	r, err := ask[*protocol.FenceTopicWritesResponse](ctx, f.src, &req)
	if err != nil {
		return false, err
	}
	for _, t := range r.Topics {
		err = errors.Join(err, protocol.ErrorForCode(t.ErrorCode, t.ErrorMessage))
		anew = anew || t.ErrorCode == 0 && t.ErrorMessage != nil
	}
	return anew, err
}

// up tells whether it was ever raised as a whole.
func (f *fence) up() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.until.IsZero()
}

// held is an error if the fence was not up for all of the time.
func (f *fence) held(ctx context.Context) error {
	err := f.extend(ctx, f.lease)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		return fmt.Errorf("the fence at the source cannot be prolonged: %w", err)
	}
	if f.gap {
		return errors.New("the fence at the source ran out meanwhile, something may have been written; repeat, with a longer --lease")
	}
	return nil
}

// lift ends the fence at once.
func (f *fence) lift(ctx context.Context) error {
	f.end()
	_, err := f.ask(ctx, 0)
	return err
}

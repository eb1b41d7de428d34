package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// WaitReady waits until every running broker answers and knows every other one
// as registered and unfenced.
func (c *Cluster) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StartTimeout)
	defer cancel()
	return c.waitReady(ctx, c.nodes)
}

// waitReady waits for the nodes given. Brokers that do not run or are paused
// are neither asked nor waited for, unless they are among the nodes given.
func (c *Cluster) waitReady(ctx context.Context, nodes []*Node) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		var last error
		for _, n := range nodes {
			if err := n.ended(); err != nil {
				return err
			}
		}
		if last = c.ready(ctx, nodes); last == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			err := fmt.Errorf("cluster %s is not ready: %w: %w", c.cfg.Name, ctx.Err(), last)
			for _, n := range nodes {
				err = errors.Join(err, fmt.Errorf("the end of the log of %s:\n%s", n, n.LogTail()))
			}
			return err
		}
	}
}

func (c *Cluster) ready(ctx context.Context, nodes []*Node) error {
	var want []int32
	for _, n := range nodes {
		if n.plan.role != RoleController {
			want = append(want, n.plan.id)
		}
	}
	for _, n := range c.Brokers() {
		if !slices.Contains(want, n.plan.id) && (!n.Running() || n.Paused()) {
			continue
		}
		live, err := c.liveBrokers(ctx, n)
		if err != nil {
			return fmt.Errorf("ask %s: %w", n, err)
		}
		for _, id := range want {
			if !slices.Contains(live, id) {
				return fmt.Errorf("%s does not know broker %d as live", n, id)
			}
		}
	}
	if len(want) == 0 { // only controllers: a listening quorum is all that can be asked for
		return c.controllersAnswer(ctx, nodes)
	}
	return nil
}

// answerTimeout bounds one question to one broker, so that a frozen one is asked again.
const answerTimeout = 5 * time.Second

// ask sends one request to one address on a connection of its own.
func (c *Cluster) ask(ctx context.Context, addr string, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	opts := append([]kgo.Opt{}, c.cfg.ClientOpts...)
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr))...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return cl.SeedBrokers()[0].Request(ctx, req)
}

// liveBrokers asks one broker which brokers are registered and unfenced: those
// are what Metadata lists.
func (c *Cluster) liveBrokers(ctx context.Context, n *Node) ([]int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none
	resp, err := c.ask(ctx, n.Addr(ListenerInternal), req)
	if err != nil {
		return nil, err
	}
	var ids []int32
	for _, b := range resp.(*kmsg.MetadataResponse).Brokers {
		ids = append(ids, b.NodeID)
	}
	return ids, nil
}

func (c *Cluster) controllersAnswer(ctx context.Context, nodes []*Node) error {
	for _, n := range nodes {
		req := kmsg.NewPtrApiVersionsRequest()
		// Since v3 an empty name is refused with INVALID_REQUEST.
		req.ClientSoftwareName, req.ClientSoftwareVersion = "harness", "1"
		resp, err := c.ask(ctx, n.Addr(ListenerController), req)
		if err != nil {
			return fmt.Errorf("ask %s: %w", n, err)
		}
		if code := resp.(*kmsg.ApiVersionsResponse).ErrorCode; code != 0 {
			return fmt.Errorf("ask %s: %w", n, kerr.ErrorForCode(code))
		}
	}
	return nil
}

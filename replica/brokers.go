package replica

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// Brokers sends single requests to brokers of this cluster, real and virtual, at the
// addresses that the metadata log says, with the sidecar's own identity. One Brokers must
// not carry long polls and other Fetches at once: a connection serves one at a time.
type Brokers struct {
	image    *metadata.Image
	listener string // name of the listener to use; the first one if a broker has no such
	opts     []kgo.Opt

	mu      sync.Mutex // guards the following
	clients map[int32]*brokerClient
	closed  bool
}

type brokerClient struct {
	addr   string
	client *kgo.Client
}

// NewBrokers returns a Brokers that connects lazily. opts are the security options.
func NewBrokers(image *metadata.Image, listener string, opts []kgo.Opt) *Brokers {
	return &Brokers{image: image, listener: listener, opts: opts, clients: map[int32]*brokerClient{}}
}

// Request sends req to the broker and returns its answer.
func (b *Brokers) Request(ctx context.Context, id int32, req kmsg.Request) (kmsg.Response, error) {
	c, err := b.client(id)
	if err != nil {
		return nil, fmt.Errorf("%s to broker %d: %w", kmsg.NameForKey(req.Key()), id, err)
	}
	resp, err := c.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("%s to broker %d: %w", kmsg.NameForKey(req.Key()), id, err)
	}
	return resp, nil
}

func (b *Brokers) client(id int32) (*kgo.Client, error) {
	reg, ok := b.image.Broker(id)
	if !ok || len(reg.Endpoints) == 0 {
		return nil, fmt.Errorf("broker is not registered")
	}
	ep := reg.Endpoints[0]
	for _, e := range reg.Endpoints {
		if e.Name == b.listener {
			ep = e
		}
	}
	addr := ep.Addr()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, kgo.ErrClientClosed
	}
	if c := b.clients[id]; c != nil {
		if c.addr == addr {
			return c.client, nil
		}
		c.client.Close() // the broker came back elsewhere
	}
	opts := append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.RequestRetries(0), kgo.BrokerMaxReadBytes(200 << 20)}, b.opts...)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	b.clients[id] = &brokerClient{addr, client}
	return client, nil
}

// Close ends all connections.
func (b *Brokers) Close() {
	b.mu.Lock()
	clients := b.clients
	b.clients, b.closed = nil, true
	b.mu.Unlock()
	for _, c := range clients {
		c.client.Close()
	}
}

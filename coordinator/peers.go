package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// errPeer wraps every failure to reach another sidecar: worth another try, perhaps with
// another coordinator.
var errPeer = errors.New("sidecar not reached")

// Peers sends a request to another sidecar, named by its virtual broker's id.
type Peers interface {
	Request(ctx context.Context, virtualID int32, req kmsg.Request) (kmsg.Response, error)
}

// KafkaPeers reaches other sidecars at the listeners of their virtual brokers.
type KafkaPeers struct {
	img      *metadata.Image
	listener string // listener name to use; the first one if empty
	clientID string
	opts     []kgo.Opt

	mu      sync.Mutex // guards the following
	clients map[string]*kgo.Client
	closed  bool
}

// peerClientID begins the client id of a sidecar's requests to another one. Who is asked
// like this answers himself, or not at all: a request is passed on once.
const peerClientID = "mirror-peer-"

// NewKafkaPeers returns the peers of the sidecar with virtual broker self. They are
// reached at the given listener, with opts for security.
func NewKafkaPeers(self int32, img *metadata.Image, listener string, opts []kgo.Opt) *KafkaPeers {
	return &KafkaPeers{img: img, listener: listener, clientID: peerClientID + itoa(self), opts: opts, clients: map[string]*kgo.Client{}}
}

// Close ends all connections.
func (p *KafkaPeers) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.clients {
		c.Close()
	}
	clear(p.clients)
}

// Request sends req to a sidecar.
func (p *KafkaPeers) Request(ctx context.Context, virtualID int32, req kmsg.Request) (kmsg.Response, error) {
	addr, err := p.address(virtualID)
	if err != nil {
		return nil, err
	}
	cl, err := p.client(addr)
	if err != nil {
		return nil, fmt.Errorf("%w: virtual broker %d at %s: %w", errPeer, virtualID, addr, err)
	}
	resp, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("%w: virtual broker %d at %s: %w", errPeer, virtualID, addr, err)
	}
	return resp, nil
}

func (p *KafkaPeers) address(id int32) (string, error) {
	b, ok := p.img.Broker(id)
	if !ok || len(b.Endpoints) == 0 {
		return "", fmt.Errorf("%w: virtual broker %d is not registered", errPeer, id)
	}
	e := b.Endpoints[0]
	if i := slices.IndexFunc(b.Endpoints, func(e metadata.Endpoint) bool { return e.Name == p.listener }); i >= 0 {
		e = b.Endpoints[i]
	}
	return e.Addr(), nil
}

// client returns the client of one address. There are as many as there are sidecars.
func (p *KafkaPeers) client(addr string) (*kgo.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.New("closed")
	}
	if c := p.clients[addr]; c != nil {
		return c, nil
	}
	c, err := kgo.NewClient(append(slices.Clone(p.opts),
		kgo.SeedBrokers(addr),
		kgo.ClientID(p.clientID),
		kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())),
		kgo.DialTimeout(3*time.Second),
		// A start or stop at the other sidecar asks the source before it answers.
		kgo.RequestTimeoutOverhead(45*time.Second),
		kgo.RequestRetries(0),
		kgo.DisableClientMetrics(),
	)...)
	if err != nil {
		return nil, err
	}
	p.clients[addr] = c
	return c, nil
}

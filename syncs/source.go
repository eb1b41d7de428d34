package syncs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// OpenSource connects to the source of a mirror. Nothing is dialled before the first question.
type OpenSource func(m *config.Mirror) (*kgo.Client, error)

// KafkaSource returns the OpenSource for real clusters.
func KafkaSource(p config.Providers, nodeID int32) OpenSource {
	return func(m *config.Mirror) (*kgo.Client, error) {
		opts, err := m.Options(p)
		if err != nil {
			return nil, err
		}
		cl, err := kgo.NewClient(append(opts,
			kgo.ClientID(fmt.Sprintf("mirror-src-sync-%d", nodeID)),
			kgo.RetryTimeout(m.RequestTimeout),
			kgo.DialTimeout(min(m.RequestTimeout, 5*time.Second)),
			kgo.MetadataMinAge(250*time.Millisecond),
			kgo.DisableClientMetrics(),
			kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())),
		)...)
		if err != nil {
			return nil, fmt.Errorf("client for the source: %w", err)
		}
		return cl, nil
	}
}

// source is the connection to the source of one mirror, which its syncs share. It is kept between
// runs, and ends when it is retired and the last run that uses it has ended.
type source struct {
	mu    sync.Mutex // guards the following
	open  *connection
	ended bool
}

type connection struct {
	cl      *kgo.Client
	with    config.Properties
	users   int
	retired bool
}

// use returns the connection for a configuration; done must be called once.
func (s *source) use(m Mirror, open OpenSource) (cl *kgo.Client, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, nil, fmt.Errorf("mirror %s is not coordinated here any more", m.Name)
	}
	if s.open != nil && !config.SameSource(s.open.with, m.Properties) {
		s.retire()
	}
	if s.open == nil {
		cl, err := open(m.Config)
		if err != nil {
			return nil, nil, fmt.Errorf("mirror %s: source: %w", m.Name, err)
		}
		s.open = &connection{cl: cl, with: m.Properties}
	}
	c := s.open
	c.users++
	return c.cl, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.users--
		c.closeUnused()
	}, nil
}

// close ends the connection once nobody uses it. There will be no other.
func (s *source) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.retire()
}

func (s *source) retire() {
	if c := s.open; c != nil {
		s.open, c.retired = nil, true
		c.closeUnused()
	}
}

func (c *connection) closeUnused() {
	if c.retired && c.users == 0 {
		c.cl.Close()
	}
}

// checkSource returns an error if the source is not the cluster that the mirror was created for:
// what that one has would be taken for deleted.
func checkSource(ctx context.Context, m Mirror, src *kgo.Client) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none
	resp, err := req.RequestWith(ctx, src)
	at := strings.Join(m.Config.Bootstrap, ",")
	switch {
	case err == nil && resp.ErrorCode != 0:
		err = kerr.ErrorForCode(resp.ErrorCode)
	case err == nil && resp.ClusterID == nil:
		err = errors.New("it does not tell its cluster's id")
	}
	if err != nil {
		return fmt.Errorf("the source at %s does not answer: %w", at, err)
	}
	if id := *resp.ClusterID; id != m.SourceClusterID {
		return fmt.Errorf("%s is cluster %s now, the mirror was created for %s", at, id, m.SourceClusterID)
	}
	return nil
}

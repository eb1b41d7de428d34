package workload

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Load is a set of topics and their producers.
type Load struct {
	cfg    Config
	log    *slog.Logger
	filler filler
	topics []*topic
	admin  *kgo.Client
	// id makes transactional ids unique, so that a second load does not end the open
	// transaction of a first one.
	id string

	// The producers stop making records when generate ends and give up on those that are
	// not acknowledged yet when live ends.
	stopGenerating, stopLiving context.CancelFunc
	running                    sync.WaitGroup
	done                       chan struct{}

	mu     sync.Mutex
	failed error // first failure of a producer that could not go on
}

type topic struct {
	topicSpec
	ledger *ledger
}

// Topic names one topic of a load.
type Topic struct {
	Name       string
	Kind       Kind
	Partitions int32
}

// New makes a load; nothing is sent before Start.
func New(cfg Config) (*Load, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Load{
		cfg: cfg, log: cfg.Log.With("component", "workload"), filler: newFiller(cfg.ValueBytes),
		id: rand.Text()[:8], done: make(chan struct{}),
	}
	for _, spec := range cfg.specs() {
		l.topics = append(l.topics, &topic{topicSpec: spec, ledger: newLedger(cfg.Partitions)})
	}
	return l, nil
}

// Topics lists the load's topics.
func (l *Load) Topics() []Topic {
	topics := make([]Topic, 0, len(l.topics))
	for _, t := range l.topics {
		topics = append(topics, Topic{Name: t.name, Kind: t.kind, Partitions: l.cfg.Partitions})
	}
	return topics
}

// TopicNames lists their names.
func (l *Load) TopicNames() []string {
	names := make([]string, 0, len(l.topics))
	for _, t := range l.topics {
		names = append(names, t.name)
	}
	return names
}

// Counts says what became of the records so far, by topic.
func (l *Load) Counts() map[string]Counts {
	counts := make(map[string]Counts, len(l.topics))
	for _, t := range l.topics {
		counts[t.name] = t.ledger.counts()
	}
	return counts
}

// Total is the sum of Counts.
func (l *Load) Total() Counts {
	var sum Counts
	for _, c := range l.Counts() {
		sum = sum.Plus(c)
	}
	return sum
}

// Start creates the topics, which must not exist, and starts the producers. They run until
// Stop or until ctx ends, whichever is first. A load starts once.
func (l *Load) Start(ctx context.Context) error {
	admin, err := l.client()
	if err != nil {
		return err
	}
	if err := l.prepare(ctx, kadm.NewClient(admin)); err != nil {
		admin.Close()
		return err
	}
	l.admin = admin

	live, stopLiving := context.WithCancel(ctx)
	generate, stopGenerating := context.WithCancel(live)
	l.stopGenerating, l.stopLiving = stopGenerating, stopLiving
	for _, t := range l.topics {
		l.running.Go(func() {
			if err := l.run(generate, live, t); err != nil && live.Err() == nil {
				l.log.Error("producer ended", "topic", t.name, "error", err)
				l.fail(fmt.Errorf("workload: producer of %s: %w", t.name, err))
			}
		})
	}
	go func() {
		l.running.Wait()
		close(l.done)
	}()
	return nil
}

func (l *Load) prepare(ctx context.Context, admin *kadm.Client) error {
	if l.cfg.TuneCleaner {
		backoff := "500"
		resp, err := admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "log.cleaner.backoff.ms", Value: &backoff}})
		if err == nil && len(resp) > 0 {
			err = resp[0].Err
		}
		if err != nil {
			return fmt.Errorf("workload: set log.cleaner.backoff.ms: %w", err)
		}
	}
	for _, t := range l.topics {
		configs := make(map[string]*string, len(t.configs))
		for k, v := range t.configs {
			configs[k] = &v
		}
		if l.cfg.TopicConfigs != nil {
			for k, v := range l.cfg.TopicConfigs(t.kind) {
				configs[k] = &v
			}
		}
		create := func() error {
			resp, err := admin.CreateTopic(ctx, l.cfg.Partitions, l.cfg.Replication, configs, t.name)
			return cmp.Or(err, resp.Err)
		}
		err := create()
		if errors.Is(err, kerr.InvalidConfig) {
			// Brokers before 3.6 do not know these, and set no such bounds.
			delete(configs, "message.timestamp.before.max.ms")
			delete(configs, "message.timestamp.after.max.ms")
			err = create()
		}
		if err != nil {
			return fmt.Errorf("workload: create topic %s: %w", t.name, err)
		}
	}
	return nil
}

// Stop ends the producers: what they have sent is acknowledged first, unless ctx ends
// earlier. Transactions in progress are ended, but the open one stays open: the broker
// aborts it after 15 minutes. Stop returns the first failure of a producer.
func (l *Load) Stop(ctx context.Context) error {
	if l.stopGenerating == nil {
		return nil
	}
	l.stopGenerating()
	var err error
	select {
	case <-l.done:
	case <-ctx.Done():
		err = fmt.Errorf("workload: records without acknowledgement: %w", ctx.Err())
	}
	l.stopLiving()
	<-l.done
	l.admin.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.failed, err)
}

func (l *Load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = err
	}
}

// Err is the first failure of a producer that could not go on.
func (l *Load) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// WaitAcked returns when every topic has at least n acknowledged records.
func (l *Load) WaitAcked(ctx context.Context, n int64) error {
	return poll(ctx, 20*time.Millisecond, func() (bool, error) {
		for _, t := range l.topics {
			if t.ledger.counts().Acked < n {
				return false, l.Err()
			}
		}
		return true, nil
	})
}

// poll calls cond until it is true or fails.
func poll(ctx context.Context, every time.Duration, cond func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if ok, err := cond(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("workload: waiting: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

func (l *Load) client(opts ...kgo.Opt) (*kgo.Client, error) {
	base := make([]kgo.Opt, 0, 4+len(l.cfg.Opts)+len(opts))
	base = append(base,
		kgo.SeedBrokers(l.cfg.Bootstrap...),
		kgo.ClientID("workload-"+l.cfg.Prefix),
		kgo.MetadataMinAge(250*time.Millisecond), // brokers come and go in the tests that use this
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	)
	base = append(append(base, l.cfg.Opts...), opts...)
	cl, err := kgo.NewClient(base...)
	if err != nil {
		return nil, fmt.Errorf("workload: client: %w", err)
	}
	return cl, nil
}

// retriable says whether a transaction's failure is one of a moment, after which a new
// client of the same transactional id can go on.
func retriable(err error) bool {
	return err != nil && !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) && !errors.Is(err, kerr.TopicAuthorizationFailed)
}

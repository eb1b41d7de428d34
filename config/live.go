package config

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
)

// lookEvery is how old what is known of referenced files may be when a connection is made.
const lookEvery = time.Second

// Live are a client's or a listener's keys as they are now: what ${…} refers to is looked up again
// when connections are made. What cannot be read any more is told, and what was read before stays in
// force, as half of a change may be there.
type Live struct {
	raw       Properties
	refers    bool // whether there is a reference in raw
	providers Providers
	check     func(Properties) error
	now       func() time.Time

	mu      sync.Mutex // guards the following
	current Properties // is not changed, but replaced
	version uint64     // of current, from 1
	looked  time.Time
	failed  string // what the last look came to, "" if it was well
}

// Live returns p with its references. Nothing is read yet.
func (v Providers) Live(p Properties) *Live {
	return &Live{raw: maps.Clone(p), refers: hasReference(p), providers: v, now: time.Now}
}

// Fixed are keys that do not change, without references.
func Fixed(p Properties) *Live {
	if p == nil {
		p = Properties{}
	}
	return &Live{current: p, version: 1, now: time.Now}
}

// Now returns the keys as they are now, and a number that changes when they do. It fails only
// if they could never be read.
func (l *Live) Now() (Properties, uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil && (!l.refers || l.now().Sub(l.looked) < lookEvery) {
		return l.current, l.version, nil
	}
	l.looked = l.now()
	p, err := l.providers.Expand(l.raw)
	if err == nil && l.check != nil {
		err = l.check(p)
	}
	switch {
	case err != nil && l.current == nil:
		return nil, 0, err
	case err != nil:
		if l.failed != err.Error() {
			l.failed = err.Error()
			l.log().Error("a secret cannot be read again; what was read before stays in force", "error", err)
		}
	case l.current == nil || !maps.Equal(p, l.current):
		if l.current != nil {
			l.log().Info("secrets have changed, new connections are made with them", "keys", changedKeys(l.current, p))
		}
		l.current, l.failed = p, ""
		l.version++
	default:
		l.failed = ""
	}
	return l.current, l.version, nil
}

// settle replaces references in what the sidecar is built by. Secrets and certificates keep theirs, as they
// may change (Live), but must be there.
func (s *Sidecar) settle(p Properties) error {
	now, err := s.Providers.Expand(p)
	if err != nil {
		return err
	}
	for k, v := range now {
		if !strings.HasPrefix(k, "sasl.") && !strings.HasPrefix(k, "ssl.") || k == "sasl.mechanism" || k == keyClientAuth {
			p[k] = v
		}
	}
	return nil
}

// Live are keys of the sidecar's own, with the secrets that they refer to as they are now.
func (s *Sidecar) Live(p Properties) *Live { return s.Providers.Live(p) }

// ClientOptions are those of a client whose process is short: p is one of Security,
// InterBrokerSecurity and ControllerSecurity.
func (s *Sidecar) ClientOptions(p Properties) ([]kgo.Opt, error) {
	return ClientOptionsVia(s.Live(p), nil)
}

// stamp changes when the keys do.
func (l *Live) stamp() string {
	_, version, err := l.Now()
	return fmt.Sprint(version, err)
}

func (l *Live) log() *slog.Logger {
	if l.providers.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l.providers.Log
}

func changedKeys(before, after Properties) []string {
	var out []string
	for _, k := range after.Keys() {
		if before[k] != after[k] {
			out = append(out, k)
		}
	}
	return out
}

func hasReference(p Properties) bool {
	re := providerExpression()
	for _, v := range p {
		if re.MatchString(v) {
			return true
		}
	}
	return false
}

// liveMechanism logs in with what the keys say at that time.
type liveMechanism struct {
	live *Live
	name string

	mu      sync.Mutex // guards the following
	made    sasl.Mechanism
	version uint64
}

// newLiveMechanism is of a mechanism that was made from a version of the keys.
func newLiveMechanism(l *Live, m sasl.Mechanism, version uint64) *liveMechanism {
	return &liveMechanism{live: l, name: m.Name(), made: m, version: version}
}

// Name implements sasl.Mechanism.
func (m *liveMechanism) Name() string { return m.name }

// Authenticate implements sasl.Mechanism.
func (m *liveMechanism) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	made, err := m.at()
	if err != nil {
		m.live.log().Error("a changed login cannot be used; the former one stays in force", "error", err)
	}
	return made.Authenticate(ctx, host)
}

// at returns the mechanism as of now, with an error once if that is one of before.
func (m *liveMechanism) at() (sasl.Mechanism, error) {
	p, version, err := m.live.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || version == m.version {
		return m.made, nil // Now has told it
	}
	m.version = version
	made, err := m.live.mechanism(p)
	if err == nil && made.Name() != m.name {
		err = fmt.Errorf("sasl.mechanism: %s instead of %s needs a restart", strconv.Quote(made.Name()), m.name)
	}
	if err != nil {
		return m.made, err
	}
	m.made = made
	return made, nil
}

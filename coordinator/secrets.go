package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// secretsTold is what was last said in the log about stored secrets, by what it is about.
type secretsTold struct {
	mu   sync.Mutex // guards the following
	told map[string]string
}

// news tells whether a text is another one than was last told of that.
func (s *secretsTold) news(about, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told[about] == text {
		return false
	}
	if s.told == nil {
		s.told = map[string]string{}
	}
	s.told[about] = text
	return text != ""
}

// stored is a mirror's configuration as it is stored.
func (m Mirror) stored() (*config.Mirror, error) {
	cfg, err := config.ParseStored(m.Configs)
	if err != nil {
		return nil, err
	}
	cfg.Name = m.Name
	return cfg, nil
}

// parsed is a mirror's configuration as it is given.
func parsed(mirror string, p config.Properties) (*config.Mirror, error) {
	cfg, err := config.ParseMirror(p)
	if err != nil {
		return nil, refuse(kerr.InvalidConfig.Code, "mirror %s: %v", mirror, err)
	}
	cfg.Name = mirror
	return cfg, nil
}

// sealed is a mirror's new configuration as it may be written.
func (c *Coordinator) sealed(mirror string, before, next config.Properties) (config.Properties, error) {
	out, err := config.SealSecrets(c.cfg.Keys, mirror, before, next)
	if err != nil {
		return nil, refuse(kerr.InvalidConfig.Code, "mirror %s: %s; nothing was changed", mirror, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return out, nil
}

// maxSecretsTold bounds what one answer tells of.
const maxSecretsTold = 10

// Secrets is an error about what is wrong with the secrets that are stored of mirrors, or with the keys that
// they are encrypted with, as this sidecar sees it.
func (c *Coordinator) Secrets() error {
	var errs []error
	if err := c.cfg.Keys.Err(); err != nil {
		errs = append(errs, fmt.Errorf("state.encryption.key.file: %w; its former keys count until that is mended", err))
	}
	if err := c.cfg.Keys.Exposed(); err != nil {
		errs = append(errs, fmt.Errorf("state.encryption.key.file: %w", err))
	}
	for _, m := range c.view.Mirrors() {
		if len(errs) >= maxSecretsTold {
			errs = append(errs, errors.New("and more"))
			break
		}
		if _, err := config.OpenSecrets(c.cfg.Keys, m.Name, m.Configs); err != nil {
			errs = append(errs, fmt.Errorf("mirror %s cannot be read here: %w", m.Name, err))
		}
		if keys := inClear(m); len(keys) > 0 {
			errs = append(errs, fmt.Errorf("mirror %s: %s in clear in topic %s; %s", m.Name, strings.Join(keys, ", "), StateTopic, c.wayOut()))
		}
	}
	return errors.Join(errs...)
}

// unreadable says why this sidecar cannot read a mirror's source, if its secrets are why. A virtual broker
// that cannot does not even follow, so that nobody leads who could say so.
func (c *Coordinator) unreadable(m Mirror) *string {
	_, err := config.OpenSecrets(c.cfg.Keys, m.Name, m.Configs)
	if err == nil {
		return nil
	}
	text := "the secrets of the mirror cannot be read: " + err.Error()
	return &text
}

func (c *Coordinator) wayOut() string {
	if c.cfg.Keys != nil {
		return "its coordinator encrypts it once all sidecars have the key"
	}
	return "set state.encryption.key.file at all sidecars, or give references instead, and then change the secret at the source"
}

// inClear are the keys of a mirror whose secrets everybody can read who reads the state topic.
func inClear(m Mirror) []string {
	stored := config.StoredSecrets(m.Configs)
	maps.DeleteFunc(stored, func(_, id string) bool { return id != "" })
	return slices.Sorted(maps.Keys(stored))
}

// reseal encrypts with the first key what is stored of a mirror in clear, or encrypted with another key:
// once all sidecars that run can decrypt it. It runs on the coordinator of the mirror's name.
func (c *Coordinator) reseal(ctx context.Context, mirror string) error {
	m, ok := c.view.Mirror(mirror)
	if !ok {
		return nil
	}
	ids := c.cfg.Keys.IDs()
	if len(ids) == 0 {
		if keys := strings.Join(inClear(m), ", "); c.secrets.news(mirror, keys) {
			c.log.Warn("secrets of a mirror lie in the state topic in clear", "mirror", mirror, "keys", keys, "topic", StateTopic, "mend", c.wayOut())
		}
		return nil
	}
	if !stale(m, ids[0]) {
		c.tellSealed(ids)
		return nil
	}
	if waits := c.withoutKey(ctx, ids[0]); waits != "" {
		if c.secrets.news("", waits) {
			c.log.Warn("stored secrets are not encrypted with the first key of state.encryption.key.file yet, not all sidecars could decrypt them", "key", ids[0], "waits_for", waits)
		}
		return nil
	}
	var changed []string
	var unread error
	err := c.act(ctx, mirror, func() error {
		now, err := c.mirror(mirror)
		if err != nil {
			return err
		}
		now.Configs, changed, unread = config.ResealSecrets(c.cfg.Keys, mirror, now.Configs)
		if len(changed) == 0 {
			return nil
		}
		return c.store.Put(ctx, record{kind: kindMirror, mirror: mirror, value: now})
	})
	if err != nil {
		return fmt.Errorf("mirror %s: encrypt its secrets: %w", mirror, err)
	}
	if len(changed) > 0 {
		c.log.Info("secrets of a mirror were encrypted with the first key", "mirror", mirror, "keys", changed, "key", ids[0])
	}
	if unread != nil {
		return fmt.Errorf("mirror %s: encrypt its secrets: %w", mirror, unread)
	}
	c.tellSealed(ids)
	return nil
}

// stale tells whether a secret of a mirror is not encrypted with a key.
func stale(m Mirror, key string) bool {
	for _, id := range config.StoredSecrets(m.Configs) {
		if id != key {
			return true
		}
	}
	return false
}

// tellSealed says once that the other keys of the file are not needed any more.
func (c *Coordinator) tellSealed(ids []string) {
	if len(ids) < 2 || slices.ContainsFunc(c.view.Mirrors(), func(m Mirror) bool { return stale(m, ids[0]) }) {
		return
	}
	if c.secrets.news(".", strings.Join(ids, ",")) {
		c.log.Info("all stored secrets are encrypted with the first key of state.encryption.key.file, the others in it can be removed", "key", ids[0], "not_needed", ids[1:])
	}
}

// withoutKey names the sidecars that run and cannot decrypt what a key has encrypted, or do not say.
func (c *Coordinator) withoutKey(ctx context.Context, key string) string {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	var out []string
	for _, id := range liveVirtual(c.img, c.cfg.Virtual) {
		if id == c.cfg.Self {
			continue
		}
		req := protocol.NewDescribeClusterMirrorsRequest()
		req.MirrorNames, req.LocalOnly = []string{}, true
		resp, err := c.deps.Peers.Request(ctx, id, &req)
		theirs, ok := resp.(*protocol.DescribeClusterMirrorsResponse)
		if err != nil || !ok || !slices.Contains(theirs.SecretKeys, key) {
			out = append(out, fmt.Sprintf("the sidecar of broker %d", c.cfg.Virtual.Home(id)))
		}
	}
	return strings.Join(out, ", ")
}

// StoredSecrets counts what is stored, by the key that it is encrypted with.
type StoredSecrets struct{ view *View }

// NewStoredSecrets counts the secrets of all mirrors of a view.
func NewStoredSecrets(view *View) StoredSecrets { return StoredSecrets{view} }

func storedSecretsMetric() *prometheus.Desc {
	return prometheus.NewDesc("kafka_mirror_stored_secrets", "Secrets of mirrors in the state topic, by the id of the key that they are encrypted with; none: in clear.", []string{"key"}, nil)
}

// Describe implements prometheus.Collector.
func (s StoredSecrets) Describe(ch chan<- *prometheus.Desc) { ch <- storedSecretsMetric() }

// Collect implements prometheus.Collector.
func (s StoredSecrets) Collect(ch chan<- prometheus.Metric) {
	by := map[string]int{"none": 0}
	for _, m := range s.view.Mirrors() {
		for _, id := range config.StoredSecrets(m.Configs) {
			by[cmp.Or(id, "none")]++
		}
	}
	for id, n := range by {
		ch <- prometheus.MustNewConstMetric(storedSecretsMetric(), prometheus.GaugeValue, float64(n), id)
	}
}

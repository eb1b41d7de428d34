package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// mirrorResource is the type of a mirror as a config resource (contract.md §1).
const mirrorResource kmsg.ConfigResourceType = 64

// alterProbeTimeout bounds how long a changed address is asked for its cluster id.
const alterProbeTimeout = 5 * time.Second

// ConfigEntry is one key of a mirror's configuration as it may be shown.
type ConfigEntry struct {
	Name string
	// Value is nil where the key has none, and for secrets.
	Value *string
	// Default says that the value is the default, Sensitive that it is never shown.
	Default, Sensitive, ReadOnly bool
	Doc                          string
}

// ConfigOp is one change of a mirror's configuration. Op is Kafka's AlterConfigOp.
type ConfigOp struct {
	Name  string
	Op    int8
	Value *string
}

// Kafka's AlterConfigOp.
const (
	opSet      int8 = 0
	opDelete   int8 = 1
	opAppend   int8 = 2
	opSubtract int8 = 3
)

// DescribeConfigs returns a mirror's configuration with its defaults, secrets without
// their values; all keys if none are named. Keys that are not known are left out, as
// Kafka does.
func (c *Coordinator) DescribeConfigs(_ context.Context, mirror string, keys []string) ([]ConfigEntry, error) {
	m, err := c.mirror(mirror)
	if err != nil {
		return nil, err
	}
	return describeConfigs(m.Configs, keys), nil
}

func describeConfigs(have config.Properties, keys []string) []ConfigEntry {
	var out []ConfigEntry
	for _, k := range config.MirrorKeys() {
		if keys != nil && !slices.Contains(keys, k.Name) {
			continue
		}
		value, given := have[k.Name]
		if !given {
			value = k.Default
		}
		e := ConfigEntry{Name: k.Name, Default: !given, Sensitive: config.Hidden(k.Name, value), Doc: k.Doc}
		if !e.Sensitive && (given || k.Default != "") {
			e.Value = &value
		}
		out = append(out, e)
	}
	return out
}

// AlterConfigs changes a mirror's configuration, wherever it is coordinated: all of the
// changes or none. clientID is the asker's; another sidecar's request is not passed on
// again. Errors carry a code and name each entry that is wrong.
func (c *Coordinator) AlterConfigs(ctx context.Context, clientID, mirror string, ops []ConfigOp, validateOnly bool) error {
	ctx, cancel := context.WithTimeout(ctx, handleTimeout)
	defer cancel()
	if checkName(mirror) != nil {
		return refuse(protocol.UnknownClusterMirror, "there is no mirror %q", mirror)
	}
	fromPeer := strings.HasPrefix(clientID, peerClientID)
	if c.store.Partitions() == 0 {
		if fromPeer {
			return asError(ErrNoCoordinator, 0)
		}
		return refuse(protocol.UnknownClusterMirror, "there is no mirror %q", mirror)
	}
	err := c.retryRouted(ctx, mirror, func(who int32) error {
		switch {
		case who == c.cfg.Self:
			return c.alterConfigs(ctx, mirror, ops, validateOnly)
		case fromPeer:
			return refuse(kerr.NotCoordinator.Code, "mirror %s is coordinated by virtual broker %d", mirror, who)
		}
		if err := c.alterAtPeer(ctx, who, mirror, ops, validateOnly); err != nil {
			return err
		}
		return c.barrier(ctx, mirror)
	})
	if e := asError(err, kerr.CoordinatorNotAvailable.Code); e != nil {
		return e
	}
	return nil
}

func (c *Coordinator) alterAtPeer(ctx context.Context, who int32, mirror string, ops []ConfigOp, validateOnly bool) error {
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = mirrorResource, mirror
	for _, op := range ops {
		e := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		e.Name, e.Op, e.Value = op.Name, kmsg.IncrementalAlterConfigOp(op.Op), op.Value
		res.Configs = append(res.Configs, e)
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = validateOnly
	req.Resources = append(req.Resources, res)
	resp, err := c.deps.Peers.Request(ctx, who, req)
	if err != nil {
		return err
	}
	r, ok := resp.(*kmsg.IncrementalAlterConfigsResponse)
	if !ok || len(r.Resources) != 1 {
		return fmt.Errorf("%w: unexpected answer", errPeer)
	}
	return errorOf(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage)
}

// alterConfigs runs on the coordinator of the mirror's name.
func (c *Coordinator) alterConfigs(ctx context.Context, mirror string, ops []ConfigOp, validateOnly bool) error {
	if err := c.act(ctx, mirror, func() error { return nil }); err != nil {
		return err
	}
	m, err := c.mirror(mirror)
	if err != nil {
		return err
	}
	next, err := applyOps(m, ops)
	if err == nil {
		next, err = c.sealed(mirror, m.Configs, next)
	}
	if err != nil {
		return err
	}
	if err := c.checkPolicies(ctx, mirror, m.Configs, next); err != nil {
		return err
	}
	// Asked without the lock: an address that does not answer must not hold up others.
	if err := c.checkSource(ctx, m, next); err != nil || validateOnly {
		return err
	}
	var before config.Properties
	err = c.act(ctx, mirror, func() error {
		now, err := c.mirror(mirror)
		if err != nil {
			return err
		}
		before = now.Configs
		if now.Configs, err = applyOps(now, ops); err == nil {
			now.Configs, err = c.sealed(mirror, before, now.Configs)
		}
		if err != nil {
			return err
		}
		next = now.Configs
		return c.store.Put(ctx, record{kind: kindMirror, mirror: mirror, value: now})
	})
	if err != nil {
		return fmt.Errorf("mirror %s: change its configuration: %w", mirror, err)
	}
	if before[bootstrapKey] != next[bootstrapKey] || before["security.protocol"] != next["security.protocol"] {
		c.log.Warn("a mirror reads from another address from now on, and logs in there",
			"mirror", mirror, "before", before[bootstrapKey], "now", next[bootstrapKey], "security_protocol", next["security.protocol"])
	}
	c.log.Info("mirror configuration changed", "mirror", mirror, "config", next.Redacted())
	return nil
}

// checkSource refuses a configuration that reads from another cluster than the mirror was
// created for. A source that does not answer is no reason to refuse: addresses are
// changed when the old ones are down, too.
func (c *Coordinator) checkSource(ctx context.Context, m Mirror, next config.Properties) error {
	if config.SameSource(m.Configs, next) {
		return nil
	}
	cfg, err := parsed(m.Name, next)
	if err != nil {
		return err
	}
	src, err := c.deps.Source(cfg)
	if err != nil {
		return refuse(kerr.InvalidConfig.Code, "mirror %s: %v", m.Name, err)
	}
	defer src.Close()
	ask, cancel := context.WithTimeout(ctx, alterProbeTimeout)
	defer cancel()
	switch id, err := src.ClusterID(ask); {
	case err != nil:
		c.log.Warn("the source does not answer with the changed configuration", "mirror", m.Name, "err", err)
	case id != m.SourceClusterID:
		return refuse(kerr.InvalidRequest.Code, "mirror %s: %s is cluster %s, the mirror was created for %s; nothing was changed", m.Name, strings.Join(cfg.Bootstrap, ","), id, m.SourceClusterID)
	}
	return nil
}

// applyOps returns a mirror's configuration after some changes, checked as a whole. It is
// a pure function.
func applyOps(m Mirror, ops []ConfigOp) (config.Properties, error) {
	next := m.Configs.Clone()
	if next == nil {
		next = config.Properties{}
	}
	var errs []error
	seen := map[string]bool{}
	for _, op := range ops {
		if seen[op.Name] {
			errs = append(errs, fmt.Errorf("%s: changed twice in one request", op.Name))
			continue
		}
		seen[op.Name] = true
		if err := applyOp(next, op); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", op.Name, err))
		}
	}
	if len(errs) == 0 {
		if _, err := config.ParseMirror(next); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		if err := keepsCredentials(m.Configs, next, ops); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, refuse(kerr.InvalidConfig.Code, "mirror %s: %v; nothing was changed", m.Name, strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; "))
	}
	return next, nil
}

// keepsCredentials refuses to log in with the stored credentials somewhere else altogether:
// who changes the address may not be who knows them. Addresses come and go one by one, so
// that this keeps mistakes away, and not those who have the right to change the addresses
// (docs/security.md).
func keepsCredentials(have, next config.Properties, ops []ConfigOp) error {
	if have[bootstrapKey] == next[bootstrapKey] && have["security.protocol"] == next["security.protocol"] {
		return nil
	}
	before := hostsOf(have)
	if slices.ContainsFunc(hostsOf(next), func(h string) bool { return slices.Contains(before, h) }) {
		return nil
	}
	var kept []string
	for k, v := range next {
		old, stored := have[k]
		anew := slices.ContainsFunc(ops, func(op ConfigOp) bool { return op.Name == k && op.Op == opSet })
		if stored && old != "" && config.Hidden(k, v) && !anew {
			kept = append(kept, k)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	slices.Sort(kept)
	return fmt.Errorf("%s: none of the hosts is one of before: give the credentials again with the new address (%s)", bootstrapKey, strings.Join(kept, ", "))
}

// bootstrapKey is the config of a mirror's addresses.
const bootstrapKey = "bootstrap.servers"

// hostsOf returns the hosts of a mirror's addresses.
func hostsOf(p config.Properties) []string {
	var out []string
	for _, a := range config.SplitList(p[bootstrapKey]) {
		if host, _, err := net.SplitHostPort(a); err == nil {
			a = host
		}
		out = append(out, strings.ToLower(a))
	}
	return out
}

func applyOp(p config.Properties, op ConfigOp) error {
	def, known := config.MirrorDefault(op.Name)
	if op.Op == opDelete {
		delete(p, op.Name) // also a key that an older or newer sidecar knew
		return nil
	}
	if op.Value == nil {
		return errors.New("a value is missing")
	}
	if op.Op == opSet {
		p[op.Name] = *op.Value // ParseMirror names the nearest key if this one is not known
		return nil
	}
	if op.Op != opAppend && op.Op != opSubtract {
		return fmt.Errorf("operation %d is none of Kafka's", op.Op)
	}
	if known && !config.IsList(op.Name) {
		return errors.New("only lists can be added to or taken from; set it instead")
	}
	value, given := p[op.Name]
	if !given {
		value = def
	}
	p[op.Name] = editList(value, config.SplitList(*op.Value), op.Op == opAppend)
	return nil
}

// editList adds items to a list, or takes them away. Their order is kept, and none is
// there twice.
func editList(list string, items []string, add bool) string {
	out := slices.DeleteFunc(config.SplitList(list), func(s string) bool { return slices.Contains(items, s) && !add })
	for _, i := range items {
		if add && !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	return config.JoinList(out)
}

// TopicMirrorName is the value of a topic's read-only config mirror.name: the mirror, with
// .paused or .stopped where the topic is.
func (c *Coordinator) TopicMirrorName(topic string) (value string, ok bool) {
	t, ok := c.view.TopicByName(topic)
	if !ok {
		return "", false
	}
	switch t.Desired {
	case Paused:
		return t.Mirror + ".paused", true
	case Stopped:
		return t.Mirror + ".stopped", true
	}
	return t.Mirror, true
}

// Coordinator returns the node id of the broker beside the sidecar that coordinates a
// mirror.
func (c *Coordinator) Coordinator(mirror string) (homeID int32, err error) {
	who, err := c.Of(mirror)
	if err != nil {
		return 0, err
	}
	return c.cfg.Virtual.Home(who), nil
}

// WantedConfigs returns the topic's own values of the configs that the write lock holds,
// nil for those that it has none of; false for a topic that is not locked.
func (c *Coordinator) WantedConfigs(topic string) (map[string]*string, bool) {
	t, ok := c.view.TopicByName(topic)
	if !ok || c.stopped(t) || len(t.Wanted) == 0 {
		return nil, false
	}
	out := map[string]*string{}
	for _, k := range lockKeys() {
		if v, locked := t.Wanted[k]; locked {
			out[k] = v
		}
	}
	return out, true
}

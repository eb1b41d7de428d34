package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Mirror is the configuration of one mirror (the link to one source cluster).
type Mirror struct {
	// Name is the mirror's: what is encrypted in Security is bound to it. It is no key.
	Name                  string
	Bootstrap             []string
	RequestTimeout        time.Duration
	FetchWaitMax          time.Duration
	FetchBackoff          time.Duration
	FetchMinBytes         int32
	FetchMaxBytes         int32
	FetchResponseMaxBytes int32
	TopicsInclude         Pattern
	TopicsExclude         Pattern
	GroupsInclude         Pattern
	GroupsExclude         Pattern
	ACLsInclude           ACLRules
	ACLsExclude           ACLRules
	QuotasInclude         Pattern
	PropertiesAlways      []string
	PropertiesInclude     Pattern
	PropertiesExclude     []string
	// Policies are the plugins that decide, by kind, in the order in which they are asked.
	Policies     map[string][]string
	StopPIDReset bool
	// Security holds the client keys, secrets still as written (not expanded).
	Security Properties

	unread []unreadKey // see ParseStored
}

type mirrorKey struct {
	Key
	set func(*Mirror, string) error
}

// defaultPropertiesExclude are topic configs that are never copied from the source:
// they name brokers, or say what a cluster tolerates rather than what a topic holds. Unlike
// the KIP's list it lets message.timestamp.* through: a stopped topic with LogAppendTime must
// not turn into one with CreateTime (contract-additions §3).
const defaultPropertiesExclude = "leader.replication.throttled.replicas,follower.replication.throttled.replicas," +
	"message.timestamp.difference.max.ms,log.message.timestamp.before.max.ms,log.message.timestamp.after.max.ms," +
	"unclean.leader.election.enable,min.insync.replicas," +
	"mirror.name,mirror.replication.throttled.replicas,mirror.support.unclean.leader.election"

func mirrorKeys() []mirrorKey {
	k := func(name, def, doc string, set func(*Mirror, string) error) mirrorKey {
		return mirrorKey{Key: Key{Name: name, Default: def, Doc: doc}, set: set}
	}
	millis := func(lo int64, f func(*Mirror) *time.Duration) func(*Mirror, string) error {
		return func(m *Mirror, v string) error {
			d, err := parseMillis(v, lo, math.MaxInt32)
			if err == nil {
				*f(m) = d
			}
			return err
		}
	}
	number := func(lo int64, f func(*Mirror) *int32) func(*Mirror, string) error {
		return func(m *Mirror, v string) error {
			n, err := parseInt(v, lo, math.MaxInt32)
			if err == nil {
				*f(m) = int32(n)
			}
			return err
		}
	}
	pattern := func(f func(*Mirror) *Pattern) func(*Mirror, string) error {
		return func(m *Mirror, v string) error {
			p, err := ParsePattern(v)
			if err == nil {
				*f(m) = p
			}
			return err
		}
	}
	rules := func(f func(*Mirror) *ACLRules) func(*Mirror, string) error {
		return func(m *Mirror, v string) error {
			r, err := ParseACLRules(v)
			*f(m) = r
			return err
		}
	}
	policy := func(kind, def, doc string) mirrorKey {
		return k(PolicyPrefix+kind, def, doc, func(m *Mirror, v string) error {
			names, err := parsePolicies(v)
			if m.Policies == nil {
				m.Policies = map[string][]string{}
			}
			m.Policies[kind] = names
			return err
		})
	}
	return []mirrorKey{
		k("bootstrap.servers", "", "addresses of the source cluster (required)", func(m *Mirror, v string) error {
			a, err := parseAddresses(v)
			m.Bootstrap = a
			return err
		}),
		k("request.timeout.ms", "30000", "how long a request to the source may take", millis(100, func(m *Mirror) *time.Duration { return &m.RequestTimeout })),
		k("mirror.fetch.wait.max.ms", "1000", "how long a source broker may hold a fetch without data", millis(0, func(m *Mirror) *time.Duration { return &m.FetchWaitMax })),
		k("mirror.fetch.backoff.ms", "1000", "wait after a failed fetch", millis(0, func(m *Mirror) *time.Duration { return &m.FetchBackoff })),
		k("mirror.fetch.min.bytes", "1", "bytes a source broker waits for", number(0, func(m *Mirror) *int32 { return &m.FetchMinBytes })),
		k("mirror.fetch.max.bytes", "1048576", "most bytes of one partition in one fetch", number(1, func(m *Mirror) *int32 { return &m.FetchMaxBytes })),
		k("mirror.fetch.response.max.bytes", "10485760", "most bytes in one fetch", number(1, func(m *Mirror) *int32 { return &m.FetchResponseMaxBytes })),
		k("mirror.topics.include", "", "regular expressions of topics to mirror", pattern(func(m *Mirror) *Pattern { return &m.TopicsInclude })),
		k("mirror.topics.exclude", "__.*", "regular expressions of topics not to mirror; wins over include", pattern(func(m *Mirror) *Pattern { return &m.TopicsExclude })),
		k(GroupsIncludeKey, ".*", "regular expressions of groups whose offsets are copied", pattern(func(m *Mirror) *Pattern { return &m.GroupsInclude })),
		k("mirror.groups.exclude", "", "regular expressions of groups whose offsets are not copied", pattern(func(m *Mirror) *Pattern { return &m.GroupsExclude })),
		k(ACLsIncludeKey, "", "rules of ACLs to copy, as type;name;operation;permission;principal; none unless set", rules(func(m *Mirror) *ACLRules { return &m.ACLsInclude })),
		k(ACLsExcludeKey, "", "rules of ACLs not to copy; wins over include", rules(func(m *Mirror) *ACLRules { return &m.ACLsExclude })),
		k(QuotasIncludeKey, "", "regular expressions of the entities whose client quotas are copied, such as user=.*; needs a policy for quotas", pattern(func(m *Mirror) *Pattern { return &m.QuotasInclude })),
		k("mirror.stop.pid.reset", "false", "end a stopped partition's mirrored data with the KIP's MIRROR_PID_RESET record", func(m *Mirror, v string) error {
			b, err := parseBool(v)
			m.StopPIDReset = b
			return err
		}),
		k(PropertiesAlwaysKey, "", "topic configs to copy also where a source topic has only its brokers' default", func(m *Mirror, v string) error { m.PropertiesAlways = SplitList(v); return nil }),
		k(PropertiesIncludeKey, ".*", "regular expressions of topic configs to copy where they are set on a source topic", pattern(func(m *Mirror) *Pattern { return &m.PropertiesInclude })),
		k(PropertiesExcludeKey, defaultPropertiesExclude, "topic configs never to copy; wins over always and include", func(m *Mirror, v string) error { m.PropertiesExclude = SplitList(v); return nil }),
		policy("topics", PluginBuiltIn, "plugins that select topics, in order: the first refusal wins"),
		policy("configs", PluginBuiltIn, "plugins that select topic configs"),
		policy("acls", PluginBuiltIn, "plugins that select ACLs"),
		policy("groups", PluginBuiltIn, "plugins that select groups"),
		policy("quotas", "", "plugins that select client quotas; none unless set"),
		policy("events", "", "plugins that are told of state changes; none unless set"),
	}
}

// MirrorKeys lists every key of a mirror: its own and the client security keys.
func MirrorKeys() []Key {
	var out []Key
	for _, k := range mirrorKeys() {
		out = append(out, k.Key)
	}
	return append(out, securityKeys()...)
}

// ParseMirror checks a mirror's keys and fills in defaults. Secrets are left as they
// are written; Options expands them.
func ParseMirror(p Properties) (*Mirror, error) {
	m, bad, err := parseMirror(p)
	errs := make([]error, 0, len(bad)+1)
	for _, b := range bad {
		errs = append(errs, b.err)
	}
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return m, nil
}

// parseMirror returns the keys with which something is wrong, and what is wrong with all of them
// together.
func parseMirror(p Properties) (*Mirror, []unreadKey, error) {
	m := &Mirror{Security: Properties{}}
	var bad []unreadKey
	known := map[string]bool{}
	var names []string
	for _, k := range mirrorKeys() {
		known[k.Name] = true
		names = append(names, k.Name)
		v, given := p[k.Name]
		if !given {
			v = k.Default
		}
		if err := k.set(m, v); err != nil {
			bad = append(bad, unreadKey{k.Name, true, fmt.Errorf("%s: %w", k.Name, err)})
		}
	}
	security := map[string]bool{}
	for _, k := range securityKeys() {
		security[k.Name] = true
		names = append(names, k.Name)
	}
	for _, key := range p.Keys() {
		switch {
		case known[key]:
		case security[key]:
			m.Security[key] = p[key]
		default:
			bad = append(bad, unreadKey{key, false, unknownKey(key, names)})
		}
	}
	var errs []error
	if len(m.Bootstrap) == 0 && !slices.ContainsFunc(bad, func(b unreadKey) bool { return b.name == "bootstrap.servers" }) {
		errs = append(errs, errors.New("bootstrap.servers is required"))
	}
	if m.FetchResponseMaxBytes < m.FetchMaxBytes {
		errs = append(errs, errors.New("mirror.fetch.response.max.bytes is below mirror.fetch.max.bytes"))
	}
	return m, bad, errors.Join(errs...)
}

// TieredTopicConfig tells whether a topic config is about tiered storage. Such are never copied: a
// virtual leader copies nothing to remote storage, so the local log would be held until the source's
// retention passes it.
func TieredTopicConfig(key string) bool {
	return strings.HasPrefix(key, "remote.") || strings.HasPrefix(key, "local.retention.")
}

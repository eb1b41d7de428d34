package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/certs"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/sealed"
)

// Listener is one address of the proxy: an optional Kafka listener name and where it
// is.
type Listener struct {
	Name string
	Host string
	Port uint16
}

// DefaultListener is the name of a client listener that is given none.
const DefaultListener = "CLIENT"

// NameOr is the listener's name, or the given one if it has none.
func (l Listener) NameOr(def string) string { return cmp.Or(l.Name, def) }

// Sidecar is the configuration of one sidecar process.
type Sidecar struct {
	HomeBroker                 []string // bootstrap of the broker beside this sidecar, not through the proxy
	Controllers                []string // bootstrap of the controller quorum
	Listeners                  []Listener
	AdvertisedListeners        []Listener
	VirtualListeners           []Listener // where the virtual broker listens
	VirtualAdvertisedListeners []Listener // what is registered for it; VirtualListeners if empty
	NodeHostMapping            map[int32]string
	BootstrapServerMapping     []ServerMapping
	DeterministicListeners     bool
	MinPort                    uint16          // of deterministic listeners; a broker's is the sum with its id
	Advertised                 AddressTemplate // what clients are told where nothing else says it
	DefaultListenerIP          string          // where deterministic listeners listen
	HTTPListen                 string
	HTTPProfiles               bool
	DataDir                    string
	TakeOver                   bool
	DrainTimeout               time.Duration
	StateEncryptionKeyFile     string
	LogLevel                   slog.Level
	ReadOnlyTopicError         bool // answer produce with READ_ONLY_TOPIC instead of POLICY_VIOLATION
	AllowUncordoned            bool
	AllowHostRulesIgnored      bool

	MaxConnections, MaxConnectionsPerIP int
	MaxConnectionsPerIPOverrides        map[netip.Addr]int
	MaxConnectionRate                   int // a second
	MaxIdle, MaxStall, MaxLogin         time.Duration
	MaxRequest                          int // bytes

	StatePartitions        int32
	StateReplicationFactor int16
	RefreshInterval        time.Duration
	ReplicaFetchers        int
	RetryInitialBackoff    time.Duration
	RetryMaxBackoff        time.Duration
	RetryMaxAttempts       int   // 0 = retries off
	ThrottledRate          int64 // bytes per second
	VirtualOffset          ids.Virtual
	VirtualReplicas        int
	BufferMemory           int64
	StopReplicaWait        time.Duration
	StopPIDReset           bool
	ReplicaPrincipals      certs.Principals
	Providers              Providers

	// Security holds the client keys for the home broker, ControllerSecurity those
	// for the controllers (keys with the prefix "controller.", on top of Security).
	Security           Properties
	ControllerSecurity Properties
	// InterBrokerSecurity is ControllerSecurity's like for the listener that brokers use among
	// themselves (prefix "inter.broker.").
	InterBrokerSecurity Properties

	// ListenerProtocols are those of the client listeners that have one given.
	ListenerProtocols map[string]Protocol
	// ListenerAddresses holds keys about addresses that listeners have of their own, by name.
	ListenerAddresses map[string]ListenerAddresses
	// ListenerSecurity holds keys that listeners have of their own, by lower-case name.
	ListenerSecurity map[string]Properties
	ClientAuth       string // ssl.client.auth of listeners that have none of their own
	// UpstreamKeystore is the certificate under which clients are relayed, if any.
	UpstreamKeystore Properties
	// HomeServerName is what the home broker's certificate is for, if not the host of HomeBroker.
	HomeServerName string

	// PluginPath is the folder of programs that plugins name without one.
	PluginPath string
	// Plugins are those that mirrors may name, the one built in among them.
	Plugins map[string]*Plugin
}

// Key describes one key, for flags and documentation.
type Key struct {
	Name    string
	Default string
	Doc     string
	// Repeatable says that the flag may be given more than once; its values are joined by semicolons.
	Repeatable bool
	secret     bool
}

// Flag is the key's name as a command line flag.
func (k Key) Flag() string { return strings.ReplaceAll(k.Name, ".", "-") }

// repeatable lets the flag be given more than once.
func repeatable(k sidecarKey) sidecarKey {
	k.Repeatable = true
	return k
}

type sidecarKey struct {
	Key
	set func(*Sidecar, string) error
}

func intKey[T int | int16 | int32 | int64](lo, hi int64, field func(*Sidecar) *T) func(*Sidecar, string) error {
	return func(s *Sidecar, v string) error {
		n, err := parseInt(v, lo, hi)
		if err == nil {
			*field(s) = T(n)
		}
		return err
	}
}

func millisKey(lo int64, field func(*Sidecar) *time.Duration) func(*Sidecar, string) error {
	return func(s *Sidecar, v string) error {
		d, err := parseMillis(v, lo, math.MaxInt32)
		if err == nil {
			*field(s) = d
		}
		return err
	}
}

func boolKey(field func(*Sidecar) *bool) func(*Sidecar, string) error {
	return func(s *Sidecar, v string) error {
		b, err := parseBool(v)
		if err == nil {
			*field(s) = b
		}
		return err
	}
}

func listKey(field func(*Sidecar) *[]string) func(*Sidecar, string) error {
	return func(s *Sidecar, v string) error {
		*field(s) = SplitList(v)
		return nil
	}
}

func addressesKey(field func(*Sidecar) *[]string) func(*Sidecar, string) error {
	return func(s *Sidecar, v string) error {
		a, err := parseAddresses(v)
		if err == nil {
			*field(s) = a
		}
		return err
	}
}

func listenersKey(field func(*Sidecar) *[]Listener) func(*Sidecar, string) error {
	return func(s *Sidecar, v string) error {
		l, err := parseListeners(v)
		if err == nil {
			*field(s) = l
		}
		return err
	}
}

// sidecarKeys is the table of the sidecar's own keys. It is built at each call, so
// that nothing can change it for everybody.
func sidecarKeys() []sidecarKey {
	k := func(name, def, doc string, set func(*Sidecar, string) error) sidecarKey {
		return sidecarKey{Key: Key{Name: name, Default: def, Doc: doc}, set: set}
	}
	return []sidecarKey{
		k("home.broker.bootstrap", "", "address of the broker beside this sidecar, not through a proxy (required)", addressesKey(func(s *Sidecar) *[]string { return &s.HomeBroker })),
		k("controller.quorum.bootstrap.servers", "", "addresses of the destination's controllers (required)", addressesKey(func(s *Sidecar) *[]string { return &s.Controllers })),
		k("listeners", "", "where the proxy listens for clients, [NAME://]host:port, comma separated", listenersKey(func(s *Sidecar) *[]Listener { return &s.Listeners })),
		k("advertised.listeners", "", "what clients are told about this sidecar's listeners; empty if the brokers advertise the proxy", listenersKey(func(s *Sidecar) *[]Listener { return &s.AdvertisedListeners })),
		k("virtual.listeners", "", "where the virtual broker listens for the other brokers, host:port (required)", listenersKey(func(s *Sidecar) *[]Listener { return &s.VirtualListeners })),
		k("virtual.advertised.listeners", "", "what is registered for the virtual broker, if other brokers reach it elsewhere than virtual.listeners", listenersKey(func(s *Sidecar) *[]Listener { return &s.VirtualAdvertisedListeners })),
		k(keyNodeHostMapping, "", "proxy address of each broker, 1=host:port,2=host:port; for brokers that do not advertise their proxies", func(s *Sidecar, v string) error {
			m, err := parseMapping(v)
			if err == nil {
				s.NodeHostMapping = m
			}
			return err
		}),
		repeatable(k(keyServerMapping, "", "remote-host:port,local-host:port[,advertised-host:port], semicolons between, or the flag several times: clients are told the last one of the broker that advertises the first; the sidecar beside that broker listens at the second", func(s *Sidecar, v string) error {
			m, err := parseServerMapping(v)
			if err == nil {
				s.BootstrapServerMapping = m
			}
			return err
		})),
		k(keyDeterministic, "false", "clients are told dynamic.sequential.min.port plus the broker's id as the port of its proxy; without listeners, the sidecar listens there", boolKey(func(s *Sidecar) *bool { return &s.DeterministicListeners })),
		k(keyMinPort, "", "see deterministic.listeners", func(s *Sidecar, v string) error {
			var a ListenerAddresses
			err := a.take(keyMinPort, v)
			s.MinPort = a.MinPort
			return err
		}),
		k(keyAdvertised, "", "host, or without deterministic.listeners host:port, of each broker's proxy, with {node} for the broker's id and {host} for the host that it advertises; empty: that host", func(s *Sidecar, v string) error {
			t, err := parseAddressTemplate(v)
			s.Advertised = t
			return err
		}),
		k("default.listener.ip", "0.0.0.0", "address that deterministic listeners listen at", func(s *Sidecar, v string) error {
			if net.ParseIP(v) == nil {
				return fmt.Errorf("%q is no IP address", v)
			}
			s.DefaultListenerIP = v
			return nil
		}),
		k("http.listen", "127.0.0.1:9644", "address for health, metrics and the console; empty switches it off", func(s *Sidecar, v string) error {
			if v != "" {
				if _, _, err := splitHostPort(v); err != nil {
					return err
				}
			}
			s.HTTPListen = v
			return nil
		}),
		k("http.pprof", "false", "serve profiles of the process at http.listen, /debug/pprof/, if that is a loopback address", boolKey(func(s *Sidecar) *bool { return &s.HTTPProfiles })),
		k("data.dir", "", "folder for what lets the next process serve clients before it has read the cluster's metadata; empty: none", func(s *Sidecar, v string) error { s.DataDir = v; return nil }),
		k("take.over", "false", "take the place of the sidecar that uses data.dir: serve clients beside it, then have it end", boolKey(func(s *Sidecar) *bool { return &s.TakeOver })),
		k("drain.timeout.ms", "3000", "how long a sidecar that ends waits for the answers that its clients wait for", millisKey(0, func(s *Sidecar) *time.Duration { return &s.DrainTimeout })),
		k("max.connections", "20000", "connections of clients at all listeners together; more are closed at once", intKey(1, math.MaxInt32, func(s *Sidecar) *int { return &s.MaxConnections })),
		k("max.connections.per.ip", strconv.Itoa(math.MaxInt32), "connections of one client address, 0: only of those with an override; the broker cannot count them, it sees the sidecar's address", intKey(0, math.MaxInt32, func(s *Sidecar) *int { return &s.MaxConnectionsPerIP })),
		k("max.connections.per.ip.overrides", "", "other numbers for single addresses, 10.0.0.1:100,10.0.0.2:200", func(s *Sidecar, v string) error {
			m, err := parsePerIP(v)
			s.MaxConnectionsPerIPOverrides = m
			return err
		}),
		k("max.connection.creation.rate", strconv.Itoa(math.MaxInt32), "connections that are accepted in a second; more wait", intKey(1, math.MaxInt32, func(s *Sidecar) *int { return &s.MaxConnectionRate })),
		k("connections.max.idle.ms", "600000", "how long nothing may move on a connection before it is closed", millisKey(1, func(s *Sidecar) *time.Duration { return &s.MaxIdle })),
		k("connections.max.stall.ms", "30000", "how long a client may send nothing more of a request that it has begun", millisKey(1, func(s *Sidecar) *time.Duration { return &s.MaxStall })),
		k("connections.max.login.ms", "30000", "how long a client may take to log in, where the broker's listener has SASL", millisKey(1, func(s *Sidecar) *time.Duration { return &s.MaxLogin })),
		k("socket.request.max.bytes", strconv.Itoa(100<<20), "largest request", intKey(1, math.MaxInt32, func(s *Sidecar) *int { return &s.MaxRequest })),
		k("state.encryption.key.file", "", "file with the keys, base64 of 32 bytes a line, that encrypt mirrors' secrets in the state topic: the first does, all decrypt; the same at all sidecars", func(s *Sidecar, v string) error { s.StateEncryptionKeyFile = v; return nil }),
		k("log.level", "info", "debug, info, warn or error", func(s *Sidecar, v string) error {
			if err := s.LogLevel.UnmarshalText([]byte(v)); err != nil {
				return fmt.Errorf("%q is none of debug, info, warn, error", v)
			}
			return nil
		}),
		k("read.only.error", "policy-violation", "error of a produce to a mirror topic: policy-violation or read-only-topic", func(s *Sidecar, v string) error {
			switch v {
			case "policy-violation", "read-only-topic":
				s.ReadOnlyTopicError = v == "read-only-topic"
				return nil
			}
			return fmt.Errorf("%q is neither policy-violation nor read-only-topic", v)
		}),
		k("allow.uncordoned", "false", "work with a metadata.version that cannot cordon virtual brokers", boolKey(func(s *Sidecar) *bool { return &s.AllowUncordoned })),
		k("allow.host.rules.ignored", "false", "be ready although ACLs or quotas by client address exist", boolKey(func(s *Sidecar) *bool { return &s.AllowHostRulesIgnored })),

		k("mirror.topic.num.partitions", "50", "partitions of the state topic; fixed once it exists", intKey(1, 10000, func(s *Sidecar) *int32 { return &s.StatePartitions })),
		k("mirror.state.topic.replication.factor", "3", "replication factor of the state topic, capped at the number of brokers", intKey(1, 1000, func(s *Sidecar) *int16 { return &s.StateReplicationFactor })),
		k("mirror.metadata.refresh.interval.ms", "30000", "how often desired and actual state are compared", millisKey(100, func(s *Sidecar) *time.Duration { return &s.RefreshInterval })),
		k("mirror.num.replica.fetchers", "1", "fetchers per source broker and mirror", intKey(1, 64, func(s *Sidecar) *int { return &s.ReplicaFetchers })),
		k("mirror.failed.retry.initial.backoff.ms", "1000", "first wait before a failed partition is tried again", millisKey(1, func(s *Sidecar) *time.Duration { return &s.RetryInitialBackoff })),
		k("mirror.failed.retry.max.backoff.ms", "300000", "longest wait before a failed partition is tried again", millisKey(1, func(s *Sidecar) *time.Duration { return &s.RetryMaxBackoff })),
		k("mirror.failed.retry.max.attempts", "20", "how often a failed partition is tried again; 0 = never", intKey(0, 32767, func(s *Sidecar) *int { return &s.RetryMaxAttempts })),
		k("mirror.replication.throttled.rate", strconv.FormatInt(math.MaxInt64, 10), "bytes per second read from sources by this sidecar", intKey(1, math.MaxInt64, func(s *Sidecar) *int64 { return &s.ThrottledRate })),
		k("mirror.virtual.broker.id.offset", "10000", "virtual broker id = broker id + this", intKey(1, math.MaxInt32/2, func(s *Sidecar) *int32 { return (*int32)(&s.VirtualOffset) })),
		k("mirror.virtual.replicas", "2", "virtual replicas of a mirror partition, capped by the number of live sidecars", intKey(1, 16, func(s *Sidecar) *int { return &s.VirtualReplicas })),
		k("mirror.buffer.memory.bytes", strconv.Itoa(256<<20), "memory for batches on their way", intKey(16<<20, math.MaxInt64, func(s *Sidecar) *int64 { return &s.BufferMemory })),
		k("mirror.stop.replica.wait.ms", "30000", "how long a stop waits for live replicas that lag", millisKey(0, func(s *Sidecar) *time.Duration { return &s.StopReplicaWait })),
		k("mirror.stop.pid.reset", "false", "write MIRROR_PID_RESET at stop", boolKey(func(s *Sidecar) *bool { return &s.StopPIDReset })),
		k("mirror.replica.principals", "", "certificates' names of the brokers and sidecars that reach the virtual broker over mutual TLS, semicolons between", func(s *Sidecar, v string) error {
			s.ReplicaPrincipals = certs.ParsePrincipals(v)
			return nil
		}),
		k("listener.security.protocol.map", "", "NAME:PROTOCOL,… of listeners; SSL and SASL_SSL have TLS; a listener that is not named has the protocol that its name says, else none with TLS", func(s *Sidecar, v string) error {
			m, err := parseProtocolMap(v)
			if err == nil {
				s.ListenerProtocols = m
			}
			return err
		}),
		k(keyClientAuth, "none", "whether listeners with TLS ask clients for certificates: none, requested or required", func(s *Sidecar, v string) error {
			s.ClientAuth = v
			_, err := clientAuth(Properties{keyClientAuth: v})
			return err
		}),
		k("home.broker.ssl.server.name", "", "name that the home broker's certificate must have; empty: the host of home.broker.bootstrap", func(s *Sidecar, v string) error {
			s.HomeServerName = strings.TrimSpace(v)
			return nil
		}),
		k(keyPluginPath, "", "folder of the programs of plugins; plugin.<name>.command may name one in it, and is <name> if not given", func(s *Sidecar, v string) error {
			if v != "" && !filepath.IsAbs(v) {
				return fmt.Errorf("%q is not an absolute path", v)
			}
			s.PluginPath = v
			return nil
		}),
		k(keyAllowedPaths, "", "directories and files that ${file:…} and ${dir:…} may read, and that mirrors may name", listKey(func(s *Sidecar) *[]string { return &s.Providers.AllowedPaths })),
		k(keyAllowedEnv, "", "variables that ${env:…} may read", listKey(func(s *Sidecar) *[]string { return &s.Providers.AllowedEnv })),
		k(keyAllowedURLs, "", "token endpoints that mirrors may log in by (sasl.oauthbearer.token.endpoint.url)", listKey(func(s *Sidecar) *[]string { return &s.Providers.AllowedURLs })),
	}
}

// controllerPrefix marks client keys that hold for the controllers only.
const controllerPrefix = "controller."

// SidecarKeys lists every key of a sidecar: its own and the client security keys.
func SidecarKeys() []Key {
	var out []Key
	for _, k := range sidecarKeys() {
		out = append(out, k.Key)
	}
	for _, k := range securityKeys() {
		out = append(out, k)
		bare := k
		k.Name, k.Doc = controllerPrefix+k.Name, k.Doc+" (controllers only)"
		out = append(out, k)
		k.Name, k.Doc = interBrokerPrefix+bare.Name, bare.Doc+" (towards the listener that brokers use among themselves)"
		out = append(out, k)
		if slices.Contains(keystoreKeys(), bare.Name) {
			bare.Name, bare.Doc = upstreamPrefix+bare.Name, bare.Doc+" (under which clients are relayed)"
			out = append(out, bare)
		}
	}
	return out
}

// ParseSidecar checks the keys and fills in defaults. All errors are reported at
// once, so that a file is mended in one go.
func ParseSidecar(p Properties) (*Sidecar, error) {
	return parseSidecar(p, "home.broker.bootstrap", "controller.quorum.bootstrap.servers", "virtual.listeners")
}

// ParseEvict is ParseSidecar for a process that only evicts, and so needs no more than the
// controllers.
func ParseEvict(p Properties) (*Sidecar, error) {
	return parseSidecar(p, "controller.quorum.bootstrap.servers")
}

func parseSidecar(p Properties, required ...string) (*Sidecar, error) {
	s := &Sidecar{Security: Properties{}, ControllerSecurity: Properties{}, InterBrokerSecurity: Properties{}, UpstreamKeystore: Properties{}, ListenerSecurity: map[string]Properties{}, ListenerAddresses: map[string]ListenerAddresses{}, Plugins: map[string]*Plugin{}}
	var errs []error
	table := sidecarKeys()
	providers := Providers{AllowedPaths: SplitList(p[keyAllowedPaths]), AllowedEnv: SplitList(p[keyAllowedEnv])}
	known := make(map[string]bool, len(table))
	names := make([]string, 0, len(table))
	for _, k := range table {
		known[k.Name] = true
		names = append(names, k.Name)
		v, given := p[k.Name]
		if !given {
			v = k.Default
		}
		v, err := providers.expandOwn(k.Name, v)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := k.set(s, v); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", k.Name, err))
		}
	}
	security := map[string]bool{}
	for _, k := range securityKeys() {
		security[k.Name] = true
		names = append(names, k.Name, controllerPrefix+k.Name, interBrokerPrefix+k.Name)
	}
	for _, k := range keystoreKeys() {
		names = append(names, upstreamPrefix+k)
	}
	for _, k := range append(listenerKeys(), addressKeys()...) {
		names = append(names, listenerPrefix+"<name>."+k)
	}
	for _, k := range pluginKeys() {
		names = append(names, pluginPrefix+"<name>."+k)
	}
	for _, key := range p.Keys() {
		upstream, isUpstream := strings.CutPrefix(key, upstreamPrefix)
		among, isAmong := strings.CutPrefix(key, interBrokerPrefix)
		switch bare, isController := strings.CutPrefix(key, controllerPrefix); {
		case known[key]:
		case security[key]:
			s.Security[key] = p[key]
		case isController && security[bare]:
			s.ControllerSecurity[bare] = p[key]
		case isAmong && security[among]:
			s.InterBrokerSecurity[among] = p[key]
		case isUpstream && slices.Contains(keystoreKeys(), upstream):
			s.UpstreamKeystore[upstream] = p[key]
		case s.takeListenerKey(key, p[key]):
		default:
			value, err := p[key], error(nil)
			if !strings.HasPrefix(key, pluginPrefix) { // theirs are replaced when all is known
				value, err = providers.expandOwn(key, value)
			}
			taken := false
			if err == nil {
				taken, err = s.takeAddressKey(key, value)
			}
			if !taken && err == nil {
				taken, err = s.takePluginKey(key, p[key])
			}
			switch {
			case err != nil:
				errs = append(errs, err)
			case !taken:
				errs = append(errs, unknownKey(key, names))
			}
		}
	}
	inherit(s.ControllerSecurity, s.Security)
	inherit(s.InterBrokerSecurity, s.Security)
	for name, missing := range map[string]bool{
		"home.broker.bootstrap":               len(s.HomeBroker) == 0,
		"controller.quorum.bootstrap.servers": len(s.Controllers) == 0,
		"virtual.listeners":                   len(s.VirtualListeners) == 0,
	} {
		if missing && slices.Contains(required, name) {
			errs = append(errs, fmt.Errorf("%s is required", name))
		}
	}
	if err := s.checkAddresses(); err != nil {
		errs = append(errs, err)
	}
	if s.HTTPProfiles && s.HTTPListen != "" && !Loopback(s.HTTPListen) {
		errs = append(errs, fmt.Errorf("http.pprof: profiles are served at a loopback address only, and http.listen is %s; nobody logs in there", s.HTTPListen))
	}
	if s.RetryInitialBackoff > s.RetryMaxBackoff {
		errs = append(errs, errors.New("mirror.failed.retry.initial.backoff.ms is above mirror.failed.retry.max.backoff.ms"))
	}
	if len(errs) > 0 {
		slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, errors.Join(errs...)
	}
	// Expanded after the rest is known to be right: the allowed paths are keys too. The
	// sidecar's own file is the operator's, but one rule for all is easier to reason about.
	for _, sec := range slices.Concat([]Properties{s.Security, s.ControllerSecurity, s.InterBrokerSecurity, s.UpstreamKeystore}, slices.Collect(maps.Values(s.ListenerSecurity))) {
		if err := s.settle(sec); err != nil {
			return nil, err
		}
	}
	if s.StateEncryptionKeyFile != "" && slices.Contains(required, "virtual.listeners") { // else no mirror is read
		var err error
		if s.Providers.Keys, err = sealed.Open(s.StateEncryptionKeyFile); err != nil {
			return nil, fmt.Errorf("state.encryption.key.file: %w", err)
		}
	}
	if err := s.finishPlugins(); err != nil {
		return nil, err
	}
	for _, sec := range []Properties{s.Security, s.ControllerSecurity, s.InterBrokerSecurity} {
		if _, err := s.ClientOptions(sec); err != nil {
			return nil, err
		}
	}
	if slices.Contains(required, "virtual.listeners") { // else nobody listens
		if err := s.checkListeners(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Loopback tells whether only this machine reaches an address.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

// parsePerIP reads address:number[,…].
func parsePerIP(v string) (map[netip.Addr]int, error) {
	out := map[netip.Addr]int{}
	for _, item := range SplitList(v) {
		at := strings.LastIndexByte(item, ':')
		if at < 0 {
			return nil, fmt.Errorf("%q is not address:number", item)
		}
		addr, err := netip.ParseAddr(strings.Trim(item[:at], "[]"))
		if err != nil {
			return nil, fmt.Errorf("%q is not an IP address", item[:at])
		}
		n, err := parseInt(item[at+1:], 0, math.MaxInt32)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", item, err)
		}
		out[addr.Unmap()] = int(n)
	}
	return out, nil
}

func parseListeners(v string) ([]Listener, error) {
	var out []Listener
	for _, item := range SplitList(v) {
		l := Listener{}
		address := item
		if name, rest, found := strings.Cut(item, "://"); found {
			l.Name, address = strings.ToUpper(name), rest
		}
		var err error
		if l.Host, l.Port, err = splitHostPort(address); err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

func parseMapping(v string) (map[int32]string, error) {
	out := map[int32]string{}
	for _, item := range SplitList(v) {
		id, address, found := strings.Cut(item, "=")
		n, err := strconv.ParseInt(strings.TrimSpace(id), 10, 32)
		if !found || err != nil || n < 0 {
			return nil, fmt.Errorf("%q is not brokerId=host:port", item)
		}
		address = strings.TrimSpace(address)
		if _, _, err := splitHostPort(address); err != nil {
			return nil, err
		}
		if _, twice := out[int32(n)]; twice {
			return nil, fmt.Errorf("broker %d is given twice", n)
		}
		out[int32(n)] = address
	}
	return out, nil
}

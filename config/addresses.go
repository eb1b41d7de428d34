package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
)

// HostPort is an address.
type HostPort struct {
	Host string
	Port uint16
}

func (a HostPort) String() string { return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port))) }

func parseHostPort(v string) (HostPort, error) {
	host, port, err := splitHostPort(strings.TrimSpace(v))
	return HostPort{host, port}, err
}

// forClients reads an address that clients are told.
func forClients(v string) (HostPort, error) {
	a, err := parseHostPort(v)
	if err != nil {
		return a, err
	}
	if ip := net.ParseIP(a.Host); a.Host == "" || ip != nil && ip.IsUnspecified() {
		return a, fmt.Errorf("%q says where to listen, not where clients can connect", v)
	}
	return a, nil
}

// ServerMapping is an entry of bootstrap.server.mapping.
type ServerMapping struct {
	Remote HostPort // what a broker advertises
	Local  HostPort // where the sidecar beside it listens
	Told   HostPort // what clients are told
}

// parseServerMapping reads entries as kafka-proxy has them, semicolons or blanks between.
func parseServerMapping(v string) ([]ServerMapping, error) {
	var out []ServerMapping
	for _, item := range strings.FieldsFunc(v, func(r rune) bool { return r == ';' || r == ' ' || r == '\t' || r == '\n' }) {
		parts := strings.Split(item, ",")
		if len(parts) != 2 && len(parts) != 3 {
			return nil, fmt.Errorf("%q is not remote-host:port,local-host:port[,advertised-host:port]", item)
		}
		var m ServerMapping
		var err error
		if m.Remote, err = parseHostPort(parts[0]); err != nil {
			return nil, err
		}
		if m.Local, err = parseHostPort(parts[1]); err != nil {
			return nil, err
		}
		if m.Told, err = forClients(parts[len(parts)-1]); err != nil {
			if len(parts) == 2 {
				err = fmt.Errorf("%w: give that as the third part", err)
			}
			return nil, err
		}
		for _, other := range out {
			if other.Remote == m.Remote {
				return nil, fmt.Errorf("%s is mapped twice", m.Remote)
			}
			if other.Told == m.Told {
				return nil, fmt.Errorf("clients would be told %s of two brokers, %s and %s", m.Told, other.Remote, m.Remote)
			}
		}
		out = append(out, m)
	}
	return out, nil
}

// AddressTemplate makes a broker's address for clients of its id and the host that it advertises.
type AddressTemplate struct {
	Host string // with {node} and {host}; empty: the host that is advertised
	Port uint16 // 0: another rule gives it
}

func parseAddressTemplate(v string) (AddressTemplate, error) {
	v = strings.TrimSpace(v)
	t := AddressTemplate{Host: v}
	if strings.Contains(v, ":") {
		a, err := forClients(v)
		if err != nil {
			return t, err
		}
		t = AddressTemplate(a)
	}
	if rest := strings.NewReplacer("{node}", "", "{host}", "").Replace(t.Host); strings.ContainsAny(rest, "{}$()") {
		return t, fmt.Errorf("%q: the places that are filled in are {node} and {host}", v)
	}
	return t, nil
}

func (t AddressTemplate) host(node int32, host string) string {
	if t.Host == "" {
		return host
	}
	return strings.NewReplacer("{node}", strconv.Itoa(int(node)), "{host}", host).Replace(t.Host)
}

// ListenerAddresses are keys about addresses that a listener may have of its own, with the prefix
// listener.name.<name>; empty ones are those of all listeners.
type ListenerAddresses struct {
	Home            string // where that listener of the home broker is
	NodeHostMapping map[int32]string
	MinPort         uint16
	Advertised      AddressTemplate
}

const (
	keyHome            = "home.broker.bootstrap"
	keyNodeHostMapping = "node.host.mapping"
	keyServerMapping   = "bootstrap.server.mapping"
	keyDeterministic   = "deterministic.listeners"
	keyMinPort         = "dynamic.sequential.min.port"
	keyAdvertised      = "dynamic.advertised.listener"
)

func addressKeys() []string { return []string{keyHome, keyNodeHostMapping, keyMinPort, keyAdvertised} }

// take sets one of addressKeys.
func (a *ListenerAddresses) take(key, v string) (err error) {
	switch key {
	case keyHome:
		var list []string
		if list, err = parseAddresses(v); err == nil && len(list) != 1 {
			err = errors.New("one address is needed")
		}
		if err == nil {
			a.Home = list[0]
		}
	case keyNodeHostMapping:
		a.NodeHostMapping, err = parseMapping(v)
	case keyMinPort:
		var n int64
		if v != "" {
			n, err = parseInt(v, 1, math.MaxUint16)
		}
		a.MinPort = uint16(n)
	case keyAdvertised:
		a.Advertised, err = parseAddressTemplate(v)
	}
	return err
}

// takeAddressKey keeps listener.name.<name>.<key> and tells whether there is such a key.
func (s *Sidecar) takeAddressKey(key, value string) (bool, error) {
	rest, ok := strings.CutPrefix(key, listenerPrefix)
	if !ok {
		return false, nil
	}
	name, bare, _ := strings.Cut(rest, ".")
	if name == "" || !slices.Contains(addressKeys(), bare) {
		return false, nil
	}
	name = strings.ToUpper(name)
	own := s.ListenerAddresses[name]
	if err := own.take(bare, value); err != nil {
		return true, fmt.Errorf("%s: %w", key, err)
	}
	s.ListenerAddresses[name] = own
	return true, nil
}

// addressesOf are those of a listener, its own over everybody's.
func (s *Sidecar) addressesOf(listener string) ListenerAddresses {
	own := s.ListenerAddresses[listener]
	out := ListenerAddresses{Home: own.Home, NodeHostMapping: maps.Clone(s.NodeHostMapping), MinPort: own.MinPort, Advertised: own.Advertised}
	if out.NodeHostMapping == nil {
		out.NodeHostMapping = map[int32]string{}
	}
	maps.Copy(out.NodeHostMapping, own.NodeHostMapping)
	if out.Home == "" && len(s.HomeBroker) > 0 {
		out.Home = s.HomeBroker[0]
	}
	if out.MinPort == 0 {
		out.MinPort = s.MinPort
	}
	if out.Advertised == (AddressTemplate{}) {
		out.Advertised = s.Advertised
	}
	return out
}

// checkAddresses looks at what can be known of the mapping of addresses without the cluster.
func (s *Sidecar) checkAddresses() error {
	var errs []error
	check := func(prefix string, a ListenerAddresses) {
		at := func(key string) string { return prefix + key }
		if a.MinPort > 0 && !s.DeterministicListeners {
			errs = append(errs, fmt.Errorf("%s: it is for %s=true; a sidecar opens no listener for other brokers than its own", at(keyMinPort), keyDeterministic))
		}
		switch t := a.Advertised; {
		case t == AddressTemplate{}:
		case t.Port == 0 && !s.DeterministicListeners:
			errs = append(errs, fmt.Errorf("%s: %q has no port, and %s, which computes one, is off", at(keyAdvertised), t.Host, keyDeterministic))
		case t.Port > 0 && s.DeterministicListeners:
			errs = append(errs, fmt.Errorf("%s: port %d, but %s computes another one for each broker", at(keyAdvertised), t.Port, keyDeterministic))
		case t.Port > 0 && !strings.Contains(t.Host, "{"):
			errs = append(errs, fmt.Errorf("%s: %s:%d would be told of every broker; {node} or {host} must be in it", at(keyAdvertised), t.Host, t.Port))
		}
	}
	check("", ListenerAddresses{MinPort: s.MinPort, Advertised: s.Advertised})
	someMin := s.MinPort > 0
	for _, name := range slices.Sorted(maps.Keys(s.ListenerAddresses)) {
		own := s.ListenerAddresses[name]
		check(listenerPrefix+strings.ToLower(name)+".", own)
		someMin = someMin || own.MinPort > 0
	}
	if s.DeterministicListeners && !someMin {
		errs = append(errs, fmt.Errorf("%s: %s is needed, a broker's port is that plus the broker's id", keyDeterministic, keyMinPort))
	}
	return errors.Join(errs...)
}

// ClientListener is a listener for clients, with what its clients are told of brokers.
type ClientListener struct {
	Listener
	// Home is where the home broker is to clients of this listener.
	Home string
	// Nodes, Remotes and compute say where brokers are, by id, by what they advertise, and by
	// computing it. Without all of them the brokers advertise their proxies.
	Nodes   map[int32]HostPort
	Remotes map[HostPort]HostPort
	compute *computed
}

// Computes tells whether addresses are computed that no other rule gives.
func (l *ClientListener) Computes() bool { return l.compute != nil }

// Compute makes the address of a node that advertises was; ok is false if it has none.
func (l *ClientListener) Compute(node int32, was HostPort) (told HostPort, ok bool) {
	return l.compute.of(node, was.Host)
}

type computed struct {
	minPort  uint16 // 0: the template has the port
	template AddressTemplate
}

func (c *computed) of(node int32, host string) (HostPort, bool) {
	port := int64(c.template.Port)
	if c.minPort > 0 {
		port = int64(c.minPort) + int64(node)
	}
	if node < 0 || port > math.MaxUint16 {
		return HostPort{}, false
	}
	return HostPort{c.template.host(node, host), uint16(port)}, true
}

// ClientListeners are the listeners that this sidecar opens for clients, given the id of its
// broker and what that advertises, by listener: those of listeners, the broker's own entries of
// bootstrap.server.mapping, and, without any of them, those of deterministic.listeners.
func (s *Sidecar) ClientListeners(home int32, advertises map[string]HostPort) ([]ClientListener, error) {
	var out []ClientListener
	for _, l := range s.Listeners {
		l.Name = l.NameOr(DefaultListener)
		out = append(out, s.clientListener(l, home, s.advertisedFor(l)))
	}
	for _, m := range s.BootstrapServerMapping {
		name, ours := s.ownMapping(m, advertises)
		if !ours {
			continue
		}
		l := Listener{Name: name, Host: m.Local.Host, Port: m.Local.Port}
		at := slices.IndexFunc(out, func(o ClientListener) bool { return o.Port == l.Port && o.Host == l.Host })
		if at < 0 {
			out = append(out, s.clientListener(l, home, &m.Told))
			at = len(out) - 1
		}
		out[at].Home = m.Remote.String()
	}
	if len(out) > 0 || !s.DeterministicListeners {
		return out, nil
	}
	names := slices.Sorted(maps.Keys(s.ListenerAddresses))
	if s.MinPort > 0 && !slices.Contains(names, DefaultListener) {
		names = append(names, DefaultListener)
	}
	for _, name := range names {
		a := s.addressesOf(name)
		port := int64(a.MinPort) + int64(home)
		switch {
		case a.MinPort == 0 || s.ListenerAddresses[name].MinPort == 0 && name != DefaultListener: // it has other keys
			continue
		case port > math.MaxUint16:
			return nil, fmt.Errorf("%s: %d + broker id %d is no port", keyMinPort, a.MinPort, home)
		}
		out = append(out, s.clientListener(Listener{Name: name, Host: s.DefaultListenerIP, Port: uint16(port)}, home, nil))
	}
	return out, nil
}

// ownMapping tells whether an entry is for the home broker, and the name of its listener.
func (s *Sidecar) ownMapping(m ServerMapping, advertises map[string]HostPort) (name string, ours bool) {
	for _, name := range slices.Sorted(maps.Keys(advertises)) {
		if advertises[name] == m.Remote {
			return strings.ToUpper(name), true
		}
	}
	for name, own := range s.ListenerAddresses {
		if own.Home == m.Remote.String() {
			return name, true
		}
	}
	return DefaultListener, slices.Contains(s.HomeBroker, m.Remote.String())
}

// advertisedFor is what advertised.listeners says of a listener.
func (s *Sidecar) advertisedFor(l Listener) *HostPort {
	for _, a := range s.AdvertisedListeners {
		if a.NameOr(DefaultListener) == l.Name {
			return &HostPort{a.Host, a.Port}
		}
	}
	return nil
}

// clientListener makes a listener of which clients are told told, if that is known and nothing else
// is said of the home broker.
func (s *Sidecar) clientListener(l Listener, home int32, told *HostPort) ClientListener {
	a := s.addressesOf(l.Name)
	out := ClientListener{Listener: l, Home: a.Home}
	// Where ports are computed, not every listener needs to take part.
	if a.MinPort > 0 || a.Advertised.Port > 0 {
		out.compute = &computed{minPort: a.MinPort, template: a.Advertised}
	}
	if len(s.BootstrapServerMapping) > 0 {
		out.Remotes = map[HostPort]HostPort{}
		for _, m := range s.BootstrapServerMapping {
			out.Remotes[m.Remote] = m.Told
		}
	}
	if len(a.NodeHostMapping) == 0 && out.compute == nil && out.Remotes == nil {
		return out // the brokers advertise their proxies
	}
	out.Nodes = map[int32]HostPort{}
	if told != nil {
		out.Nodes[home] = *told
	}
	for id, addr := range a.NodeHostMapping {
		at, err := parseHostPort(addr)
		if err != nil {
			continue // refused when it was parsed
		}
		out.Nodes[id] = at
	}
	return out
}

package proxy

import (
	"net"
	"slices"
	"strconv"
	"sync"
)

// HostPort is the address that clients are told of a broker.
type HostPort struct {
	Host string
	Port int32
}

func (a HostPort) String() string { return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port))) }

// mapped tells whether the listener maps addresses: its brokers do not advertise their proxies.
func (c *Config) mapped() bool {
	return len(c.Hosts) > 0 || len(c.Advertised) > 0 || c.Compute != nil
}

// Told is what clients are told of a broker that advertises was. The most particular rule
// wins: the node's own address, the one that stands for what is advertised, the computed one.
func (c *Config) Told(node int32, was HostPort) (told HostPort, ok bool) {
	if a, ok := c.Hosts[node]; ok {
		return a, true
	}
	if a, ok := c.Advertised[was]; ok {
		return a, true
	}
	if c.Compute != nil {
		return c.Compute(node, was)
	}
	return HostPort{}, false
}

// untold are the brokers whose addresses were withheld, so that each is complained about once.
type untold struct {
	mu   sync.Mutex
	seen map[int32]HostPort // bounded by the number of brokers there ever were
}

func (u *untold) first(node int32, at HostPort) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if was, ok := u.seen[node]; ok && was == at {
		return false
	}
	if u.seen == nil {
		u.seen = make(map[int32]HostPort)
	}
	u.seen[node] = at
	return true
}

// address puts the mapped address of a broker in place and tells whether it changed it. ok is
// false for a broker that clients cannot be told of: with its own address they would go around the
// proxies, and write to mirror topics or miss them, and nobody would know why.
func (p *Proxy) address(node int32, host *string, port *int32) (changed, ok bool) {
	if node < 0 || !p.cfg.mapped() {
		return false, true
	}
	was := HostPort{*host, *port}
	told, ok := p.cfg.Told(node, was)
	if !ok {
		if p.untold.first(node, was) {
			p.log.Error("clients are not told of a broker: no address of its proxy is configured (node.host.mapping, bootstrap.server.mapping) and none can be computed (deterministic.listeners)",
				"broker", node, "advertises", was.String())
		}
		return false, false
	}
	if told == was {
		return false, true
	}
	*host, *port = told.Host, told.Port
	return true, true
}

// hide removes the virtual brokers from a list of ids, in place.
func (p *Proxy) hide(ids *[]int32) bool {
	before := len(*ids)
	*ids = slices.DeleteFunc(*ids, p.cfg.IDs.Is)
	return len(*ids) != before
}

// hideBrokers removes the virtual brokers from a list, in place, and those that clients cannot
// be told of, which are missing then: to clients they are down. The others get their mapped addresses.
func hideBrokers[B any](p *Proxy, brokers *[]B, fields func(*B) (node *int32, host *string, port *int32)) (changed bool, missing []int32) {
	kept := (*brokers)[:0]
	for i := range *brokers {
		b := &(*brokers)[i]
		node, host, port := fields(b)
		if p.cfg.IDs.Is(*node) {
			changed = true
			continue
		}
		rewritten, ok := p.address(*node, host, port)
		if !ok {
			missing = append(missing, *node)
			changed = true
			continue
		}
		changed = changed || rewritten
		kept = append(kept, *b)
	}
	*brokers = kept
	return changed, missing
}

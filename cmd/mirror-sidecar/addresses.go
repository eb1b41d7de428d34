package main

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/proxy"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// clientListeners are the listeners for clients, once it is known which broker the home broker
// is. What does not fit the cluster is an error where it cannot work, else a warning.
func clientListeners(cfg *config.Sidecar, c *cluster, log *slog.Logger) ([]config.ClientListener, error) {
	home, ok := c.image.Broker(c.home.ID)
	if !ok {
		return nil, fmt.Errorf("home broker %d is not registered", c.home.ID)
	}
	advertises := map[string]config.HostPort{}
	for _, ep := range home.Endpoints {
		advertises[strings.ToUpper(ep.Name)] = config.HostPort{Host: ep.Host, Port: ep.Port}
	}
	listeners, err := cfg.ClientListeners(home.ID, advertises)
	if err != nil {
		return nil, err
	}
	if len(listeners) == 0 && len(cfg.BootstrapServerMapping) > 0 {
		return nil, fmt.Errorf("bootstrap.server.mapping: no entry is for the home broker, which is broker %d and advertises %v", home.ID, advertises)
	}
	for _, ep := range home.Endpoints {
		for _, l := range listeners {
			if want := cfg.UpstreamProtocol(l.Name); l.Home == ep.Addr() && protocolOf(ep) != want {
				return nil, fmt.Errorf("listener %s: the home broker's listener %s at %s is %s, but security.protocol, or listener.name.%s.security.protocol, is %s",
					l.Name, ep.Name, l.Home, protocolOf(ep), strings.ToLower(l.Name), want)
			}
		}
	}
	for _, l := range listeners {
		told, mapped := toldOf(l, home.ID, advertises)
		switch {
		case mapped && told.Port != int32(l.Port):
			log.Info("clients are told another port than the one that this sidecar listens at: something must lead there", "listener", l.Name, "told", told.String(), "port", l.Port)
		case mapped:
			log.Info("clients are told of proxies, not of what brokers advertise", "listener", l.Name, "told", told.String())
		}
	}
	if len(cfg.AdvertisedListeners) > 0 && len(listeners) > 0 && listeners[0].Nodes == nil && !slices.ContainsFunc(cfg.AdvertisedListeners, func(a config.Listener) bool {
		return slices.ContainsFunc(home.Endpoints, func(ep metadata.Endpoint) bool { return ep.Host == a.Host && ep.Port == a.Port })
	}) {
		log.Warn("the home broker advertises none of advertised.listeners, and no address is mapped (node.host.mapping, bootstrap.server.mapping, deterministic.listeners): clients will go around the proxies",
			"broker", home.ID, "advertises", advertises)
	}
	return listeners, nil
}

// toldOf is what a listener's clients are told of the home broker. An address is computed from what
// that advertises only.
func toldOf(l config.ClientListener, home int32, advertises map[string]config.HostPort) (told proxy.HostPort, mapped bool) {
	pc := addressed(proxy.Config{}, l)
	was, known := advertises[l.Name]
	if !known {
		pc.Compute = nil
	}
	return pc.Told(home, proxyAddress(was))
}

func proxyAddress(a config.HostPort) proxy.HostPort {
	return proxy.HostPort{Host: a.Host, Port: int32(a.Port)}
}

// addressed tells a proxy what its clients are told of brokers.
func addressed(pc proxy.Config, l config.ClientListener) proxy.Config {
	pc.Hosts = make(map[int32]proxy.HostPort, len(l.Nodes))
	for node, a := range l.Nodes {
		pc.Hosts[node] = proxyAddress(a)
	}
	pc.Advertised = make(map[proxy.HostPort]proxy.HostPort, len(l.Remotes))
	for was, a := range l.Remotes {
		pc.Advertised[proxyAddress(was)] = proxyAddress(a)
	}
	if l.Computes() {
		pc.Compute = func(node int32, was proxy.HostPort) (proxy.HostPort, bool) {
			a, ok := l.Compute(node, config.HostPort{Host: was.Host, Port: uint16(was.Port)})
			return proxyAddress(a), ok
		}
	}
	return pc
}

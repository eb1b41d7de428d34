package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestAddressKeysAreChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		p    Properties
		want string
	}{
		"two parts":                   {Properties{"bootstrap.server.mapping": "a:1"}, "remote-host:port,local-host:port"},
		"four parts":                  {Properties{"bootstrap.server.mapping": "a:1,b:2,c:3,d:4"}, "remote-host:port,local-host:port"},
		"no port":                     {Properties{"bootstrap.server.mapping": "a,b:2"}, "host:port"},
		"everywhere":                  {Properties{"bootstrap.server.mapping": "a:1,0.0.0.0:2"}, "third part"},
		"everywhere advertised":       {Properties{"bootstrap.server.mapping": "a:1,b:2,[::]:3"}, "not where clients can connect"},
		"remote twice":                {Properties{"bootstrap.server.mapping": "a:1,b:2;a:1,b:3"}, "a:1 is mapped twice"},
		"told twice":                  {Properties{"bootstrap.server.mapping": "a:1,b:2;a:2,c:3,b:2"}, "b:2 of two brokers"},
		"deterministic without port":  {Properties{"deterministic.listeners": "true"}, "dynamic.sequential.min.port is needed"},
		"port alone":                  {Properties{"dynamic.sequential.min.port": "30000"}, "deterministic.listeners=true"},
		"port of a listener alone":    {Properties{"listener.name.external.dynamic.sequential.min.port": "30000"}, "listener.name.external.dynamic.sequential.min.port: it is for deterministic"},
		"port too large":              {Properties{"deterministic.listeners": "true", "dynamic.sequential.min.port": "70000"}, "out of range"},
		"host alone":                  {Properties{"dynamic.advertised.listener": "kafka-{node}"}, "has no port"},
		"two ports":                   {Properties{"dynamic.advertised.listener": "k{node}:1", "deterministic.listeners": "true", "dynamic.sequential.min.port": "30000"}, "port 1, but"},
		"one address for all":         {Properties{"dynamic.advertised.listener": "kafka:9092"}, "would be told of every broker"},
		"another place":               {Properties{"dynamic.advertised.listener": "kafka-{nodeId}:9092"}, "{node} and {host}"},
		"no IP address":               {Properties{"default.listener.ip": "everywhere"}, "no IP address"},
		"two homes":                   {Properties{"listener.name.external.home.broker.bootstrap": "a:1,b:2"}, "one address"},
		"another listener's key":      {Properties{"listener.name.external.log.level": "debug"}, "unknown key"},
		"nodes of a listener":         {Properties{"listener.name.external.node.host.mapping": "1"}, "brokerId=host:port"},
		"what is close":               {Properties{"bootstrap.server.mappings": "a:1,b:2"}, `"bootstrap.server.mapping"`},
		"good: by address":            {Properties{"bootstrap.server.mapping": "a:1,0.0.0.0:2,p1:2; b:1,0.0.0.0:3,p2:3"}, ""},
		"good: by port":               {Properties{"deterministic.listeners": "true", "dynamic.sequential.min.port": "30000", "dynamic.advertised.listener": "kafka-{node}.lan"}, ""},
		"good: by template":           {Properties{"dynamic.advertised.listener": "{host}:9192"}, ""},
		"good: by port, one listener": {Properties{"deterministic.listeners": "true", "listener.name.external.dynamic.sequential.min.port": "30000"}, ""},
	} {
		p := minimal()
		for k, v := range tc.p {
			p[k] = v
		}
		_, err := ParseSidecar(p)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the sidecar beside broker 2 opens, and what clients are told there of brokers 1 to 3. The
// broker advertises b2:9092 at CLIENT and e2:9094 at EXTERNAL; home.broker.bootstrap is a:1.
func TestClientListeners(t *testing.T) {
	const nothing = "-"
	for name, tc := range map[string]struct {
		p    Properties
		want []string // NAME at where, to where: what is told
	}{
		"brokers advertise their proxies": {
			Properties{"listeners": ":9092", "advertised.listeners": "p2:9092"},
			[]string{"CLIENT at :9092 to a:1: as advertised"},
		},
		"by node": {
			Properties{"listeners": ":9092", "node.host.mapping": "1=p1:1,2=p2:2"},
			[]string{"CLIENT at :9092 to a:1: p1:1 p2:2 -"},
		},
		"by node, its own by advertised.listeners": {
			Properties{"listeners": ":9092", "node.host.mapping": "1=p1:1", "advertised.listeners": "p2:9092"},
			[]string{"CLIENT at :9092 to a:1: p1:1 p2:9092 -"},
		},
		"two listeners": {
			Properties{
				"listeners": "CLIENT://:9092,EXTERNAL://:9094", "node.host.mapping": "1=p1:1,2=p2:2,3=p3:3",
				"listener.name.external.node.host.mapping": "1=x1:1,2=x2:2", "listener.name.external.home.broker.bootstrap": "a:4",
			},
			[]string{"CLIENT at :9092 to a:1: p1:1 p2:2 p3:3", "EXTERNAL at :9094 to a:4: x1:1 x2:2 p3:3"},
		},
		"by address": {
			Properties{"bootstrap.server.mapping": "b1:9092,0.0.0.0:31,p1:31;b2:9092,0.0.0.0:32,p2:32;e2:9094,0.0.0.0:42,x2:42;e1:9094,0.0.0.0:41,x1:41"},
			[]string{"CLIENT at 0.0.0.0:32 to b2:9092: p1:31 p2:32 -", "EXTERNAL at 0.0.0.0:42 to e2:9094: x1:41 x2:42 -"},
		},
		"by address, one that nobody advertises": {
			Properties{"bootstrap.server.mapping": "a:1,0.0.0.0:32,p2:32;b1:9092,0.0.0.0:31,p1:31"},
			[]string{"CLIENT at 0.0.0.0:32 to a:1: p1:31 p2:32 -"},
		},
		"by address, at a listener that there is": {
			Properties{"listeners": "127.0.0.1:32", "bootstrap.server.mapping": "b2:9092,127.0.0.1:32;b3:9092,127.0.0.1:33"},
			[]string{"CLIENT at 127.0.0.1:32 to b2:9092: - 127.0.0.1:32 127.0.0.1:33"},
		},
		"by port": {
			Properties{"deterministic.listeners": "true", "dynamic.sequential.min.port": "30000"},
			[]string{"CLIENT at 0.0.0.0:30002 to a:1: b1:30001 b2:30002 b3:30003"},
		},
		"by port and template, at given listeners": {
			Properties{
				"listeners": ":9092,EXTERNAL://:9094", "deterministic.listeners": "true", "dynamic.sequential.min.port": "30000",
				"dynamic.advertised.listener": "kafka-{node}.lan", "listener.name.external.dynamic.sequential.min.port": "40000",
			},
			[]string{"CLIENT at :9092 to a:1: kafka-1.lan:30001 kafka-2.lan:30002 kafka-3.lan:30003", "EXTERNAL at :9094 to a:1: kafka-1.lan:40001 kafka-2.lan:40002 kafka-3.lan:40003"},
		},
		"by port of one listener": {
			Properties{
				"deterministic.listeners": "true", "default.listener.ip": "10.0.0.1", "listener.name.external.dynamic.sequential.min.port": "40000",
				"listener.name.external.home.broker.bootstrap": "a:4", "node.host.mapping": "3=p3:3",
			},
			[]string{"EXTERNAL at 10.0.0.1:40002 to a:4: e1:40001 e2:40002 p3:3"},
		},
		"by port of one listener, another key of the default one": {
			Properties{
				"deterministic.listeners": "true", "listener.name.external.dynamic.sequential.min.port": "40000",
				"listener.name.client.home.broker.bootstrap": "a:4",
			},
			[]string{"EXTERNAL at 0.0.0.0:40002 to a:1: e1:40001 e2:40002 e3:40003"},
		},
		"by address at one listener, by port at another": {
			Properties{
				"bootstrap.server.mapping": "b1:9092,p1:31;b2:9092,p2:32;b3:9092,p3:33", "listeners": "EXTERNAL://:40002",
				"deterministic.listeners": "true", "listener.name.external.dynamic.sequential.min.port": "40000", "listener.name.external.home.broker.bootstrap": "e2:9094",
			},
			[]string{"EXTERNAL at :40002 to e2:9094: e1:40001 e2:40002 e3:40003", "CLIENT at p2:32 to b2:9092: p1:31 p2:32 p3:33"},
		},
		"by template": {
			Properties{"listeners": ":9192", "dynamic.advertised.listener": "{host}:9192"},
			[]string{"CLIENT at :9192 to a:1: b1:9192 b2:9192 b3:9192"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := minimal()
			for k, v := range tc.p {
				p[k] = v
			}
			s, err := ParseSidecar(p)
			if err != nil {
				t.Fatal(err)
			}
			listeners, err := s.ClientListeners(2, map[string]HostPort{"CLIENT": {"b2", 9092}, "External": {"e2", 9094}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range listeners {
				told := "as advertised"
				if l.Nodes != nil {
					var all []string
					for node := int32(1); node <= 3; node++ {
						was := HostPort{fmt.Sprintf("b%d", node), 9092}
						if l.Name == "EXTERNAL" {
							was = HostPort{fmt.Sprintf("e%d", node), 9094}
						}
						text := nothing
						if a, ok := l.Nodes[node]; ok {
							text = a.String()
						} else if a, ok := l.Remotes[was]; ok {
							text = a.String()
						} else if l.Computes() {
							if a, ok := l.Compute(node, was); ok {
								text = a.String()
							}
						}
						all = append(all, text)
					}
					told = strings.Join(all, " ")
				} else if l.Computes() || l.Remotes != nil {
					t.Error("an address may be told, but there are no nodes")
				}
				got = append(got, fmt.Sprintf("%s at %s:%d to %s: %s", l.Name, l.Host, l.Port, l.Home, told))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestComputedPortsEnd(t *testing.T) {
	p := minimal()
	p["deterministic.listeners"], p["dynamic.sequential.min.port"] = "true", "65000"
	s, err := ParseSidecar(p)
	if err != nil {
		t.Fatal(err)
	}
	listeners, err := s.ClientListeners(500, nil)
	if err != nil {
		t.Fatal(err)
	}
	for node, want := range map[int32]bool{535: true, 536: false, -1: false} {
		if a, ok := listeners[0].Compute(node, HostPort{"h", 1}); ok != want {
			t.Errorf("node %d: %v %t", node, a, ok)
		}
	}
	if _, err := s.ClientListeners(600, nil); err == nil || !strings.Contains(err.Error(), "is no port") {
		t.Errorf("its own: %v", err)
	}
}

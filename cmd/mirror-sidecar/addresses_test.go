package main

import (
	"bytes"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/proxy"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// What is configured is held against what the home broker, 2, advertises.
func TestClientListenersFitTheHomeBroker(t *testing.T) {
	image := metadata.NewImage(10000)
	image.Set(nil, []metadata.Broker{{ID: 2, Endpoints: []metadata.Endpoint{
		{Name: "CLIENT", Host: "b2", Port: 9092},
		{Name: "secure", Host: "b2", Port: 9094, SecurityProtocol: 3},
	}}}, nil)
	c := &cluster{image: image, home: replica.Home{ID: 2}}
	for name, tc := range map[string]struct {
		p       config.Properties
		err     string
		log     string
		toldOf2 proxy.HostPort // by the first listener
	}{
		"advertised": {config.Properties{"listeners": ":9092", "advertised.listeners": "b2:9092"}, "", "", proxy.HostPort{}},
		"advertised by nobody": {
			config.Properties{"listeners": ":9092", "advertised.listeners": "p2:9092"}, "", "go around the proxies", proxy.HostPort{},
		},
		"by address":           {config.Properties{"bootstrap.server.mapping": "b2:9092,p2:32"}, "", "told=p2:32", proxy.HostPort{Host: "p2", Port: 32}},
		"by address of others": {config.Properties{"bootstrap.server.mapping": "b1:9092,p1:31"}, "no entry is for the home broker", "", proxy.HostPort{}},
		"another protocol":     {config.Properties{"bootstrap.server.mapping": "b2:9094,p2:32"}, "secure at b2:9094 is SASL_SSL", "", proxy.HostPort{}},
		"by port":              {config.Properties{"deterministic.listeners": "true", "dynamic.sequential.min.port": "30000"}, "", "told=b2:30002", proxy.HostPort{Host: "b2", Port: 30002}},
		"by port, elsewhere": {
			config.Properties{"listeners": ":9092", "deterministic.listeners": "true", "dynamic.sequential.min.port": "30000"},
			"", "something must lead there",
			proxy.HostPort{Host: "b2", Port: 30002},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := config.Properties{"home.broker.bootstrap": "a:1", "controller.quorum.bootstrap.servers": "c:2", "virtual.listeners": "v:3"}
			maps.Copy(p, tc.p)
			cfg, err := config.ParseSidecar(p)
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			listeners, err := clientListeners(cfg, c, slog.New(slog.NewTextHandler(&log, nil)))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(log.String(), tc.log) || tc.log == "" && log.Len() > 0 {
				t.Errorf("log %q, want %q", log.String(), tc.log)
			}
			pc := addressed(proxy.Config{}, listeners[0])
			was := proxy.HostPort{Host: "b2", Port: 9092}
			told, ok := pc.Hosts[2]
			if !ok {
				told, ok = pc.Advertised[was]
			}
			if !ok && pc.Compute != nil {
				told, _ = pc.Compute(2, was)
			}
			if told != tc.toldOf2 {
				t.Errorf("told %v, want %v", told, tc.toldOf2)
			}
		})
	}
}

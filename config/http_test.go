package config

import (
	"strings"
	"testing"
)

// Nobody logs in at the HTTP address: by default only this machine reaches it, and profiles are for this machine in
// any case.
func TestHTTPIsForThisMachine(t *testing.T) {
	for _, tc := range []struct {
		set  Properties
		want string // of the error
	}{
		{Properties{}, ""},
		{Properties{"http.pprof": "true"}, ""},
		{Properties{"http.pprof": "true", "http.listen": "[::1]:9644"}, ""},
		{Properties{"http.pprof": "true", "http.listen": "localhost:9644"}, ""},
		{Properties{"http.pprof": "true", "http.listen": ""}, ""},
		{Properties{"http.pprof": "true", "http.listen": "0.0.0.0:9644"}, "http.pprof: "},
		{Properties{"http.pprof": "true", "http.listen": "10.0.0.1:9644"}, "http.pprof: "},
		{Properties{"http.listen": "0.0.0.0:9644"}, ""},
	} {
		p := Properties{"home.broker.bootstrap": "a:1", "controller.quorum.bootstrap.servers": "a:2", "virtual.listeners": "a:3", "listeners": "a:4"}
		for k, v := range tc.set {
			p[k] = v
		}
		s, err := ParseSidecar(p)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v", tc.set, err)
		}
		if _, given := tc.set["http.listen"]; err == nil && !given && !Loopback(s.HTTPListen) {
			t.Errorf("%v: listens at %s", tc.set, s.HTTPListen)
		}
	}
	s, err := ParseSidecar(Properties{"home.broker.bootstrap": "a:1", "controller.quorum.bootstrap.servers": "a:2", "virtual.listeners": "a:3", "listeners": "a:4"})
	if err != nil || s.HTTPProfiles {
		t.Errorf("profiles are served though nobody asked for them: %v", err)
	}
}

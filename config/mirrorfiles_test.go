package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMirrorFiles: who may create a mirror must not act as the sidecar elsewhere by naming its keystore.
func TestMirrorFiles(t *testing.T) {
	allowed, own := t.TempDir(), t.TempDir()
	for _, dir := range []string{allowed, own} {
		if err := os.WriteFile(filepath.Join(dir, "key.pem"), []byte("no PEM"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(own, filepath.Join(allowed, "out")); err != nil {
		t.Fatal(err)
	}
	const outside = "not inside config.providers.allowed.paths"
	for name, c := range map[string]struct {
		key, value, want string
		none             bool // nothing is allowed
	}{
		"the sidecar's own":       {key: "ssl.keystore.location", value: filepath.Join(own, "key.pem"), want: outside},
		"nothing allowed":         {key: "ssl.keystore.location", value: filepath.Join(allowed, "key.pem"), want: outside, none: true},
		"trust":                   {key: "ssl.truststore.location", value: "/etc/passwd", want: outside},
		"none, which is not told": {key: "ssl.truststore.location", value: "/no/such/file", want: outside},
		"around":                  {key: "ssl.keystore.location", value: filepath.Join(allowed, "..", filepath.Base(own), "key.pem"), want: outside},
		"by a link":               {key: "ssl.keystore.location", value: filepath.Join(allowed, "out", "key.pem"), want: outside},
		"relative":                {key: "ssl.keystore.location", value: "key.pem", want: outside},
		"allowed":                 {key: "ssl.keystore.location", value: filepath.Join(allowed, "key.pem"), want: "PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Mirror{Bootstrap: []string{"h:1"}, Security: Properties{"security.protocol": "SSL", c.key: c.value}}
			p := Providers{AllowedPaths: []string{allowed}}
			if c.none {
				p.AllowedPaths = nil
			}
			_, err := m.Options(p)
			if err == nil || !strings.Contains(err.Error(), c.key) || !strings.Contains(err.Error(), c.want) || c.want == "PEM" && strings.Contains(err.Error(), outside) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	for value, want := range map[string]string{"https://h/file:x": "", "file:///etc/token": "/etc/token", "FILE:/etc/token": "/etc/token", "": ""} {
		if got, isFile := namedFile("sasl.oauthbearer.token.endpoint.url", value); got != want || isFile != (want != "") {
			t.Errorf("%q is %q, %t", value, got, isFile)
		}
	}
	inline := &Mirror{Bootstrap: []string{"h:1"}, Security: Properties{"security.protocol": "SSL"}}
	if _, err := inline.Options(Providers{}); err != nil {
		t.Errorf("without files: %v", err)
	}
}

package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestAFlagMayBeRepeated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sidecar.properties")
	text := "home.broker.bootstrap=a:1\ncontroller.quorum.bootstrap.servers=c:1\nvirtual.listeners=v:1\nbootstrap.server.mapping=x:1,y:1\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		flags []string
		want  []string // what is told
	}{
		{nil, []string{"y:1"}},
		{[]string{"--bootstrap-server-mapping", "a:1,0.0.0.0:31,p1:31", "--bootstrap-server-mapping=b:1,p2:32"}, []string{"p1:31", "p2:32"}},
		{[]string{"--bootstrap-server-mapping", "a:1,p1:31;b:1,p2:32"}, []string{"p1:31", "p2:32"}},
	} {
		cfg, err := parse(append([]string{"--config", file}, tc.flags...), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if len(cfg.BootstrapServerMapping) != len(tc.want) {
			t.Fatalf("%v: %v", tc.flags, cfg.BootstrapServerMapping)
		}
		for i, m := range cfg.BootstrapServerMapping {
			if m.Told.String() != tc.want[i] {
				t.Errorf("%v: %v, want %s", tc.flags, m, tc.want[i])
			}
		}
	}
}

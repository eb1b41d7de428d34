package panics

import "testing"

func TestTouchesState(t *testing.T) {
	for name, tc := range map[string]struct {
		functions []string
		want      bool
	}{
		"the proxy's own":         {[]string{"runtime.panicIndex", module + "proxy.(*conn).fetch", module + "proxy.(*conn).read"}, false},
		"a codec":                 {[]string{module + "protocol.(*X).ReadFrom", module + "coordinator.(*Coordinator).Handle", module + "proxy.(*conn).write"}, false},
		"what a codec hands on":   {[]string{module + "coordinator.(*Coordinator).admit", module + "coordinator.(*Coordinator).Handle"}, true},
		"a library under state":   {[]string{"slices.Sort", module + "replica/leading.(*Partition).fetch"}, true},
		"the manager":             {[]string{module + "replica.(*Manager).Fetch"}, true},
		"a name that begins so":   {[]string{module + "replicas.X", "example.com/replica.X"}, false},
		"the metadata's image":    {[]string{module + "replica/metadata.(*Image).Topic"}, true},
		"a closure of a codec's":  {[]string{module + "coordinator.(*Coordinator).Handle.func1"}, true},
		"fetchers of the sources": {[]string{module + "fetcher/pool.(*Pool).Get"}, true},
	} {
		if got := touchesState(tc.functions); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

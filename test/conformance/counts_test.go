package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// gauge sums a metric without labels over sidecars.
func gauge(t *testing.T, sidecars []*stack.Sidecar, name string) int {
	t.Helper()
	sum := 0
	for _, c := range sidecars {
		found := false
		for _, line := range metrics(t, c) {
			if value, ok := strings.CutPrefix(line, "kafka_mirror_"+name+" "); ok {
				n, err := strconv.Atoi(value)
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				found, sum = true, sum+n
			}
		}
		if !found {
			t.Fatalf("sidecar %d has no kafka_mirror_%s", c.Broker, name)
		}
	}
	return sum
}

// countsNoVirtual: a virtual replica that is not in sync is none that is counted.
func countsNoVirtual(t *testing.T, e *env, topic string, victim, other *stack.Sidecar) {
	t.Helper()
	for _, p := range e.here(t, topic).Partitions {
		if slices.Contains(p.ISR, victim.VirtualID()) {
			t.Errorf("the dead sidecar's virtual broker is in sync of %s-%d: %v", topic, p.Partition, p.ISR)
		}
	}
	eventually(t, "no real replica is missed", func(context.Context) error {
		if n := gauge(t, []*stack.Sidecar{other}, "leader_count"); n == 0 {
			return fmt.Errorf("%d partitions are led", n)
		}
		for _, name := range []string{"under_replicated_partitions", "under_min_isr_partitions", "offline_partitions"} {
			if n := gauge(t, []*stack.Sidecar{other}, name); n != 0 {
				return fmt.Errorf("%s is %d", name, n)
			}
		}
		return nil
	})
}

// countsReal: a real replica that is not in sync is counted, and where none is, the partition is offline.
func countsReal(t *testing.T, e *env) {
	t.Helper()
	eventually(t, "the dead broker's replicas are missed", func(context.Context) error {
		for _, name := range []string{"under_replicated_partitions", "under_min_isr_partitions", "offline_partitions"} {
			if n := gauge(t, e.dst.Sidecars, name); n == 0 {
				return fmt.Errorf("%s is %d", name, n)
			}
		}
		return nil
	})
}

// chaosCounts: a chaos run says for itself whether what it dealt counts, by its exit status.
func chaosCounts(t *testing.T, _ *env) {
	bin := filepath.Join(t.TempDir(), "chaos")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../chaos").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	type object = map[string]any
	// A run of twenty minutes that counts: 13 kinds of faults, eight of each.
	whole := func() (object, []object) {
		var faults []object
		kinds := object{}
		for i := range 104 {
			kind := fmt.Sprintf("kind-%d", i%13)
			kinds[kind] = 8
			faults = append(faults, object{"kind": kind, "recordsPerSecond": 2500, "evidence": []string{"seen"}})
		}
		return object{"minutes": 20, "records": 3_000_000, "recordsPerSecond": 2500, "transactionalShare": 0.25, "faultsByKind": kinds}, faults
	}
	for _, c := range []struct {
		name   string
		change func(r object, faults []object) []object
		counts bool
	}{
		{"as it must be", func(_ object, f []object) []object { return f }, true},
		{"too few faults", func(_ object, f []object) []object { return f[:99] }, false},
		{"too few kinds", func(r object, f []object) []object {
			kinds := maps.Clone(r["faultsByKind"].(object)) //nolint:forcetypeassert // it is ours
			kinds["kind-11"], kinds["kind-12"], kinds["kind-0"] = 4, 4, 16
			r["faultsByKind"] = kinds
			return f
		}, false},
		{"one kind above a quarter", func(r object, f []object) []object {
			r["faultsByKind"].(object)["kind-0"] = 27 //nolint:forcetypeassert // it is ours
			return f
		}, false},
		{"a fault that nobody saw", func(_ object, f []object) []object {
			f[7]["evidence"] = []string{}
			return f
		}, false},
		{"a fault while little was written", func(_ object, f []object) []object {
			f[7]["recordsPerSecond"] = 1900
			return f
		}, false},
		{"one more that says that it does not count", func(_ object, f []object) []object {
			return append(f, object{"kind": "kind-0", "skipped": "only 10 records/s were written"})
		}, true},
		{"no records", func(r object, f []object) []object {
			r["records"] = 0
			return f
		}, false},
		{"hardly any transactions", func(r object, f []object) []object {
			r["transactionalShare"] = 0.09
			return f
		}, false},
		{"one record lost", func(r object, f []object) []object {
			r["lost"] = 1
			return f
		}, false},
		{"one fault that nothing came back from", func(r object, f []object) []object {
			r["unrecovered"] = 1
			return f
		}, false},
	} {
		r, faults := whole()
		r["faults"] = c.change(r, faults)
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "chaos.json")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), bin, "-judge", file).CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if !strings.HasPrefix(lines[len(lines)-1], "faults=") {
			t.Errorf("%s: ends with %q", c.name, lines[len(lines)-1])
		}
		if counts := err == nil; counts != c.counts {
			t.Errorf("%s: %v\n%s", c.name, err, strings.Join(lines[max(0, len(lines)-4):], "\n"))
		}
	}
}

package procedures

import (
	"os"
	"strings"
	"testing"
)

// envLong asks for all pages; CI leaves out the one that takes longest.
const envLong = "MIRROR_PROCEDURES_LONG"

// envOnly names the only page to execute.
const envOnly = "MIRROR_PROCEDURES_ONLY"

// TestProcedures executes the pages one after the other on the same two clusters. The one
// that loses the source comes last.
func TestProcedures(t *testing.T) {
	w := newWorld(t, false, shape{brokers: 2})
	long := os.Getenv(envLong) != ""
	page := func(name string, env map[string]string) {
		t.Run(name, func(t *testing.T) { w.execute(t, name, env) })
	}
	if only := os.Getenv(envOnly); only != "" {
		page(only, map[string]string{"SDK": sdk(t)})
		return
	}
	// First, where nothing else is mirrored: what they print is all there is. The first of them leaves
	// nothing mirrored.
	page("emergency", nil)
	page("uninstall", nil)
	page("switchover", nil)
	page("migration", w.around())
	page("failback", nil)
	t.Run("interrupted switchover", w.testInterrupted)
	t.Run("switchover with an open transaction", w.testOpenTransaction)
	t.Run("verbs", w.testVerbs)
	t.Run("decoders", w.testDecoders)
	if long { // a JVM that takes half a minute to begin
		page("mirrormaker2", nil)
		page(pluginPage, map[string]string{"SDK": sdk(t)})
	}
	page("failover", nil)
}

// around makes $SRC the brokers themselves, as if no sidecars stood before them.
func (w *world) around() map[string]string {
	return map[string]string{"SRC": strings.Join(w.src.Direct(), ",")}
}

// TestMigrationFromOldCluster leaves a cluster of a version that knows nothing of all this.
func TestMigrationFromOldCluster(t *testing.T) {
	if os.Getenv(envLong) == "" {
		t.Skip("only with " + envLong)
	}
	w := newWorld(t, true, shape{brokers: 2})
	w.execute(t, "migration", w.around())
}

package procedures

import (
	"os"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// envLong asks for all pages; CI leaves out the one that takes longest.
const envLong = "MIRROR_PROCEDURES_LONG"

// TestProcedures executes the pages one after the other on the same two clusters. The one
// that loses the source comes last.
func TestProcedures(t *testing.T) {
	w := newWorld(t)
	long := os.Getenv(envLong) != ""
	page := func(name string, env map[string]string) {
		t.Run(name, func(t *testing.T) { w.execute(t, name, env) })
	}
	page("switchover", nil)
	// As if nothing stood before the old cluster.
	page("migration", map[string]string{"SRC": strings.Join(w.src.Cluster.Bootstrap(harness.ListenerInternal), ",")})
	page("failback", nil)
	t.Run("interrupted switchover", w.testInterrupted)
	t.Run("decoders", w.testDecoders)
	if long { // a JVM that takes half a minute to begin
		page("mirrormaker2", nil)
	}
	page("failover", nil)
}

package e2e

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// The subtests of one cluster pair run in order, and each needs what the ones before it
// have built; a failure of one is no reason to skip the others.

// TestMirror44 goes through everything on three brokers of Kafka 4.4.
func TestMirror44(t *testing.T) {
	e := start(t, destination(harness.Version44, 3))
	const mirror, misc = "load", "misc"
	t.Run("bad input", e.testBadInput)
	load := e.feed(t, "e2e", 40)
	if !t.Run("equality", func(t *testing.T) { e.testEquality(t, mirror, load) }) {
		return // no use in going on
	}
	e.createMirror(t, misc)
	const topic = "e2e-idempotent"
	t.Run("old records", func(t *testing.T) { e.testOldRecords(t, misc) })
	t.Run("read committed", func(t *testing.T) { e.testReadCommitted(t, "e2e-open-transaction", "e2e-transactional") })
	t.Run("groups", func(t *testing.T) { e.testGroups(t, topic) })
	t.Run("any sidecar", func(t *testing.T) { e.testAnySidecar(t, mirror, topic) })
	t.Run("refused at the proxy", func(t *testing.T) { e.testRefusedAtProxy(t, mirror, topic) })
	t.Run("refused around the proxy", func(t *testing.T) { e.testRefusedAroundProxy(t, topic) })
	t.Run("refused without sidecars", func(t *testing.T) { e.testRefusedWithoutSidecars(t, misc, load.TopicNames()...) })
	t.Run("stop", func(t *testing.T) { e.testStop(t, mirror, load) })
	t.Run("cycles", func(t *testing.T) { e.testCycles(t, misc) })
	t.Run("start after local writes", func(t *testing.T) { e.testStartAfterLocalWrites(t, misc) })
	t.Run("delete", e.testDelete)
	t.Run("stop with a dead broker", func(t *testing.T) { e.testStopWithDeadBroker(t, misc) })
	t.Run("stop with a dead source", func(t *testing.T) { e.testStopWithDeadSource(t, misc) })
}

// TestMirror43 goes through the main job on two brokers of Kafka 4.3, in the full form: the short one
// of test/versions begins with that version.
func TestMirror43(t *testing.T) {
	harness.SkipShort(t)
	if !harness.Full() {
		t.Skip("MIRROR_FULL=1 runs it")
	}
	e := start(t, destination(harness.Version43, 2))
	const mirror = "load"
	load := e.feed(t, "e2e", 40)
	if !t.Run("equality", func(t *testing.T) { e.testEquality(t, mirror, load) }) {
		return
	}
	t.Run("read committed", func(t *testing.T) { e.testReadCommitted(t, "e2e-open-transaction") })
	t.Run("refused around the proxy", func(t *testing.T) { e.testRefusedAroundProxy(t, "e2e-idempotent") })
	t.Run("stop", func(t *testing.T) { e.testStop(t, mirror, load) })
}

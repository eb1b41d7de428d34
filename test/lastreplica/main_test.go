package lastreplica

import (
	"os"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// logEnv is a folder that the sidecars' logs are kept in.
const logEnv = "MIRROR_LASTREPLICA_LOG"

func TestMain(m *testing.M) {
	os.Exit(stack.Main(m))
}

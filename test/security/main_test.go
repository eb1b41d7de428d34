package security

import (
	"os"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

func TestMain(m *testing.M) {
	os.Exit(stack.Main(m))
}

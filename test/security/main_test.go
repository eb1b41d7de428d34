package security

import (
	"os"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == canaryArg {
		plugins.Serve(canaryPlugin())
		return
	}
	os.Exit(withTable(func() int { return stack.Main(m) }))
}

package policies

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// house is a plugin that the sidecars of the shared clusters have: this program itself, which TestMain
// makes it if a sidecar has started it.
const house = "house"

// servedAsPlugin makes this process the plugin, if it is meant to be, and returns when it has ended.
func servedAsPlugin() bool {
	if os.Getenv(plugins.Handshake().MagicCookieKey) == "" {
		return false
	}
	yes := plugins.Accept("house", "the house has nothing against it")
	plugins.Serve(plugins.Policy{
		Name: house, Version: "1",
		Topics: plugins.TopicFunc(func(_ context.Context, _ *policyv1.Round, t *policyv1.TopicFacts) (*policyv1.Decision, error) {
			if strings.HasSuffix(t.GetName(), ".no") {
				return plugins.Refuse("suffix", "the house mirrors nothing that ends in .no"), nil
			}
			return yes, nil
		}),
		Configs: plugins.ConfigFunc(func(context.Context, *policyv1.Round, string, *policyv1.ConfigFacts) (*policyv1.Decision, *string, error) {
			return yes, nil, nil
		}),
		Events: eventFunc(noteDown),
		Groups: plugins.GroupFunc(func(context.Context, *policyv1.Round, *policyv1.GroupFacts) (*policyv1.Decision, error) {
			return yes, nil
		}),
	})
	return true
}

// houseKeys adds the keys of sidecars that have it.
func houseKeys(keys map[string]string) error {
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the test's own program: %w", err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the test's own program: %w", err)
	}
	sum := sha256.Sum256(raw)
	keys["plugin."+house+".command"], keys["plugin."+house+".sha256"] = path, hex.EncodeToString(sum[:])
	return nil
}

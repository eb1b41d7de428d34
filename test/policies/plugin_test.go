package policies

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// strictArg makes the test's own program the plugin "strict".
const strictArg = "be-the-plugin-strict"

// strict refuses topics with a dash in their name, and keeps records of what it knows for a day. What
// it is told to in a file goes wrong with it: hang, crash or nonsense.
func strict() plugins.Policy {
	return plugins.Policy{
		Name: "strict", Version: "1",
		Topics: plugins.TopicFunc(func(_ context.Context, r *policyv1.Round, t *policyv1.TopicFacts) (*policyv1.Decision, error) {
			if d := misbehave(r); d != nil {
				return d, nil
			}
			if strings.Contains(t.GetName(), "-") {
				return plugins.Refuse("no dashes", "dashes are for private topics"), nil
			}
			return plugins.Accept("no dashes", "its name has none"), nil
		}),
		Configs: plugins.ConfigFunc(func(_ context.Context, r *policyv1.Round, _ string, c *policyv1.ConfigFacts) (*policyv1.Decision, *string, error) {
			if d := misbehave(r); d != nil {
				return d, nil, nil
			}
			day := "86400000"
			if c.GetName() == "retention.ms" {
				return plugins.Accept("a day", "nothing is kept longer here"), &day, nil
			}
			return plugins.Accept("rest", "as it is"), nil, nil
		}),
	}
}

func misbehave(r *policyv1.Round) *policyv1.Decision {
	mode, err := os.ReadFile(r.GetPluginConfig()["mode.file"])
	if err != nil {
		return nil
	}
	switch strings.TrimSpace(string(mode)) {
	case "hang":
		select {}
	case "crash":
		os.Exit(3)
	case "nonsense":
		return &policyv1.Decision{}
	}
	return nil
}

// strictKeys are the keys of sidecars that have the plugin, and another one which is not the program
// that they were told it is.
func strictKeys() (keys map[string]string, modeFile string, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", fmt.Errorf("find the test's own program: %w", err)
	}
	f, err := os.Open(program)
	if err != nil {
		return nil, "", fmt.Errorf("the test's own program: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, "", fmt.Errorf("the test's own program: %w", err)
	}
	dir, err := os.MkdirTemp("", "policies-mode-")
	if err != nil {
		return nil, "", err
	}
	mode := filepath.Join(dir, "mode")
	return map[string]string{
		"plugin.strict.command": program + " " + strictArg, "plugin.strict.sha256": hex.EncodeToString(sum.Sum(nil)), "plugin.strict.config.mode.file": mode,
		"plugin.forged.command": program + " " + strictArg, "plugin.forged.sha256": strings.Repeat("0", 64),
	}, mode, nil
}

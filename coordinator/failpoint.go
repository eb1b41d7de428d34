//go:build failpoints

package coordinator

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// failpointsEnv names a folder. A file in it with the name of a fail point arms that
// point for whichever process comes there first: with "kill" in it the process dies at
// once; with "block" it stays there until there is a file <name>.go. The process leaves
// its pid in <name>.reached.
const failpointsEnv = "MIRROR_FAILPOINTS"

// failpointPatience ends a block that nobody lifts.
const failpointPatience = 2 * time.Minute

// failpoint is where tests stop a process between two steps. Without the build tag it
// is nothing.
func failpoint(name string) {
	dir := os.Getenv(failpointsEnv)
	if dir == "" {
		return
	}
	armed := filepath.Join(dir, name)
	claimed := fmt.Sprintf("%s.claimed-%d", armed, os.Getpid())
	if os.Rename(armed, claimed) != nil { // one process only gets it
		return
	}
	how, err := os.ReadFile(claimed)
	if err != nil {
		return
	}
	slog.Warn("fail point reached", "name", name, "how", string(how))
	// Complete at once, for whoever waits for it reads it at once.
	if os.WriteFile(claimed, fmt.Appendf(nil, "%d", os.Getpid()), 0o600) != nil || os.Rename(claimed, armed+".reached") != nil {
		return
	}
	switch strings.TrimSpace(string(how)) {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "block":
		end := time.Now().Add(failpointPatience)
		for time.Now().Before(end) {
			if _, err := os.Stat(armed + ".go"); err == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

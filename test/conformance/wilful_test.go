package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// The names of two plugins of the sidecars, both this program itself. They have nothing against
// anything, and go wrong when a row wants them to: of the second one, by which other rows are, only
// answers.
const (
	pluginWilful = "wilful"
	pluginMute   = "mute"
)

// How a plugin may be wanted to go wrong.
const (
	willCrash = "crash" // its process ends at every question
	willErr   = "err"   // it answers with an error
)

// servedAsPlugin makes this process the plugin, if a sidecar has started it, and returns when it has
// ended.
func servedAsPlugin() bool {
	if os.Getenv(plugins.Handshake().MagicCookieKey) == "" {
		return false
	}
	plugins.Serve(plugins.Policy{
		Name: pluginWilful, Version: "1",
		Topics: plugins.TopicFunc(func(_ context.Context, r *policyv1.Round, _ *policyv1.TopicFacts) (*policyv1.Decision, error) {
			return wilful(r)
		}),
		ACLs: plugins.ACLFunc(func(_ context.Context, r *policyv1.Round, _ *policyv1.AclFacts) (*policyv1.Decision, *policyv1.AclBinding, error) {
			d, err := wilful(r)
			return d, nil, err
		}),
		Events: wilfulEvents{},
	})
	return true
}

func wilful(r *policyv1.Round) (*policyv1.Decision, error) {
	will, err := os.ReadFile(filepath.Join(r.GetPluginConfig()["dir"], r.GetMirror()))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return plugins.Accept("will", "it has nothing against it"), nil
	case err != nil:
		return nil, err
	case string(will) == willCrash:
		os.Exit(3)
	}
	return nil, errors.New("it does not want to")
}

// wilfulEvents writes down the states that partitions come to, a line each.
type wilfulEvents struct{}

// Notify implements plugins.EventSink.
func (wilfulEvents) Notify(_ context.Context, r *policyv1.NotifyRequest) (*policyv1.NotifyResponse, error) {
	if _, err := wilful(r.GetRound()); err != nil {
		return nil, err
	}
	var lines strings.Builder
	for _, e := range r.GetEvents() {
		fmt.Fprintf(&lines, "%s-%d %s\n", e.GetTopic(), e.GetPartition(), e.GetToState())
	}
	f, err := os.OpenFile(filepath.Join(r.GetRound().GetPluginConfig()["dir"], r.GetRound().GetMirror()+".events"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(lines.String())
	return &policyv1.NotifyResponse{}, errors.Join(err, f.Close())
}

// wilfulKeys are the keys of sidecars that have the plugins, which look in a folder for what is wanted
// of them.
func wilfulKeys(t *testing.T, dir string) map[string]string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for _, name := range []string{pluginWilful, pluginMute} {
		prefix := "plugin." + name + "."
		keys[prefix+"command"], keys[prefix+"sha256"] = program, hex.EncodeToString(sum.Sum(nil))
		keys[prefix+"timeout.ms"], keys[prefix+"config.dir"] = "20000", dir
	}
	return keys
}

// will tells the plugins how to go wrong for a mirror; "" ends it.
func (e *env) will(t *testing.T, mirror, how string) {
	t.Helper()
	file := filepath.Join(e.wills, mirror)
	err := os.Remove(file)
	if how != "" {
		err = os.WriteFile(file, []byte(how), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

package kit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/host"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// Config of a run.
type Config struct {
	// Command is the plugin's program and its arguments.
	Command []string
	// Timeout is what plugin.<name>.timeout.ms is for a sidecar.
	Timeout time.Duration
	// Plugin is what the sidecar's configuration says for the plugin, Mirror what a mirror's does.
	Plugin, Mirror map[string]string
	// Log has what the plugin says, and what becomes of its process.
	Log *slog.Logger
}

// name of the plugin in errors.
const name = "under-check"

// Result counts checks.
type Result struct{ Passed, Failed int }

// Run checks a plugin, writes a line for each check, and the sum last. An error says that there was
// nothing to check.
func Run(ctx context.Context, cfg Config, out io.Writer) (Result, error) {
	k, err := open(cfg)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if err := k.host.Stop(ctx); err != nil {
			k.cfg.Log.Warn("the plugin's process", "error", err)
		}
	}()
	var r Result
	report := func(c check) bool {
		err := c.do(ctx, k)
		if err != nil {
			r.Failed++
			fmt.Fprintf(out, "FAIL  %s: %s\n", c.name, strings.ReplaceAll(err.Error(), "\n", "; "))
		} else {
			r.Passed++
			fmt.Fprintf(out, "pass  %s\n", c.name)
		}
		return err == nil
	}
	// What one check has cost the plugin is not the next one's.
	settled := func(c check) check {
		return check{c.name, func(ctx context.Context, k *kit) error {
			if err := k.settle(ctx, true); err != nil {
				return err
			}
			return c.do(ctx, k)
		}}
	}
	if report(starts()) {
		s := k.plugin.Status()
		fmt.Fprintf(out, "      it decides on %s\n", join(s.Kinds))
		for _, c := range general() {
			report(settled(c))
		}
		for _, kind := range kinds() {
			if !has(s.Kinds, kind.name) {
				continue
			}
			for _, c := range ofKind(kind) {
				report(settled(c))
			}
		}
		report(settled(ends()))
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", r.Passed, r.Failed)
	return r, nil
}

// kit is a plugin that is being checked.
type kit struct {
	cfg    Config
	host   *host.Host
	plugin *host.Plugin
}

func open(cfg Config) (*kit, error) {
	if len(cfg.Command) == 0 {
		return nil, errors.New("no program is named")
	}
	program, err := exec.LookPath(cfg.Command[0])
	if errors.Is(err, exec.ErrDot) {
		err = nil
	}
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return nil, fmt.Errorf("the plugin's program: %w", err)
	}
	cfg.Command = append([]string{program}, cfg.Command[1:]...)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	h, err := host.New(host.Config{
		Plugins: map[string]*config.Plugin{name: {Name: name, Command: cfg.Command, Timeout: cfg.Timeout, Config: cfg.Plugin}},
		Version: "check", InitialBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, Starts: 1000,
	}, nil, cfg.Log)
	if err != nil {
		return nil, err
	}
	p, err := h.Get(name)
	if err != nil {
		return nil, err
	}
	return &kit{cfg: cfg, host: h, plugin: p.(*host.Plugin)}, nil
}

// round is what a question of a sidecar has beside its facts.
func (k *kit) round(why policyv1.Round_Why) *policyv1.Round {
	mirror := config.Properties{"bootstrap.servers": "source:9092"}
	for key, v := range k.cfg.Mirror {
		mirror[key] = v
	}
	return &policyv1.Round{
		Mirror: "east", SourceClusterId: "c291cmNlIGNsdXN0ZXIgaQ", DestinationClusterId: "ZGVzdGluYXRpb24gaWQgIQ",
		MirrorConfig: config.ForPolicies(mirror), Why: why,
	}
}

func has(kinds []policy.Kind, k policy.Kind) bool {
	for _, one := range kinds {
		if one == k {
			return true
		}
	}
	return false
}

func join(kinds []policy.Kind) string {
	var out []string
	for _, k := range kinds {
		out = append(out, string(k))
	}
	return strings.Join(out, ", ")
}

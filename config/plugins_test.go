package config

import (
	"maps"
	"strings"
	"testing"
	"time"
)

func TestPlugins(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	p := minimal()
	maps.Copy(p, Properties{
		"plugin.path":         "/opt/plugins",
		"plugin.team.command": "policy.py --strict", "plugin.team.sha256": strings.ToUpper(sum), "plugin.team.timeout.ms": "700",
		"plugin.team.config.prefix.of.names": "team-", "plugin.bare.sha256": sum,
		"plugin.built-in.timeout.ms": "1000",
	})
	s, err := ParseSidecar(p)
	if err != nil {
		t.Fatal(err)
	}
	team := s.Plugins["team"]
	if strings.Join(team.Command, " ") != "/opt/plugins/policy.py --strict" || team.SHA256 != sum || team.Timeout != 700*time.Millisecond || team.Config["prefix.of.names"] != "team-" {
		t.Errorf("team: %+v", team)
	}
	if bare := s.Plugins["bare"]; bare.Command[0] != "/opt/plugins/bare" || bare.Timeout != 5*time.Second {
		t.Errorf("bare: %+v", bare)
	}
	if b := s.Plugins[PluginBuiltIn]; b == nil || len(b.Command) != 0 || b.Timeout != time.Second {
		t.Errorf("built-in: %+v", b)
	}
	if s, err = ParseSidecar(minimal()); err != nil || s.Plugins[PluginBuiltIn] == nil || len(s.Plugins) != 1 {
		t.Errorf("none configured: %v %v", s, err)
	}
	for name, c := range map[string]struct {
		with Properties
		want string
	}{
		"no sha256":         {Properties{"plugin.a.command": "/a"}, "sha256sum /a"},
		"bad sha256":        {Properties{"plugin.a.sha256": "beef"}, "64 hex digits"},
		"no such key":       {Properties{"plugin.a.comand": "/a"}, `"plugin.<name>.command"`},
		"no key of its own": {Properties{"plugin.a.config.": "x"}, "unknown key"},
		"no name":           {Properties{"plugin..command": "/a"}, "letters"},
		"blank name":        {Properties{"plugin.a b.command": "/a"}, "letters"},
		"relative path":     {Properties{"plugin.a.command": "a", "plugin.a.sha256": sum}, "absolute"},
		"out of the path":   {Properties{"plugin.path": "/p", "plugin.a.command": "../a", "plugin.a.sha256": sum}, "leads out"},
		"relative folder":   {Properties{"plugin.path": "plugins"}, "absolute"},
		"no program":        {Properties{"plugin.a.command": " ", "plugin.a.sha256": sum}, "no program"},
		"timeout":           {Properties{"plugin.a.timeout.ms": "5"}, "out of range"},
		"long timeout":      {Properties{"plugin.a.timeout.ms": "30001"}, "out of range"},
		"built-in command":  {Properties{"plugin.built-in.command": "/a"}, "part of the sidecar"},
		"reference":         {Properties{"plugin.built-in.config.a": "${env:HOME}"}, "allowed.env"},
	} {
		p := minimal()
		maps.Copy(p, c.with)
		if _, err := ParseSidecar(p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

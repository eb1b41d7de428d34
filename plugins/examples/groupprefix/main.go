// Command groupprefix is a group policy: which groups' offsets are copied is said by how their names
// begin. plugin.<name>.config.include and .exclude list prefixes, separated by commas; the longest that
// a group begins with decides, so that an exception may have exceptions. A group that begins with none
// is left out, or copied if config.include is not given.
package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

func main() {
	plugins.Serve(plugins.Policy{Name: "groupprefix", Version: "1.0", CheckConfig: checkConfig, Groups: plugins.GroupFunc(decide)})
}

const include, exclude = "include", "exclude"

func checkConfig(config map[string]string) error {
	for key := range config {
		if key != include && key != exclude {
			return fmt.Errorf("there is no key %s; %s and %s are", key, include, exclude)
		}
	}
	excluded := map[string]bool{}
	for _, p := range prefixes(config[exclude]) {
		excluded[p] = true
	}
	for _, p := range prefixes(config[include]) {
		if excluded[p] {
			return fmt.Errorf("%q is both in %s and in %s", p, include, exclude)
		}
	}
	return nil
}

func prefixes(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// longest returns the longest of the prefixes that a name begins with, "" if none.
func longest(list, name string) string {
	best := ""
	for _, p := range prefixes(list) {
		if strings.HasPrefix(name, p) && len(p) > len(best) {
			best = p
		}
	}
	return best
}

func decide(_ context.Context, round *policyv1.Round, group *policyv1.GroupFacts) (*policyv1.Decision, error) {
	config, name := round.GetPluginConfig(), group.GetGroup()
	in, out := longest(config[include], name), longest(config[exclude], name)
	switch {
	case len(out) > len(in):
		return plugins.Refuse(exclude+" "+out, fmt.Sprintf("groups that begin with %s are left out", out)), nil
	case in != "":
		return plugins.Accept(include+" "+in, fmt.Sprintf("groups that begin with %s are copied", in)), nil
	case len(prefixes(config[include])) == 0:
		return plugins.Accept("rest", "it begins with no prefix that is left out"), nil
	}
	return plugins.Refuse("rest", "it begins with none of "+config[include]), nil
}

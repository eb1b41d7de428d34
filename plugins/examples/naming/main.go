// Command naming is a topic policy: a topic is mirrored if its name is <team>.<domain>.<name>, each of
// lower-case letters, digits and dashes. What does not keep to it is named with the part that is wrong.
//
// plugin.<name>.config.teams lists the teams that there are, separated by commas; without it every team
// will do.
package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

func main() {
	plugins.Serve(plugins.Policy{Name: "naming", Version: "1.0", CheckConfig: checkConfig, Topics: plugins.TopicFunc(decide)})
}

const teamsKey = "teams"

func checkConfig(config map[string]string) error {
	for key := range config {
		if key != teamsKey {
			return fmt.Errorf("there is no key %s; %s is the only one", key, teamsKey)
		}
	}
	for _, t := range teams(config) {
		if !isPart(t) {
			return fmt.Errorf("%s: %q can be no team's name: it has lower-case letters, digits and dashes", teamsKey, t)
		}
	}
	return nil
}

func teams(config map[string]string) []string {
	return strings.FieldsFunc(config[teamsKey], func(r rune) bool { return r == ',' || r == ' ' })
}

func decide(_ context.Context, round *policyv1.Round, topic *policyv1.TopicFacts) (*policyv1.Decision, error) {
	parts := strings.Split(topic.GetName(), ".")
	if len(parts) != 3 {
		return plugins.Refuse("form", fmt.Sprintf("the name has %d parts where <team>.<domain>.<name> has 3", len(parts))), nil
	}
	for i, what := range []string{"team", "domain", "name"} {
		if !isPart(parts[i]) {
			return plugins.Refuse(what, fmt.Sprintf("%q is no %s: it has lower-case letters, digits and dashes", parts[i], what)), nil
		}
	}
	known := teams(round.GetPluginConfig())
	if len(known) > 0 && !slices.Contains(known, parts[0]) {
		return plugins.Refuse(teamsKey, fmt.Sprintf("there is no team %q, only %s", parts[0], strings.Join(known, ", "))), nil
	}
	return plugins.Accept("form", fmt.Sprintf("%s of team %s keeps to <team>.<domain>.<name>", parts[2], parts[0])), nil
}

func isPart(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-')
	})
}

package builtin

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

func TestTopics(t *testing.T) {
	round := &policyv1.Round{Mirror: "m", MirrorConfig: map[string]string{config.TopicsIncludeKey: `orders\..*,b`, config.TopicsExcludeKey: `__.*,orders\.tmp`}}
	for name, c := range map[string]struct {
		topic    *policyv1.TopicFacts
		accepted bool
		rule     string
		reason   string
	}{
		"first pattern":            {&policyv1.TopicFacts{Name: "orders.a"}, true, config.TopicsIncludeKey, `included by the pattern "orders\\..*"`},
		"second pattern":           {&policyv1.TopicFacts{Name: "b"}, true, config.TopicsIncludeKey, `included by the pattern "b"`},
		"whole names only":         {&policyv1.TopicFacts{Name: "bb"}, false, config.TopicsIncludeKey, "no pattern of the mirror matches, and it was not started by its name"},
		"exclude wins":             {&policyv1.TopicFacts{Name: "orders.tmp"}, false, config.TopicsExcludeKey, `excluded by the pattern "orders\\.tmp"`},
		"started":                  {&policyv1.TopicFacts{Name: "c", Started: true}, true, StartRule, "started by its name"},
		"started by a pattern":     {&policyv1.TopicFacts{Name: "b", Started: true}, true, config.TopicsIncludeKey, `included by the pattern "b"`},
		"mirrored since":           {&policyv1.TopicFacts{Name: "c", MirrorHere: "m", StateHere: "PAUSED"}, true, StartRule, "started by its name"},
		"stopped":                  {&policyv1.TopicFacts{Name: "c", MirrorHere: "m", StateHere: "STOPPED"}, false, config.TopicsIncludeKey, "no pattern of the mirror matches, and it was not started by its name"},
		"another mirror's":         {&policyv1.TopicFacts{Name: "c", MirrorHere: "n", StateHere: "MIRRORING"}, false, config.TopicsIncludeKey, "no pattern of the mirror matches, and it was not started by its name"},
		"here, and nobody's topic": {&policyv1.TopicFacts{Name: "b", ExistsHere: true}, true, config.TopicsIncludeKey, `included by the pattern "b"`},
	} {
		got, err := topics{}.SelectTopics(t.Context(), &policyv1.SelectTopicsRequest{Round: round, Topics: []*policyv1.TopicFacts{c.topic}})
		if err != nil || len(got.GetDecisions()) != 1 {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
		d := got.GetDecisions()[0].GetDecision()
		if (d.GetVerdict() == policyv1.Decision_ACCEPT) != c.accepted || d.GetRule() != c.rule || d.GetReason() != c.reason {
			t.Errorf("%s: %v, want %t by %s: %s", name, d, c.accepted, c.rule, c.reason)
		}
	}
	round.MirrorConfig[config.TopicsIncludeKey] = "("
	if got, err := (topics{}).SelectTopics(t.Context(), &policyv1.SelectTopicsRequest{Round: round}); err == nil {
		t.Errorf("a broken pattern decides: %v", got)
	}
}

func TestConfigs(t *testing.T) {
	round := &policyv1.Round{MirrorConfig: map[string]string{
		config.PropertiesAlwaysKey: "compression.type,retention.bytes", config.PropertiesIncludeKey: "retention.*,remote.*,min.*", config.PropertiesExcludeKey: "min.insync.replicas,retention.bytes",
	}}
	for name, c := range map[string]struct {
		config   *policyv1.ConfigFacts
		accepted bool
		rule     string
	}{
		"set and included":      {&policyv1.ConfigFacts{Name: "retention.ms", SourceSet: true}, true, config.PropertiesIncludeKey},
		"included, not set":     {&policyv1.ConfigFacts{Name: "retention.ms"}, false, "source"},
		"set, not included":     {&policyv1.ConfigFacts{Name: "segment.ms", SourceSet: true}, false, config.PropertiesIncludeKey},
		"never":                 {&policyv1.ConfigFacts{Name: "min.insync.replicas", SourceSet: true}, false, config.PropertiesExcludeKey},
		"always, not set":       {&policyv1.ConfigFacts{Name: "compression.type"}, true, config.PropertiesAlwaysKey},
		"always and never":      {&policyv1.ConfigFacts{Name: "retention.bytes", SourceSet: true}, false, config.PropertiesExcludeKey},
		"tiered storage":        {&policyv1.ConfigFacts{Name: "remote.storage.enable", SourceSet: true}, false, "tiered storage"},
		"tiered storage, local": {&policyv1.ConfigFacts{Name: "local.retention.ms", SourceSet: true}, false, "tiered storage"},
	} {
		got, err := configs{}.SelectConfigs(t.Context(), &policyv1.SelectConfigsRequest{Round: round, Topics: []*policyv1.TopicConfigFacts{{Topic: "t", Configs: []*policyv1.ConfigFacts{c.config}}}})
		if err != nil || len(got.GetTopics()) != 1 || len(got.GetTopics()[0].GetDecisions()) != 1 {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
		d := got.GetTopics()[0].GetDecisions()[0]
		if (d.GetDecision().GetVerdict() == policyv1.Decision_ACCEPT) != c.accepted || d.GetDecision().GetRule() != c.rule || d.Value != nil {
			t.Errorf("%s: %v, want %t by %s", name, d, c.accepted, c.rule)
		}
	}
}

package coordinator

import (
	"cmp"
	"maps"
	"slices"
)

// knownConfigs is what a source has said of the configs of its topics, for the policies that select
// topics. They are told of every topic at each look; to ask the source for the configs of all of them
// each time would be, of ten thousand topics, some 300,000 configs. So what is new is asked for at once,
// and of the others topicsAtATime, those that were asked for the longest time ago.
type knownConfigs struct {
	of   map[string]knownConfig
	look int
}

type knownConfig struct {
	topic SourceTopic
	look  int // at which it was asked for
}

// begin begins a look at which these topics are at the source.
func (k *knownConfigs) begin(listed []SourceTopic) {
	k.look++
	there := make(map[string]bool, len(listed))
	for _, t := range listed {
		there[t.Name] = true
	}
	maps.DeleteFunc(k.of, func(name string, _ knownConfig) bool { return !there[name] })
}

// learn takes what the source has just said of topics.
func (k *knownConfigs) learn(found map[string]SourceTopic) {
	if k.of == nil {
		k.of = map[string]knownConfig{}
	}
	for name, t := range found {
		t.Defaults = nil // no policy for topics is told
		k.of[name] = knownConfig{t, k.look}
	}
}

// due returns the topics to ask for now. One that is another than before is new.
func (k *knownConfigs) due(listed []SourceTopic) []string {
	var out, old []string
	for _, t := range listed {
		was, known := k.of[t.Name]
		switch {
		case !known || was.topic.ID != t.ID || was.topic.Partitions != t.Partitions && was.topic.Err == nil:
			out = append(out, t.Name)
		case was.look != k.look:
			old = append(old, t.Name)
		}
	}
	slices.SortStableFunc(old, func(a, b string) int { return cmp.Compare(k.of[a].look, k.of[b].look) })
	return append(out, old[:min(len(old), topicsAtATime)]...)
}

// tell returns the topics with their configs, without those that have gone since they were listed.
func (k *knownConfigs) tell(listed []SourceTopic) []SourceTopic {
	out := make([]SourceTopic, 0, len(listed))
	for _, t := range listed {
		if known, ok := k.of[t.Name]; ok {
			out = append(out, known.topic)
		}
	}
	return out
}

// drop forgets topics that were asked for and are not there.
func (k *knownConfigs) drop(asked []string, found map[string]SourceTopic) {
	for _, n := range asked {
		if _, ok := found[n]; !ok {
			delete(k.of, n)
		}
	}
}

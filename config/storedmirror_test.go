package config

import (
	"strings"
	"testing"
)

// What another version has written stops nothing but what it says.
func TestParseStored(t *testing.T) {
	kinds := []string{"topics", "configs", "acls", "groups", "quotas"}
	for key, c := range map[string]struct {
		value string
		// unread are the kinds of which nothing new is mirrored; fatal: it cannot be read from.
		unread string
		fatal  bool
	}{
		ACLsIncludeKey:                    {value: "TOPIC;.*;*;ALLOW;User:CN=app,OU=x", unread: "acls"},
		TopicsExcludeKey:                  {value: "(", unread: "topics"},
		PolicyPrefix + "quotas":           {value: "a b", unread: "quotas"},
		PolicyPrefix + "groups.order":     {value: "x", unread: "groups"},
		PropertiesExcludeKey + ".always":  {value: "x", unread: "configs"},
		"mirror.fetch.quickly":            {value: "true"},
		"mirror.stop.replica.wait.ms":     {value: "long"},
		PolicyPrefix + "schemas":          {value: "x"},
		"ssl.novelty":                     {value: "true", fatal: true},
		"mirror.novelty":                  {value: "true", unread: "topics configs acls groups quotas"},
		"mirror.fetch.max.bytes":          {value: "much", fatal: true},
		"mirror.fetch.response.max.bytes": {value: "1", fatal: true},
		"bootstrap.servers":               {value: "", fatal: true},
	} {
		p := Properties{"bootstrap.servers": "a:1", "request.timeout.ms": "1234", "sasl.mechanism": "PLAIN", "mirror.topics.include": "a.*"}
		p[key] = c.value
		if _, err := ParseMirror(p); err == nil {
			t.Errorf("%s: it may be set anew", key)
		}
		m, err := ParseStored(p)
		if (err != nil) != c.fatal {
			t.Errorf("%s: %v", key, err)
		}
		if err != nil {
			continue
		}
		if m.RequestTimeout.Milliseconds() != 1234 || m.Security["sasl.mechanism"] != "PLAIN" || !m.TopicsInclude.Match("ab") {
			t.Errorf("%s: the rest is not read: %+v", key, m)
		}
		var unread []string
		for _, k := range kinds {
			if err := m.Unread(k); err != nil {
				unread = append(unread, k)
				if !strings.Contains(err.Error(), key) {
					t.Errorf("%s: not named by %v", key, err)
				}
			}
		}
		if got := strings.Join(unread, " "); got != c.unread {
			t.Errorf("%s: unread %q, want %q", key, got, c.unread)
		}
		// Somebody is told of each.
		if ignored := m.Ignored(); (len(ignored) == 1) != (c.unread == "") || len(ignored) == 1 && !strings.Contains(ignored[0], key) {
			t.Errorf("%s: unread %q, ignored %q", key, unread, ignored)
		}
	}
}

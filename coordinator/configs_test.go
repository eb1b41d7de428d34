package coordinator

import (
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

func TestApplyOps(t *testing.T) {
	have := config.Properties{"bootstrap.servers": "a:1,b:2", "mirror.topics.include": "x"}
	for name, c := range map[string]struct {
		ops  []ConfigOp
		want config.Properties // nil: refused
		why  string
	}{
		"set":                       {[]ConfigOp{{"request.timeout.ms", opSet, ptr("5000")}}, config.Properties{"bootstrap.servers": "a:1,b:2", "mirror.topics.include": "x", "request.timeout.ms": "5000"}, ""},
		"delete":                    {[]ConfigOp{{"mirror.topics.include", opDelete, nil}}, config.Properties{"bootstrap.servers": "a:1,b:2"}, ""},
		"delete what is not set":    {[]ConfigOp{{"request.timeout.ms", opDelete, nil}}, have, ""},
		"append":                    {[]ConfigOp{{"mirror.topics.include", opAppend, ptr("x,y")}}, config.Properties{"bootstrap.servers": "a:1,b:2", "mirror.topics.include": "x,y"}, ""},
		"append to a default":       {[]ConfigOp{{"mirror.topics.exclude", opAppend, ptr("y")}}, config.Properties{"bootstrap.servers": "a:1,b:2", "mirror.topics.include": "x", "mirror.topics.exclude": "__.*,y"}, ""},
		"subtract":                  {[]ConfigOp{{"bootstrap.servers", opSubtract, ptr("a:1,c:3")}}, config.Properties{"bootstrap.servers": "b:2", "mirror.topics.include": "x"}, ""},
		"several":                   {[]ConfigOp{{"mirror.topics.include", opDelete, nil}, {"bootstrap.servers", opSet, ptr("c:3")}}, config.Properties{"bootstrap.servers": "c:3"}, ""},
		"unknown key":               {[]ConfigOp{{"mirror.topic.include", opSet, ptr("y")}}, nil, `"mirror.topics.include"`},
		"unknown key, append":       {[]ConfigOp{{"mirror.topic.include", opAppend, ptr("y")}}, nil, `"mirror.topics.include"`},
		"out of range":              {[]ConfigOp{{"mirror.fetch.max.bytes", opSet, ptr("0")}}, nil, "mirror.fetch.max.bytes"},
		"not a list":                {[]ConfigOp{{"request.timeout.ms", opAppend, ptr("5")}}, nil, "only lists"},
		"no value":                  {[]ConfigOp{{"request.timeout.ms", opSet, nil}}, nil, "value is missing"},
		"required":                  {[]ConfigOp{{"bootstrap.servers", opDelete, nil}}, nil, "bootstrap.servers is required"},
		"required, subtracted":      {[]ConfigOp{{"bootstrap.servers", opSubtract, ptr("a:1,b:2")}}, nil, "bootstrap.servers is required"},
		"twice":                     {[]ConfigOp{{"request.timeout.ms", opSet, ptr("5000")}, {"request.timeout.ms", opDelete, nil}}, nil, "twice"},
		"an operation not known":    {[]ConfigOp{{"request.timeout.ms", 9, ptr("5000")}}, nil, "operation 9"},
		"each mistake is named":     {[]ConfigOp{{"mirror.fetch.wait.max.ms", opSet, ptr("x")}, {"mirror.fetch.min.bytes", opSet, ptr("y")}}, nil, "mirror.fetch.min.bytes"},
		"a broken pattern":          {[]ConfigOp{{"mirror.topics.exclude", opSet, ptr("(")}}, nil, "regular expression"},
		"two that do not fit":       {[]ConfigOp{{"mirror.fetch.response.max.bytes", opSet, ptr("5")}}, nil, "below mirror.fetch.max.bytes"},
		"one good, one bad":         {[]ConfigOp{{"request.timeout.ms", opSet, ptr("5000")}, {"nonsense", opSet, ptr("y")}}, nil, "nonsense"},
		"empty is no such as unset": {[]ConfigOp{{"mirror.topics.exclude", opSet, ptr("")}}, config.Properties{"bootstrap.servers": "a:1,b:2", "mirror.topics.include": "x", "mirror.topics.exclude": ""}, ""},
	} {
		got, err := applyOps(Mirror{Name: "m", Configs: have.Clone()}, c.ops)
		if c.want == nil {
			code, text := protocol.CodeOf(err)
			if code != kerr.InvalidConfig.Code || text == nil || !strings.Contains(*text, c.why) || !strings.Contains(*text, "nothing was changed") {
				t.Errorf("%s: %v, want %q", name, err, c.why)
			}
			continue
		}
		if err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
}

// Stored credentials are not taken to hosts of which none is known.
func TestCredentialsStayWithTheirHosts(t *testing.T) {
	const jaas, key = "sasl.jaas.config", "ssl.keystore.key"
	secret := ptr("org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" password=\"b\";")
	have := config.Properties{
		"bootstrap.servers": "a:1,b:2", "security.protocol": "SASL_SSL", jaas: *secret, key: "-----BEGIN PRIVATE KEY-----", "ssl.keystore.certificate.chain": "PEM",
	}
	to := func(servers string) ConfigOp { return ConfigOp{"bootstrap.servers", opSet, ptr(servers)} }
	for name, c := range map[string]struct {
		ops []ConfigOp
		why string // "": allowed
	}{
		"another port":                 {[]ConfigOp{to("a:9")}, ""},
		"one of the hosts":             {[]ConfigOp{to("c:3,B:2")}, ""},
		"one more":                     {[]ConfigOp{{"bootstrap.servers", opAppend, ptr("c:3")}}, ""},
		"elsewhere":                    {[]ConfigOp{to("c:3")}, "give the credentials again with the new address (sasl.jaas.config, ssl.keystore.key)"},
		"elsewhere, one of them":       {[]ConfigOp{to("c:3"), {jaas, opSet, secret}}, "with the new address (ssl.keystore.key)"},
		"elsewhere, given again":       {[]ConfigOp{{key, opSet, ptr("new")}, to("c:3"), {jaas, opSet, secret}}, ""},
		"elsewhere, without one":       {[]ConfigOp{{key, opDelete, nil}, to("c:3"), {jaas, opSet, secret}}, ""},
		"elsewhere by other means":     {[]ConfigOp{to("c:3"), {"security.protocol", opSet, ptr("SASL_PLAINTEXT")}}, "give the credentials again"},
		"the protocol":                 {[]ConfigOp{{"security.protocol", opSet, ptr("SASL_PLAINTEXT")}}, ""},
		"what is no matter of address": {[]ConfigOp{{"request.timeout.ms", opSet, ptr("5000")}}, ""},
	} {
		_, err := applyOps(Mirror{Name: "m", Configs: have.Clone()}, c.ops)
		code, text := protocol.CodeOf(err)
		if c.why == "" && err != nil || c.why != "" && (code != kerr.InvalidConfig.Code || text == nil || !strings.Contains(*text, c.why)) {
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
		if err != nil && strings.Contains(err.Error(), "password") {
			t.Errorf("%s: a secret in %v", name, err)
		}
	}
	if _, err := applyOps(Mirror{Name: "m", Configs: config.Properties{"bootstrap.servers": "a:1"}}, []ConfigOp{to("c:3")}); err != nil {
		t.Errorf("without credentials: %v", err)
	}
}

func TestCredentialsAreNotTried(t *testing.T) {
	r := newRig(t)
	r.put(record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "source", Configs: config.Properties{"bootstrap.servers": "east:9092", "sasl.jaas.config": "secret"}}})
	for _, dry := range []bool{true, false} {
		err := r.AlterConfigs(t.Context(), "test", "m", []ConfigOp{{"bootstrap.servers", opSet, ptr("west:9092")}}, dry)
		if code, _ := protocol.CodeOf(err); code != kerr.InvalidConfig.Code {
			t.Errorf("validateOnly %v: %v", dry, err)
		}
	}
	if m, _ := r.view.Mirror("m"); r.src.opened != 0 || m.Configs["bootstrap.servers"] != "east:9092" {
		t.Errorf("opened %d times, %v", r.src.opened, m.Configs["bootstrap.servers"])
	}
}

func TestDescribeConfigs(t *testing.T) {
	have := config.Properties{
		"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.jaas.config": "hush", "ssl.keystore.key": "hush", "ssl.keystore.certificate.chain": "PEM",
		"ssl.truststore.certificates": "-----BEGIN RSA PRIVATE KEY----- hush",
	}
	all := describeConfigs(have, nil)
	if len(all) != len(config.MirrorKeys()) {
		t.Errorf("%d entries of %d", len(all), len(config.MirrorKeys()))
	}
	by := map[string]ConfigEntry{}
	for _, e := range all {
		by[e.Name] = e
		if e.Doc == "" || e.Value != nil && strings.Contains(*e.Value, "hush") || e.Sensitive && e.Value != nil {
			t.Errorf("%+v", e)
		}
	}
	for name, want := range map[string]struct {
		value       string
		none        bool
		def, secret bool
	}{
		"bootstrap.servers":              {value: "a:1"},
		"security.protocol":              {value: "SASL_SSL"},
		"sasl.mechanism":                 {value: "PLAIN", def: true},
		"sasl.jaas.config":               {none: true, secret: true},
		"ssl.keystore.key":               {none: true, secret: true},
		"ssl.keystore.certificate.chain": {value: "PEM"},
		"ssl.truststore.certificates":    {none: true, secret: true},
		"ssl.truststore.location":        {none: true, def: true},
		"mirror.topics.exclude":          {value: "__.*", def: true},
	} {
		e := by[name]
		if (e.Value == nil) != want.none || e.Value != nil && *e.Value != want.value || e.Default != want.def || e.Sensitive != want.secret {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if some := describeConfigs(have, []string{"sasl.jaas.config", "nonsense"}); len(some) != 1 || some[0].Name != "sasl.jaas.config" {
		t.Errorf("%+v", some)
	}
	if none := describeConfigs(have, []string{}); len(none) != 0 {
		t.Errorf("%+v", none)
	}
}

func TestAlterConfigs(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	get := func() config.Properties { m, _ := r.view.Mirror("m"); return m.Configs }
	before := get()
	code := func(err error) int16 { c, _ := protocol.CodeOf(err); return c }
	if err := r.AlterConfigs(ctx, "test", "m", []ConfigOp{{"request.timeout.ms", opSet, ptr("5000")}}, true); err != nil || !maps.Equal(get(), before) {
		t.Errorf("validateOnly: %v, %v", err, get())
	}
	if err := r.AlterConfigs(ctx, "test", "m", []ConfigOp{{"nonsense", opSet, ptr("5000")}}, false); code(err) != kerr.InvalidConfig.Code || !maps.Equal(get(), before) {
		t.Errorf("nonsense: %v, %v", err, get())
	}
	if err := r.AlterConfigs(ctx, "test", "nobody", nil, false); code(err) != protocol.UnknownClusterMirror {
		t.Errorf("nobody: %v", err)
	}
	if err := r.AlterConfigs(ctx, "test", "m", []ConfigOp{{"request.timeout.ms", opSet, ptr("5000")}}, false); err != nil || get()["request.timeout.ms"] != "5000" {
		t.Errorf("%v, %v", err, get())
	}
	// The cluster stays the same one; if that is not to be found out, the operator is believed.
	move := []ConfigOp{{"bootstrap.servers", opSet, ptr("west:9092")}}
	r.src.set(func(s *fakeSource) { s.id = "another" })
	if err := r.AlterConfigs(ctx, "test", "m", move, false); code(err) != kerr.InvalidRequest.Code || get()["bootstrap.servers"] != "east:9092" {
		t.Errorf("another cluster: %v, %v", err, get())
	}
	r.src.set(func(s *fakeSource) { s.err = kerr.BrokerNotAvailable })
	if err := r.AlterConfigs(ctx, "test", "m", move, false); err != nil || get()["bootstrap.servers"] != "west:9092" {
		t.Errorf("unreachable: %v, %v", err, get())
	}
	entries, err := r.DescribeConfigs(ctx, "m", []string{"bootstrap.servers"})
	if err != nil || len(entries) != 1 || *entries[0].Value != "west:9092" {
		t.Errorf("%v, %+v", err, entries)
	}
	if _, err := r.DescribeConfigs(ctx, "nobody", nil); code(err) != protocol.UnknownClusterMirror {
		t.Error(err)
	}
}

func TestNamesForTheProxy(t *testing.T) {
	r := newRig(t)
	r.mirrorTopic("run", Mirroring, Mirroring)
	r.mirrorTopic("rest", Paused, Paused)
	r.mirrorTopic("was", Stopped, Stopped)
	for topic, want := range map[string]string{"run": "m", "rest": "m.paused", "was": "m.stopped", "none": ""} {
		if got, ok := r.TopicMirrorName(topic); got != want || ok != (want != "") {
			t.Errorf("%s: %q", topic, got)
		}
	}
	if _, ok := r.WantedConfigs("was"); ok {
		t.Error("a stopped topic hides nothing")
	}
	if got, ok := r.WantedConfigs("run"); !ok || len(got) != 1 {
		t.Errorf("%v, %v", got, ok)
	}
	if home, err := r.Coordinator.Coordinator("m"); err != nil || home != 1 {
		t.Errorf("%d, %v", home, err)
	}
}

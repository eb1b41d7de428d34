package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseProperties(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want Properties
	}{
		"separators":                       {"a=1\nb: 2\nc 3\nd\t=\t4\ne", Properties{"a": "1", "b": "2", "c": "3", "d": "4", "e": ""}},
		"comments, blanks":                 {"# x\n! y\n\n  a = 1  \r\nb=2\r", Properties{"a": "1", "b": "2"}},
		"continuation":                     {"a=1,\\\n   2,\\\n   3\nb=x\\\\\nc=3", Properties{"a": "1,2,3", "b": `x\`, "c": "3"}},
		"comment sign in a continued line": {"a=1\\\n#2", Properties{"a": "1#2"}},
		"escapes":                          {`a\=b=c\:d` + "\nk\\u00e9y=\\t\\n|\\ud83d\\ude00", Properties{"a=b": "c:d", "kéy": "\t\n|😀"}},
		"jaas":                             {`sasl.jaas.config=o.P required username="u" password="p=1;";`, Properties{"sasl.jaas.config": `o.P required username="u" password="p=1;";`}},
		"ends in continuation":             {"a=1\\", Properties{"a": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseProperties(strings.NewReader(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(map[string]string(got)) != fmt.Sprint(map[string]string(c.want)) {
				t.Errorf("got %q, want %q", map[string]string(got), map[string]string(c.want))
			}
		})
	}
	for name, in := range map[string]string{"twice": "a=1\na=2", "no key": "=1", "bad escape": `a=\u12`, "not UTF-8": "a=\xff"} {
		if _, err := ParseProperties(strings.NewReader(in)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPropertiesNeverPanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, _ = ParseProperties(strings.NewReader(rapid.String().Draw(t, "text")))
		_, _ = parseJAAS(rapid.StringMatching(`[a-z=;"' {}\\]{0,40}`).Draw(t, "jaas"))
	})
}

func TestRedacted(t *testing.T) {
	p := Properties{"sasl.jaas.config": "s3cret", "ssl.keystore.key": "s3cret", "ssl.keystore.password": "s3cret", "x.token": "s3cret", "bootstrap.servers": "a:1"}
	if s := p.String(); strings.Contains(s, "s3cret") || !strings.Contains(s, "a:1") {
		t.Errorf("got %s", s)
	}
}

func minimal() Properties {
	return Properties{"home.broker.bootstrap": "a:1", "controller.quorum.bootstrap.servers": "c:2", "virtual.listeners": "v:3"}
}

func TestParseSidecar(t *testing.T) {
	p := minimal()
	p["node.host.mapping"] = "1=h1:9092, 2=h2:9092"
	p["listeners"] = "client://0.0.0.0:9092,:9093"
	p["controller.security.protocol"] = "SASL_PLAINTEXT"
	p["controller.sasl.jaas.config"] = `PlainLoginModule required username=u password=p;`
	s, err := ParseSidecar(p)
	if err != nil {
		t.Fatal(err)
	}
	if s.StatePartitions != 50 || s.StateReplicationFactor != 3 || s.RefreshInterval != 30*time.Second || s.VirtualOffset != 10000 ||
		s.VirtualReplicas != 2 || s.BufferMemory != 256<<20 || s.StopReplicaWait != 30*time.Second || s.RetryMaxAttempts != 20 || s.HTTPListen != "127.0.0.1:9644" {
		t.Errorf("defaults: %+v", s)
	}
	if s.NodeHostMapping[2] != "h2:9092" || s.Listeners[0] != (Listener{"CLIENT", "0.0.0.0", 9092}) || s.Listeners[1].Port != 9093 {
		t.Errorf("addresses: %+v", s)
	}
	if len(s.Security) != 0 || s.ControllerSecurity["security.protocol"] != "SASL_PLAINTEXT" {
		t.Errorf("security: %v / %v", s.Security, s.ControllerSecurity)
	}
	for name, c := range map[string]struct{ key, value, want string }{
		"typo":     {"mirror.virtual.replica", "2", `"mirror.virtual.replicas"`},
		"range":    {"mirror.virtual.replicas", "0", "out of range"},
		"number":   {"mirror.buffer.memory.bytes", "many", "whole number"},
		"address":  {"home.broker.bootstrap", "nohost", "host:port"},
		"level":    {"log.level", "loud", "debug"},
		"map":      {"node.host.mapping", "1=h:1,1=h:2", "twice"},
		"security": {"security.protocol", "TLS", "SASL_SSL"},
	} {
		p := minimal()
		p[c.key] = c.value
		if _, err := ParseSidecar(p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseSidecar(Properties{}); err == nil || !strings.Contains(err.Error(), "home.broker.bootstrap is required") {
		t.Errorf("missing: %v", err)
	}
	seen := map[string]bool{}
	for _, k := range SidecarKeys() {
		if seen[k.Flag()] || k.Doc == "" {
			t.Errorf("flag %s: twice or without help", k.Flag())
		}
		seen[k.Flag()] = true
	}
}

func TestParseMirror(t *testing.T) {
	m, err := ParseMirror(Properties{"bootstrap.servers": "s:9092", "mirror.topics.include": "a.*,b", "request.timeout.ms": "5000"})
	if err != nil {
		t.Fatal(err)
	}
	if !m.TopicsInclude.Match("abc") || m.TopicsInclude.Match("xabc") || m.TopicsInclude.Match("bc") || !m.TopicsExclude.Match("__x") || m.RequestTimeout != 5*time.Second {
		t.Errorf("%+v", m)
	}
	for key, tiered := range map[string]bool{"retention.ms": false, "cleanup.policy": false, "remote.storage.enable": true, "local.retention.ms": true} {
		if TieredTopicConfig(key) != tiered {
			t.Errorf("%s: tiered %v", key, !tiered)
		}
	}
	if !slices.Contains(m.PropertiesExclude, "min.insync.replicas") || !m.PropertiesInclude.Match("retention.ms") || !slices.Equal(m.Policies["topics"], []string{"built-in"}) || len(m.Policies["quotas"]) > 0 {
		t.Errorf("%+v", m)
	}
	for name, p := range map[string]Properties{
		"no bootstrap.servers":    {},
		"unknown":                 {"bootstrap.servers": "s:1", "mirror.topic.include": "a"},
		"bad regular expression":  {"bootstrap.servers": "s:1", "mirror.topics.include": "("},
		"no name of a plugin":     {"bootstrap.servers": "s:1", "mirror.policy.topics": "../x"},
		"policy named twice":      {"bootstrap.servers": "s:1", "mirror.policy.acls": "a,a"},
		"response below fetch":    {"bootstrap.servers": "s:1", "mirror.fetch.response.max.bytes": "10"},
		"secret is not repeated ": {"bootstrap.servers": "s:1", "request.timeout.ms": "0"},
	} {
		if _, err := ParseMirror(p); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestParseJAAS(t *testing.T) {
	const class = "org.apache.kafka.common.security.plain.PlainLoginModule"
	for name, in := range map[string]string{
		"as documented":      class + ` required username="al\"ice" password="p;= x";`,
		"single quotes":      class + ` required username='al"ice' password='p;= x';`,
		"no semicolon":       class + " required\n  username=\"al\\\"ice\"\n password = \"p;= x\"",
		"whole file":         "KafkaClient {\n " + class + ` required username="al\"ice" password="p;= x";` + "\n};",
		"upper case control": class + ` REQUIRED username="al\"ice" password="p;= x" ;`,
	} {
		e, err := parseJAAS(in)
		if err != nil || e.module != class || e.options["username"] != `al"ice` || e.options["password"] != "p;= x" {
			t.Errorf("%s: %+v %v", name, e, err)
		}
	}
	if e, err := parseJAAS("P required username=u password=ab+c==;"); err != nil || e.options["password"] != "ab+c==" {
		t.Errorf("unquoted base64: %+v %v", e, err)
	}
	for _, in := range []string{"", "P", `P required username="u`, "P username=u", "P required username u", "A required a=b; B required a=b;"} {
		if _, err := parseJAAS(in); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

func TestClientOptions(t *testing.T) {
	jaas := `ScramLoginModule required username="u" password="hunter2";`
	for name, c := range map[string]struct {
		p    Properties
		want string
	}{
		"plaintext":           {Properties{}, ""},
		"scram":               {Properties{"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}, ""},
		"wrong module":        {Properties{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}, "PlainLoginModule"},
		"jaas without SASL":   {Properties{"sasl.jaas.config": jaas}, "security.protocol"},
		"SASL without jaas":   {Properties{"security.protocol": "SASL_PLAINTEXT"}, "required"},
		"unknown mechanism":   {Properties{"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI", "sasl.jaas.config": jaas}, "GSSAPI"},
		"unknown key store":   {Properties{"security.protocol": "SSL", "ssl.truststore.type": "JCEKS"}, "JKS, PKCS12 and PEM"},
		"chain without a key": {Properties{"security.protocol": "SSL", "ssl.keystore.certificate.chain": testPEM(t, 0)}, "together"},
		"encrypted jaas":      {Properties{"security.protocol": "SASL_SSL", "sasl.jaas.config": jaas + `"`}, "quote"},
	} {
		_, err := ClientOptions(c.p)
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows a secret: %v", name, err)
		}
	}
}

func testPEM(t *testing.T, part int) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	kd, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	if part == 0 {
		return cert
	}
	return cert + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kd}))
}

func TestTLS(t *testing.T) {
	store := testPEM(t, 1)
	file := filepath.Join(t.TempDir(), "store.pem")
	if err := os.WriteFile(file, []byte(store), 0o600); err != nil {
		t.Fatal(err)
	}
	i := strings.Index(store, "-----BEGIN PRIVATE")
	for name, p := range map[string]Properties{
		"by location":  {"ssl.truststore.location": file, "ssl.keystore.location": file, "ssl.endpoint.identification.algorithm": ""},
		"inline":       {"ssl.truststore.certificates": store, "ssl.keystore.certificate.chain": store[:i], "ssl.keystore.key": store[i:]},
		"in one line ": {"ssl.keystore.certificate.chain": strings.ReplaceAll(store[:i], "\n", " "), "ssl.keystore.key": strings.ReplaceAll(store[i:], "\n", " ")},
	} {
		cfg, err := tlsConfig(p)
		if err != nil || len(cfg.Certificates) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := tlsConfig(Properties{"ssl.truststore.certificates": "MIIB…"}); err == nil || !strings.Contains(err.Error(), "PEM") {
		t.Errorf("no PEM: %v", err)
	}
}

func TestProviders(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write := func(d string) string {
		f := filepath.Join(d, "s.properties")
		if err := os.WriteFile(f, []byte("pw=42"), 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	in, out := write(dir), write(outside)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(out, link); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MIRROR_TEST_A", "43")
	t.Setenv("MIRROR_TEST_B", "44")
	v := Providers{AllowedPaths: []string{dir}, AllowedEnv: []string{"MIRROR_TEST_A"}}
	got, err := v.Expand(Properties{"a": "x${file:" + in + ":pw}y", "b": "${env:MIRROR_TEST_A}", "c": "$plain"})
	if err != nil || got["a"] != "x42y" || got["b"] != "43" || got["c"] != "$plain" {
		t.Fatal(got, err)
	}
	for _, ref := range []string{"${file:" + out + ":pw}", "${file:" + link + ":pw}", "${file:" + dir + "/../x:pw}", "${file:s.properties:pw}", "${file:" + in + ":none}", "${env:MIRROR_TEST_B}", "${vault:x}"} {
		if _, err := v.Expand(Properties{"k": ref}); err == nil {
			t.Errorf("%s: no error", ref)
		}
	}
	if _, err := (Providers{}).Expand(Properties{"k": "${file:" + in + ":pw}"}); err == nil {
		t.Error("nothing is allowed by default")
	}
}

func TestConnectionsPerIP(t *testing.T) {
	for v, want := range map[string]map[string]int{
		"":                              {},
		"10.0.0.1:5, [2001:db8::1]:0":   {"10.0.0.1": 5, "2001:db8::1": 0},
		"2001:db8::1:7":                 {"2001:db8::1": 7},
		"::ffff:10.0.0.1:3":             {"10.0.0.1": 3},
		"10.0.0.1":                      nil,
		"some-host:5":                   nil,
		"10.0.0.1:-1":                   nil,
		"10.0.0.1:5,10.0.0.2:very-many": nil,
	} {
		got, err := parsePerIP(v)
		if (err != nil) != (want == nil) {
			t.Errorf("%q: error %v", v, err)
			continue
		}
		if want == nil {
			continue
		}
		if len(got) != len(want) {
			t.Errorf("%q: %v, want %v", v, got, want)
		}
		for ip, n := range want {
			if got[netip.MustParseAddr(ip)] != n {
				t.Errorf("%q: %v, want %v", v, got, want)
			}
		}
	}
}

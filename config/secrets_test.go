package config

import (
	"bytes"
	"encoding/base64"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/sealed"
)

// keyFile writes keys that consist of one byte each.
func keyFile(t *testing.T, path string, bs ...byte) {
	t.Helper()
	var text strings.Builder
	for _, b := range bs {
		text.WriteString(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) + "\n")
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func stateKeys(t *testing.T, path string, bs ...byte) *sealed.Keys {
	t.Helper()
	keyFile(t, path, bs...)
	k, err := sealed.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

const module = "org.apache.kafka.common.security.plain.PlainLoginModule required "

func TestLiteralSecrets(t *testing.T) {
	for value, want := range map[string]bool{
		module + `username="u" password="hush";`:                                           true,
		module + `username="u" password="${file:/s:p}";`:                                   false,
		module + `username=u password=${dir:/s:p};`:                                        false,
		module + `username="${env:U}" password='${env:P}'`:                                 false,
		module + `username="${env:U}" password="hush${env:P}";`:                            true, // a part of it
		module + `username="u" password="${vault:p}";`:                                     true, // no reference
		module + `clientId="c" clientSecret="${env:S}" scope="a b" extension_cluster="x";`: false,
		module + `clientId="c" clientSecret="hush";`:                                       true,
		module + `username="u" password="${env:P}" passphrase="hush";`:                     true, // an option that nobody knows
		module + `username="u" password="${env:P}" tokenauth="true";`:                      false,
		module + `unsecuredLoginStringClaim_sub="alice";`:                                  false,
		"${file:/s.properties:jaas}":                                                       false,
		" ${dir:/s:jaas} ":                                                                 false,
		"KafkaClient { " + module + `username="u" password="hush"; };`:                     true,
		"not " + `to be "understood`:                                                       true,
		"":                                                                                 false,
		"${file:/s.properties:jaas}${file:/s.properties:rest}":                             true, // errs so
	} {
		if got := literalSecret("sasl.jaas.config", value); got != want {
			t.Errorf("%s: %t", value, got)
		}
	}
	for key, want := range map[string]bool{"ssl.keystore.key": true, "ssl.keystore.location": false, "ssl.truststore.certificates": false, "bootstrap.servers": false} {
		if got := literalSecret(key, "hush"); got != want {
			t.Errorf("%s: %t", key, got)
		}
		if literalSecret(key, "${env:X}") {
			t.Errorf("%s: a reference is taken for a secret", key)
		}
		if !literalSecret(key, "-----BEGIN PRIVATE KEY-----") {
			t.Errorf("%s: a private key is no secret", key)
		}
	}
}

func TestSealSecrets(t *testing.T) {
	const jaas, key = "sasl.jaas.config", "ssl.keystore.key"
	path := filepath.Join(t.TempDir(), "keys")
	k := stateKeys(t, path, 1)
	secret := module + `username="u" password="hush";`
	plain := Properties{"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", jaas: secret, key: "${env:KEY}"}
	if _, err := SealSecrets(nil, "m", nil, plain); err == nil || strings.Contains(err.Error(), "hush") ||
		!strings.Contains(err.Error(), "sasl.jaas.config") || !strings.Contains(err.Error(), "${dir:/path:name}") || !strings.Contains(err.Error(), "state.encryption.key.file") {
		t.Errorf("a secret without a key: %v", err)
	}
	referred := Properties{"bootstrap.servers": "a:1", jaas: module + `username="u" password="${env:P}";`}
	if got, err := SealSecrets(nil, "m", nil, referred); err != nil || !maps.Equal(got, referred) {
		t.Errorf("references: %v, %v", got, err)
	}
	stored, err := SealSecrets(k, "m", nil, plain)
	if err != nil || !sealed.Is(stored[jaas]) || stored[key] != "${env:KEY}" || stored["bootstrap.servers"] != "a:1" || plain[jaas] != secret {
		t.Fatalf("%v, %v", map[string]string(stored), err)
	}
	if !Hidden("ssl.truststore.certificates", stored[jaas]) || strings.Contains(stored.String(), sealed.KeyID(stored[jaas])) {
		t.Error("what is encrypted is shown")
	}
	if got := StoredSecrets(stored); !maps.Equal(got, map[string]string{jaas: k.IDs()[0]}) {
		t.Errorf("%v", got)
	}
	if got := StoredSecrets(plain); !maps.Equal(got, map[string]string{jaas: ""}) {
		t.Errorf("%v", got)
	}
	if got, err := OpenSecrets(k, "m", stored); err != nil || !maps.Equal(got, plain) {
		t.Errorf("%v, %v", map[string]string(got), err)
	}
	if _, err := OpenSecrets(k, "another", stored); err == nil || !strings.Contains(err.Error(), jaas) {
		t.Errorf("opened for another mirror: %v", err)
	}
	moved := stored.Clone()
	moved[key] = stored[jaas]
	if _, err := OpenSecrets(k, "m", moved); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("opened for another key: %v", err)
	}
	// What stood there stays, and a secret that is given again is written as it was.
	next := stored.Clone()
	next["request.timeout.ms"] = "5000"
	if got, err := SealSecrets(nil, "m", stored, next); err != nil || !maps.Equal(got, next) {
		t.Errorf("another key was changed: %v, %v", got, err)
	}
	next[jaas] = secret
	if got, err := SealSecrets(k, "m", stored, next); err != nil || got[jaas] != stored[jaas] {
		t.Errorf("the same secret: %v, %v", got, err)
	}
	next[jaas] = module + `username="u" password="hush2";`
	if got, err := SealSecrets(k, "m", stored, next); err != nil || got[jaas] == stored[jaas] || !sealed.Is(got[jaas]) {
		t.Errorf("another secret: %v, %v", got, err)
	}
	// Nobody writes what others have encrypted.
	if _, err := SealSecrets(k, "m", nil, stored); err == nil || !strings.Contains(err.Error(), "give the secret itself") {
		t.Errorf("what is stored was given as a secret: %v", err)
	}
	// Rotation, and what lies there in clear.
	k2 := stateKeys(t, path, 2, 1)
	both := stored.Clone()
	both[key] = "-----BEGIN PRIVATE KEY-----hush"
	again, changed, err := ResealSecrets(k2, "m", both)
	if err != nil || !slices.Equal(changed, []string{jaas, key}) || again["bootstrap.servers"] != "a:1" {
		t.Fatalf("%v, %v", changed, err)
	}
	for name, id := range StoredSecrets(again) {
		if id != k2.IDs()[0] {
			t.Errorf("%s is encrypted with %q", name, id)
		}
	}
	if got, err := OpenSecrets(k2, "m", again); err != nil || got[jaas] != secret || got[key] != both[key] {
		t.Errorf("%v, %v", map[string]string(got), err)
	}
	if _, changed, err := ResealSecrets(k2, "m", again); err != nil || len(changed) != 0 {
		t.Errorf("encrypted again: %v, %v", changed, err)
	}
	keyFile(t, path, 3)
	if got, changed, err := ResealSecrets(k2, "m", again); err == nil || len(changed) != 0 || !maps.Equal(got, again) {
		t.Errorf("with a key that is gone: %v, %v", changed, err)
	}
	if _, changed, err := ResealSecrets(nil, "m", both); err != nil || len(changed) != 0 {
		t.Errorf("without keys: %v, %v", changed, err)
	}
}

// TestMirrorWithSealedSecrets: no connection is made with what could not be decrypted.
func TestMirrorWithSealedSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	k := stateKeys(t, path, 1)
	t.Setenv("MIRROR_TEST_P", "hush")
	stored, err := SealSecrets(k, "m", nil, Properties{
		"bootstrap.servers": "a:1", "security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": module + `username="hush" password="${env:MIRROR_TEST_P}x";`,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		mirror string
		v      Providers
		want   string
	}{
		"well":            {"m", Providers{Keys: k, AllowedEnv: []string{"MIRROR_TEST_P"}}, ""},
		"no key":          {"m", Providers{AllowedEnv: []string{"MIRROR_TEST_P"}}, "state.encryption.key.file is not set here"},
		"another mirror":  {"n", Providers{Keys: k}, "taken from elsewhere"},
		"not allowed env": {"m", Providers{Keys: k}, "config.providers.allowed.env"},
	} {
		m, err := ParseStored(stored)
		if err != nil {
			t.Fatal(err)
		}
		m.Name = c.mirror
		_, err = m.Options(c.v)
		if (err != nil) != (c.want != "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "sasl.jaas.config") || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A sidecar of before knows nothing of it: it must not log in with it.
	if _, err := ClientOptions(stored); err == nil || strings.Contains(err.Error(), "sealed:") {
		t.Errorf("taken as it is: %v", err)
	}
}

// TestCallersReferences: the file of a tool's user is his own, and other keys in it are none of ours.
func TestCallersReferences(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p")
	if err := os.WriteFile(file, []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := Properties{"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": module + `username=u password="${dir:` + filepath.Dir(file) + `:p}";`, "other.key": "${vault:x}"}
	if _, err := ParseClient(p); err != nil {
		t.Error(err)
	}
	p["sasl.jaas.config"] = module + `username=u password="${dir:` + filepath.Dir(file) + `:q}";`
	if _, err := ParseClient(p); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

func TestSidecarsOwnReferences(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("MIRROR_TEST_IP", "10.0.0.7")
	keys := filepath.Join(dir, "keys")
	p := Properties{
		"home.broker.bootstrap": "${env:MIRROR_TEST_IP}:9092", "controller.quorum.bootstrap.servers": "a:1", "virtual.listeners": "a:2",
		"config.providers.allowed.env": "MIRROR_TEST_IP", "state.encryption.key.file": keys,
	}
	if _, err := ParseSidecar(p); err == nil || !strings.Contains(err.Error(), "state.encryption.key.file: read keys:") {
		t.Errorf("without the file: %v", err)
	}
	keyFile(t, keys, 1)
	s, err := ParseSidecar(p)
	if err != nil || !slices.Equal(s.HomeBroker, []string{"10.0.0.7:9092"}) || len(s.Providers.Keys.IDs()) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := ParseEvict(Properties{"controller.quorum.bootstrap.servers": "a:1", "state.encryption.key.file": filepath.Join(dir, "missing")}); err != nil {
		t.Errorf("an eviction needs no key: %v", err)
	}
	delete(p, "config.providers.allowed.env")
	if _, err := ParseSidecar(p); err == nil || !strings.Contains(err.Error(), "home.broker.bootstrap: ${env:MIRROR_TEST_IP}") {
		t.Errorf("not allowed: %v", err)
	}
}

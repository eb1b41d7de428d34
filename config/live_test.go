package config

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/certs"
	"github.com/cluster-mirroring/mirror-sidecar/test/pki"
)

// secretsFile is a properties file that references name, with a clock that tests move.
type secretsFile struct {
	path string
	live *Live
	log  bytes.Buffer
	at   time.Time
}

func (f *secretsFile) write(t *testing.T, text string) {
	t.Helper()
	pki.Write(t, filepath.Dir(f.path), filepath.Base(f.path), text)
	f.at = f.at.Add(lookEvery)
}

// newSecretsFile has keys of which "FILE" stands for the file's path.
func newSecretsFile(t *testing.T, text string, keys Properties) *secretsFile {
	t.Helper()
	dir := t.TempDir()
	f := &secretsFile{path: filepath.Join(dir, "secrets.properties"), at: time.Now()}
	f.write(t, text)
	p := Properties{}
	for k, v := range keys {
		p[k] = strings.ReplaceAll(v, "FILE", f.path)
	}
	f.live = Providers{AllowedPaths: []string{dir}, Log: slog.New(slog.NewTextHandler(&f.log, nil))}.Live(p)
	f.live.now = func() time.Time { return f.at }
	return f
}

// response is what a mechanism sends first: PLAIN has the password in it.
func response(t *testing.T, m *liveMechanism) string {
	t.Helper()
	_, first, err := m.Authenticate(t.Context(), "h:1")
	if err != nil {
		t.Fatal(err)
	}
	return string(first)
}

func TestLoginFollowsItsFile(t *testing.T) {
	f := newSecretsFile(t, "password=first", Properties{
		"security.protocol": "SASL_PLAINTEXT",
		"sasl.jaas.config":  `PlainLoginModule required username="u" password="${file:FILE:password}";`,
	})
	p, version, err := f.live.Now()
	if err != nil {
		t.Fatal(err)
	}
	made, err := saslMechanism(p, Providers{})
	if err != nil {
		t.Fatal(err)
	}
	m := newLiveMechanism(f.live, made, version)
	for _, step := range []struct {
		text, want, log string
	}{
		{"password=first", "first", ""},
		{"password=second", "second", "secrets have changed"},
		{"half=written", "second", "cannot be read again"},
		{"half=written", "second", ""}, // told once
		{`password=fifth\u0022`, "second", "changed login cannot be used"},
		{"password=third", "third", "secrets have changed"},
	} {
		f.log.Reset()
		f.write(t, step.text)
		if got := response(t, m); !strings.HasSuffix(got, "\x00"+step.want) {
			t.Errorf("%s: logs in with %q", step.text, got)
		}
		if got := f.log.String(); step.log == "" && got != "" || !strings.Contains(got, step.log) || strings.Contains(got, "fifth") {
			t.Errorf("%s: log %q, want %q", step.text, got, step.log)
		}
	}
	// Between two looks nothing is read.
	pki.Write(t, filepath.Dir(f.path), filepath.Base(f.path), "password=fourth")
	if got := response(t, m); !strings.HasSuffix(got, "third") {
		t.Errorf("looked at again at once: %q", got)
	}
}

func TestWhatWasNeverThere(t *testing.T) {
	f := newSecretsFile(t, "a=b", Properties{"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": "${file:FILE:jaas}"})
	if _, err := ClientOptionsVia(f.live, nil); err == nil || !strings.Contains(err.Error(), "jaas") {
		t.Errorf("%v", err)
	}
	f.write(t, `jaas=PlainLoginModule required username="u" password="p";`)
	if _, err := ClientOptionsVia(f.live, nil); err != nil {
		t.Errorf("once it is there: %v", err)
	}
}

// TestStoreAndItsPasswordComeApart: a store that is replaced before its password can be used once the password
// is there, although the store does not change again.
func TestStoreAndItsPasswordComeApart(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) string {
		return pki.Write(t, dir, "store.jks", string(keystoreFile(t, name)))
	}
	f := newSecretsFile(t, "store=store-pass\nkey=store-pass", Properties{
		"ssl.keystore.location": write("jdk17.jks"), "ssl.keystore.password": "${file:FILE:store}", "ssl.key.password": "${file:FILE:key}",
	})
	src := clientSource("test", f.live)
	if _, err := src.Load(); err != nil {
		t.Fatal(err)
	}
	before := src.Stamp()
	write("jdk17-keypass.jks")
	f.at = f.at.Add(lookEvery)
	if _, err := src.Load(); err == nil || !strings.Contains(err.Error(), "ssl.key.password") {
		t.Fatalf("with the former password: %v", err)
	}
	if src.Stamp() != before {
		t.Error("the stamp has changed with the store, which the files' own stamp tells")
	}
	f.write(t, "store=store-pass\nkey=key-pass")
	if src.Stamp() == before {
		t.Error("the stamp has not changed with the password")
	}
	if _, err := src.Load(); err != nil {
		t.Error(err)
	}
}

// TestMirrorsReadTheirFilesAnew: what a mirror's connections are made with is not what its client was made with.
func TestMirrorsReadTheirFilesAnew(t *testing.T) {
	ca := pki.NewCA(t, "ca")
	dir := t.TempDir()
	trust := pki.Write(t, dir, "trust.pem", ca.PEM())
	l := Providers{AllowedPaths: []string{dir}}.Live(Properties{"security.protocol": "SSL", "ssl.truststore.location": trust})
	at := time.Now()
	l.now = func() time.Time { return at }
	w, err := certs.New(clientSource("test", l), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !w.Config().RootCAs.Equal(ca.Pool()) {
		t.Error("not the authority of the file")
	}
	m := &Mirror{Bootstrap: []string{"h:1"}, RequestTimeout: time.Second, Security: Properties{"security.protocol": "SSL", "ssl.truststore.location": trust}}
	if _, err := m.Options(Providers{AllowedPaths: []string{dir}}); err != nil {
		t.Error(err)
	}
	if err := os.Remove(trust); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Options(Providers{AllowedPaths: []string{dir}}); err == nil {
		t.Error("no error without the file")
	}
}

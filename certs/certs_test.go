package certs

import (
	"bytes"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-mirroring/mirror-sidecar/test/pki"
)

// watchedFile is a store in a file, with a clock that tests move.
type watchedFile struct {
	w    *Watched
	log  bytes.Buffer
	now  time.Time
	file string
}

func watch(t *testing.T, store string, now time.Time) *watchedFile {
	t.Helper()
	f := &watchedFile{now: now, file: pki.Write(t, t.TempDir(), "store.pem", store)}
	var err error
	f.w, err = newWatched(Source{Name: "TEST", Files: func() []string { return []string{f.file} }, Load: func() (*tls.Config, error) {
		b, err := os.ReadFile(f.file)
		if err != nil {
			return nil, err
		}
		cert, err := tls.X509KeyPair(b, b)
		if err != nil {
			return nil, errors.New("no pair")
		}
		return &tls.Config{Certificates: []tls.Certificate{cert}}, nil
	}}, slog.New(slog.NewTextHandler(&f.log, nil)), func() time.Time { return f.now })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *watchedFile) shown(t *testing.T) string {
	t.Helper()
	leaf, err := leafOf(&f.w.Config().Certificates[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf.Subject.CommonName
}

func TestChangedFilesAreRead(t *testing.T) {
	ca := pki.NewCA(t, "ca")
	first, second := ca.Issue(t, pki.Subject{Name: "first"}), ca.Issue(t, pki.Subject{Name: "second"})
	f := watch(t, first.Store, time.Now())
	if f.shown(t) != "first" {
		t.Fatal(f.shown(t))
	}
	same := f.w.Config()
	dir := filepath.Dir(f.file)
	for _, step := range []struct{ text, want, log string }{
		{first.Key + second.Chain, "first", "cannot be used"}, // half of it
		{"", "first", "cannot be used"},
		{second.Store, "second", "certificate read"},
	} {
		f.log.Reset()
		pki.Write(t, dir, "store.pem", step.text)
		if f.w.Config() != same {
			t.Error("looked at again at once")
		}
		f.now = f.now.Add(checkEvery)
		for range 3 {
			if got := f.shown(t); got != step.want {
				t.Errorf("shows %s, want %s", got, step.want)
			}
			f.now = f.now.Add(checkEvery)
		}
		if n := strings.Count(f.log.String(), step.log); n != 1 {
			t.Errorf("%d lines with %q:\n%s", n, step.log, f.log.String())
		}
		same = f.w.Config()
	}
	if err := os.Remove(f.file); err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(checkEvery)
	if f.shown(t) != "second" {
		t.Error("a file that is gone took the certificate with it")
	}
}

func TestEndOfCertificatesIsTold(t *testing.T) {
	ca := pki.NewCA(t, "ca")
	now := time.Now()
	cert := ca.Issue(t, pki.Subject{Name: "short", NotBefore: now, NotAfter: now.Add(60 * 24 * time.Hour)})
	f := watch(t, cert.Store, now)
	for _, step := range []struct {
		after time.Duration
		want  string // the level's and the message's beginning
	}{
		{time.Hour, ""},
		{47 * 24 * time.Hour, "level=WARN msg=\"the certificate expires soon"},
		{time.Hour, ""}, // once a day
		{24 * time.Hour, "level=WARN msg=\"the certificate expires soon"},
		{14 * 24 * time.Hour, "level=ERROR msg=\"the certificate has expired"},
		{-90 * 24 * time.Hour, ""},
	} {
		f.log.Reset()
		f.now = f.now.Add(step.after)
		f.w.Config()
		if got := f.log.String(); (step.want == "") != (got == "") || !strings.Contains(got, step.want) {
			t.Errorf("after %v: %s, want %s", step.after, got, step.want)
		}
		if step.want != "" && !strings.Contains(f.log.String(), "expires="+cert.Leaf.NotAfter.UTC().Format("2006-01-02")) {
			t.Errorf("no time: %s", f.log.String())
		}
	}
	f.w.warned = time.Time{}
	f.w.Config()
	if !strings.Contains(f.log.String(), "not valid yet") {
		t.Error(f.log.String())
	}
}

func TestExpiryIsAMetric(t *testing.T) {
	ca := pki.NewCA(t, "ca")
	cert := ca.Issue(t, pki.Subject{Name: "shown"})
	f := watch(t, cert.Store, time.Now())
	e := NewExpiry()
	e.Add(f.w)
	e.Add(f.w)
	reg := prometheus.NewRegistry()
	if err := reg.Register(e); err != nil {
		t.Fatal(err)
	}
	all, err := reg.Gather()
	if err != nil || len(all) != 1 || len(all[0].GetMetric()) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	if m := all[0].GetMetric()[0]; int64(m.GetGauge().GetValue()) != cert.Leaf.NotAfter.Unix() || m.GetLabel()[0].GetValue() != "TEST" {
		t.Error(m)
	}
}

func TestPrincipals(t *testing.T) {
	ca := pki.NewCA(t, "ca")
	leaf := ca.Issue(t, pki.Subject{Name: "broker, 1", Units: []string{"kafka"}}).Leaf
	if got := Principal(leaf); got != `CN=broker\, 1,OU=kafka` {
		t.Errorf("principal %s", got)
	}
	for list, want := range map[string]bool{
		"":                                    false,
		"User:CN=other":                       false,
		`CN=broker\, 1`:                       false,
		`CN=x;User:CN=broker\, 1,OU=kafka`:    true,
		` cn=broker\, 1 , ou = kafka ;`:       true,
		`CN=broker, 1,OU=kafka`:               false,
		`User:OU=kafka,CN=broker\, 1;CN=last`: false,
	} {
		if got := ParsePrincipals(list).Has(leaf); got != want {
			t.Errorf("%q: %v", list, got)
		}
	}
}

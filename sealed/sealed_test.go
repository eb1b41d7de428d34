package sealed

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func text(b byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, keyBytes)) }

func write(t *testing.T, path string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, lines ...string) *Keys {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	write(t, path, lines...)
	k, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSealedTexts(t *testing.T) {
	k := open(t, text(1))
	a, err := k.Seal("hush", "east", "sasl.jaas.config")
	if err != nil {
		t.Fatal(err)
	}
	b, err := k.Seal("hush", "east", "sasl.jaas.config")
	if err != nil {
		t.Fatal(err)
	}
	if a == b {
		t.Error("the same text is encrypted to the same")
	}
	if !Is(a) || Is("hush") || KeyID(a) != k.IDs()[0] || KeyID("hush") != "" || strings.Contains(a, "hush") {
		t.Errorf("%q", a)
	}
	if got, err := k.Open(a, "east", "sasl.jaas.config"); err != nil || got != "hush" {
		t.Errorf("%q, %v", got, err)
	}
	last := len(a) - 3
	for name, c := range map[string]struct {
		text string
		of   []string
		want string
	}{
		"another mirror's": {a, []string{"west", "sasl.jaas.config"}, "taken from elsewhere"},
		"another key's":    {a, []string{"east", "ssl.keystore.key"}, "taken from elsewhere"},
		"shifted names":    {a, []string{"eas", "tsasl.jaas.config"}, "taken from elsewhere"},
		"a bit flipped":    {a[:last] + string(a[last]^1) + a[last+1:], []string{"east", "sasl.jaas.config"}, "damaged"},
		"cut off":          {a[:len(prefix)+20], []string{"east", "sasl.jaas.config"}, "damaged"},
		"not base64":       {prefix + KeyID(a) + ":%%", []string{"east", "sasl.jaas.config"}, "damaged"},
		"unknown key":      {prefix + "0123456789abcdef:AAAA", []string{"east", "sasl.jaas.config"}, `key "0123456789abcdef"`},
		"no key id":        {prefix + "AAAA", nil, "does not know"},
		"another version":  {"sealed:v2:1:AAAA", nil, "does not know"},
	} {
		if got, err := k.Open(c.text, c.of...); err == nil || got != "" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestWithoutKeys(t *testing.T) {
	var none *Keys
	if _, err := none.Seal("x"); err == nil || !strings.Contains(err.Error(), "state.encryption.key.file") {
		t.Error(err)
	}
	if _, err := none.Open(prefix + "0123456789abcdef:AAAA"); err == nil || !strings.Contains(err.Error(), "state.encryption.key.file is not set here") {
		t.Error(err)
	}
	if none.Err() != nil || none.Exposed() != nil || len(none.IDs()) != 0 {
		t.Error("no file is an error")
	}
}

func TestRotation(t *testing.T) {
	k := open(t, text(1))
	one := k.IDs()[0]
	old, err := k.Seal("hush", "m")
	if err != nil {
		t.Fatal(err)
	}
	write(t, k.path, "# new", text(2), "", text(1))
	again, err := k.Seal("hush", "m")
	if err != nil {
		t.Fatal(err)
	}
	if ids := k.IDs(); len(ids) != 2 || ids[1] != one || KeyID(again) != ids[0] || ids[0] == one {
		t.Errorf("%v, %s", ids, again)
	}
	for _, s := range []string{old, again} {
		if got, err := k.Open(s, "m"); err != nil || got != "hush" {
			t.Errorf("%q, %v", got, err)
		}
	}
	// A file that is gone, or half written, takes no key away, and is told.
	for name, spoil := range map[string]func() error{
		"gone":         func() error { return os.Remove(k.path) },
		"half written": func() error { return os.WriteFile(k.path, []byte(text(2)[:20]), 0o600) },
		"empty":        func() error { return os.WriteFile(k.path, nil, 0o600) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if got, err := k.Open(old, "m"); err != nil || got != "hush" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if k.Err() == nil {
			t.Errorf("%s: not told", name)
		}
	}
	write(t, k.path, text(2))
	if _, err := k.Open(old, "m"); err == nil || !strings.Contains(err.Error(), one) || k.Err() != nil {
		t.Errorf("opened with a key that is gone: %v, %v", err, k.Err())
	}
}

func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	secret := "c2VjcmV0" // no key, and nothing to show
	for name, c := range map[string]struct{ content, want string }{
		"empty":      {"", "no key"},
		"comments":   {"# a\n\n", "no key"},
		"short":      {text(1) + "\n" + secret, "line 2 is not 32 bytes"},
		"not base64": {"!" + secret, "line 1"},
		"twice":      {text(1) + "\n" + text(1), "line 2 has the key of a line before"},
		"too large":  {strings.Repeat("#\n", maxFile), "larger"},
	} {
		path := filepath.Join(dir, name)
		write(t, path, c.content)
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "missing")); err == nil {
		t.Error("a file that is missing is taken")
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "not a file") {
		t.Error(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(pipe); err == nil || !strings.Contains(err.Error(), "not a file") {
		t.Error(err)
	}
}

func TestExposedFiles(t *testing.T) {
	k := open(t, text(1))
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: false, 0o440: false, 0o644: true, 0o660: true, 0o604: true} {
		if err := os.Chmod(k.path, mode); err != nil {
			t.Fatal(err)
		}
		if err := k.Exposed(); (err != nil) != want {
			t.Errorf("%04o: %v", mode, err)
		}
	}
}

// FuzzOpen: nothing that lies in the state topic may end the process, or pass for what was encrypted.
func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(text(1)), 0o600); err != nil {
		f.Fatal(err)
	}
	k, err := Open(path)
	if err != nil {
		f.Fatal(err)
	}
	good, err := k.Seal("hush", "m", "k")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(prefix + k.IDs()[0] + ":")
	f.Add("sealed:v9:")
	f.Fuzz(func(t *testing.T, s string) {
		if plain, err := k.Open(s, "m", "k"); err == nil && (plain != "hush" || KeyID(s) != k.IDs()[0]) {
			t.Errorf("%q opens as %q", s, plain)
		}
		if _, err := k.Open(s, "m", "another"); err == nil {
			t.Errorf("%q opens for another key", s)
		}
	})
}

// FuzzKeys: the file may be anything.
func FuzzKeys(f *testing.F) {
	f.Add([]byte(text(1) + "\n# x\n" + text(2)))
	f.Add([]byte("===="))
	f.Fuzz(func(t *testing.T, b []byte) {
		if keys, err := parseKeys(b); err == nil && len(keys) == 0 {
			t.Error("no keys, and no error")
		}
	})
}

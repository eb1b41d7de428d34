package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// mounted lays a directory out as Kubernetes mounts a secret.
func mounted(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	version := filepath.Join(dir, "..2026_12_01")
	if err := os.Mkdir(version, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..2026_12_01", filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(version, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReferences(t *testing.T) {
	t.Setenv("MIRROR_TEST_A", "of the environment")
	t.Setenv("MIRROR_TEST_HOME", "not allowed")
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "password"), []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := mounted(t, map[string]string{
		"password": "hush\n", "windows": "hush\r\n", "blank": " hush \n\n", "empty": "", "p.properties": "a=1\nnested=${env:MIRROR_TEST_HOME}\n",
		"binary": "\xff\xfe", "twice": "hush=1\nhush=2\n", "large": strings.Repeat("x", maxSecretBytes+1), "not allowed": "x",
	})
	for name, to := range map[string]string{
		"out":     filepath.Join(outside, "password"),
		"up":      filepath.Join("..", filepath.Base(outside), "password"),
		"in":      filepath.Join(dir, "password"),
		"dangles": filepath.Join(outside, "nothing"),
		"outdir":  outside,
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	const refused = "not inside config.providers.allowed.paths"
	for value, want := range map[string]struct{ value, err string }{
		"${env:MIRROR_TEST_A}":                                          {value: "of the environment"},
		"${env:MIRROR_TEST_HOME}":                                       {err: "config.providers.allowed.env"},
		"${env:MIRROR_TEST_B}":                                          {err: "variable is not set"},
		"${dir:" + dir + ":password}":                                   {value: "hush"},
		"${directory:" + dir + ":password}":                             {value: "hush"},
		"${dir:" + link + ":password}":                                  {value: "hush"}, // the allowed path is named by a link
		"${dir:" + dir + "/:windows}":                                   {value: "hush"},
		"${dir:" + dir + ":blank}":                                      {value: " hush \n"},
		"${dir:" + dir + ":empty}":                                      {value: ""},
		"${dir:" + dir + ":in}":                                         {value: "hush"},
		"a ${dir:" + dir + ":password} ${env:MIRROR_TEST_A}":            {value: "a hush of the environment"},
		"${file:" + dir + "/p.properties:a}":                            {value: "1"},
		"${file:" + dir + "/p.properties:nested}":                       {value: "${env:MIRROR_TEST_HOME}"}, // not expanded again
		"${file:" + dir + "/..data/p.properties:a}":                     {value: "1"},
		"$plain $ {x} ${x} ${} ${:} ${1:x}":                             {value: "$plain $ {x} ${x} ${} ${:} ${1:x}"},
		"${dir:" + dir + ":out}":                                        {err: refused},
		"${dir:" + dir + ":up}":                                         {err: refused},
		"${dir:" + dir + "/outdir:password}":                            {err: refused},
		"${dir:" + outside + ":password}":                               {err: refused},
		"${dir:" + outside + ":nothing}":                                {err: refused}, // whether it is there is not told
		"${dir:" + dir + "/../" + filepath.Base(outside) + ":password}": {err: refused},
		"${dir:relative:password}":                                      {err: refused},
		"${file:/proc/self/environ:PATH}":                               {err: refused},
		"${dir:" + dir + ":missing}":                                    {err: "no such file"},
		"${dir:" + dir + ":../password}":                                {err: "plain name"},
		"${dir:" + dir + ":..}":                                         {err: "plain name"},
		"${dir:" + dir + ":}":                                           {err: "plain name"},
		"${dir:password}":                                               {err: "write ${dir:path:name}"},
		"${file:password}":                                              {err: "write ${file:path:key}"},
		"${dir:" + dir + ":..data}":                                     {err: "not a file"},
		"${dir:" + dir + ":pipe}":                                       {err: "not a file"},
		"${dir:" + dir + ":binary}":                                     {err: "not UTF-8"},
		"${dir:" + dir + ":large}":                                      {err: "larger than"},
		"${file:" + dir + "/twice:hush}":                                {err: "not a properties file"},
		"${file:" + dir + "/p.properties:b}":                            {err: `no key "b"`},
		"${vault:hush}":                                                 {err: "none of the providers file, env, dir, directory"},
	} {
		v := Providers{AllowedPaths: []string{filepath.Join(t.TempDir(), "missing"), link}, AllowedEnv: []string{"MIRROR_TEST_A", "MIRROR_TEST_B"}}
		got, err := v.Expand(Properties{"k": value})
		switch {
		case want.err == "" && (err != nil || got["k"] != want.value):
			t.Errorf("%s: %q, %v", value, got["k"], err)
		case want.err != "" && (err == nil || !strings.Contains(err.Error(), want.err) || !strings.HasPrefix(err.Error(), "k: ")):
			t.Errorf("%s: %v, want %q", value, err, want.err)
		case err != nil && strings.Contains(strings.ReplaceAll(err.Error(), value, ""), "hush"):
			t.Errorf("%s: the error tells what is hidden: %v", value, err)
		}
	}
	// A file may be allowed by itself.
	v := Providers{AllowedPaths: []string{filepath.Join(dir, "password")}}
	if got, err := v.Expand(Properties{"k": "${dir:" + dir + ":password}"}); err != nil || got["k"] != "hush" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := v.Expand(Properties{"k": "${dir:" + dir + ":windows}"}); err == nil || !strings.Contains(err.Error(), refused) {
		t.Error(err)
	}
	// What is the caller's own is bounded by his rights alone.
	own := CallersProviders()
	t.Chdir(outside)
	if got, err := own.Expand(Properties{"k": "${dir:.:password}${env:MIRROR_TEST_HOME}"}); err != nil || got["k"] != "hushnot allowed" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := own.Expand(Properties{"k": "${dir:.:nothing}"}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

// FuzzReferences: what a mirror's configuration holds must not read a file that is not allowed.
func FuzzReferences(f *testing.F) {
	dir := f.TempDir()
	allowed := filepath.Join(dir, "allowed")
	if err := os.Mkdir(allowed, 0o700); err != nil {
		f.Fatal(err)
	}
	for _, p := range []string{filepath.Join(dir, "password"), filepath.Join(dir, "p.properties")} {
		if err := os.WriteFile(p, []byte("a=unmistakable"), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	for _, s := range []string{"${dir:ALLOWED:x}", "${dir:ALLOWED/..:password}", "${file:ALLOWED/../p.properties:a}", "${env:PATH}", "${dir:ALLOWED:../password}", "${${env:A}:x}"} {
		f.Add(s)
	}
	v := Providers{AllowedPaths: []string{allowed}}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := v.Expand(Properties{"k": strings.ReplaceAll(s, "ALLOWED", allowed)})
		if err == nil && strings.Contains(got["k"], "unmistakable") && !strings.Contains(s, "unmistakable") {
			t.Errorf("%q reads what is not allowed", s)
		}
	})
}

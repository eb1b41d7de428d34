package scaffold

import (
	"bytes"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	want := map[string][]string{
		"go":     {".gitignore", "Makefile", "README.md", "go.mod", "policy.go", "policy_test.go"},
		"python": {".gitignore", "Makefile", "README.md", "mirror_policy.py", "policy.proto", "policy.py", "requirements.txt", "test_policy.py"},
	}
	for _, lang := range Langs {
		for _, kind := range KindNames() {
			t.Run(lang+" "+kind, func(t *testing.T) {
				at := filepath.Join(t.TempDir(), "deep", "er")
				dir, files, err := Write(Options{Name: "my-policy", Lang: lang, Kind: kind, Dir: at, Version: "v1.2.3"})
				if err != nil || dir != at {
					t.Fatal(dir, err)
				}
				if !slices.Equal(files, want[lang]) {
					t.Errorf("files: %v", files)
				}
				for _, name := range files {
					text, err := os.ReadFile(filepath.Join(dir, name))
					if err != nil {
						t.Fatal(err)
					}
					if len(text) == 0 || bytes.Contains(text, []byte("{{")) || bytes.Contains(text, []byte("<no value>")) {
						t.Errorf("%s:\n%s", name, text)
					}
					if filepath.Ext(name) == ".go" {
						if formatted, err := format.Source(text); err != nil || !bytes.Equal(formatted, text) {
							t.Errorf("%s is not formatted (%v):\n%s", name, err, text)
						}
					}
					if name == "go.mod" && !strings.Contains(string(text), "require "+Module+" v1.2.3\n") {
						t.Errorf("go.mod:\n%s", text)
					}
				}
			})
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	good := Options{Name: "p", Lang: "go", Kind: "topics"}
	for says, edit := range map[string]func(o *Options){
		`"" can be no`:          func(o *Options) { o.Name = "" },
		`"a/b" can be no`:       func(o *Options) { o.Name = "a/b" },
		`"built-in" can be no`:  func(o *Options) { o.Name = "built-in" },
		`no scaffold in "rust"`: func(o *Options) { o.Lang = "rust" },
		`no kind "acl"`:         func(o *Options) { o.Kind = "acl" },
		"no Go module":          func(o *Options) { o.SDK = t.TempDir() },
	} {
		o := good
		edit(&o)
		if _, _, err := Write(o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, _, err := Write(good); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Write(good); err == nil || !strings.Contains(err.Error(), "there already") {
		t.Errorf("a second time: %v", err)
	}
}

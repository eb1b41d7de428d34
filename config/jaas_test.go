package config

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestJAASAsPeoplePasteIt(t *testing.T) {
	const module = "org.apache.kafka.common.security.scram.ScramLoginModule"
	for name, text := range map[string]string{
		"one line":           module + ` required username="u" password="p=;w";`,
		"no semicolon":       module + ` required username="u" password="p=;w"`,
		"a file's entry":     "KafkaClient {\n  " + module + " required\n  username=\"u\"\n  password=\"p=;w\";\n};\n",
		"comments":           "// from the wiki\nKafkaClient { /* ours */ " + module + " required // user\n username=\"u\" password=\"p=;w\"; };",
		"single quotes":      module + ` REQUIRED username='u' password='p=;w';`,
		"blanks around":      module + ` required username = "u"  password = "p=;w" ;`,
		"escaped characters": module + ` required username="\u" password="p\=\;w";`,
	} {
		t.Run(name, func(t *testing.T) {
			e, err := parseJAAS(text)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[string]string{"username": "u", "password": "p=;w"}; e.module != module || !maps.Equal(e.options, want) {
				t.Errorf("%+v", e)
			}
		})
	}
	if e, err := parseJAAS(`PlainLoginModule required username=u password=//x==;`); err != nil || e.options["password"] != "//x==" {
		t.Errorf("a password without quotes: %+v, %v", e, err)
	}
}

// FuzzJAAS: whatever is pasted is understood or refused, and an error repeats nothing of it. What is
// understood is understood the same once it is written down again.
func FuzzJAAS(f *testing.F) {
	for _, s := range []string{
		`PlainLoginModule required username="u" password="p";`, "KafkaClient { X required a=b; };", `X required a="\"" b='\'' ;`,
		"/* x */ X required // y\n a=//b;", `X required a=b=c;`, `X required a="b`, "{", "=", "X optional ;", "/*", "//",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := parseJAAS(s)
		if err != nil {
			if len(s) > 24 && strings.Contains(err.Error(), s) {
				t.Errorf("the error repeats what was pasted: %v", err)
			}
			return
		}
		var b strings.Builder
		quote := func(v string) { b.WriteString(`"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`) }
		quote(e.module)
		b.WriteString(" required")
		for _, k := range slices.Sorted(maps.Keys(e.options)) {
			if strings.ContainsAny(k, "\"' \t\r\n=;{}/") {
				return // names are written without quotes
			}
			b.WriteString(" " + k + "=")
			quote(e.options[k])
		}
		again, err := parseJAAS(b.String() + ";")
		if err != nil || again.module != e.module || !maps.Equal(again.options, e.options) {
			t.Errorf("%q is %+v, written again %+v, %v", s, e, again, err)
		}
	})
}

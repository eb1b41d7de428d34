package main

import (
	"bufio"
	"fmt"
	"strings"
)

// observation is what a client saw at one step.
type observation struct {
	Step, Value string
}

// part is a column of the matrix as one client saw it.
type part struct {
	Name string
	Seen []observation
	// Broken is why the script could not go on, "" if it came to the part's end.
	Broken string
}

// transcript is all that a script saw.
type transcript struct {
	Parts []*part
	// Broken is why the whole did not come to its end.
	Broken string
}

func (t *transcript) part(name string) *part {
	for _, p := range t.Parts {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// recorder makes a transcript of a script in this process.
type recorder struct {
	transcript
	now *part
}

// do runs a part; its error is that it could not go on.
func (r *recorder) do(name string, script func() error) {
	r.now = &part{Name: name}
	r.Parts = append(r.Parts, r.now)
	if err := script(); err != nil {
		r.now.Broken = err.Error()
	}
}

func (r *recorder) see(step string, value any) {
	r.now.Seen = append(r.now.Seen, observation{step, fmt.Sprint(value)})
}

// outcome is see for what may have failed: the error is what was seen.
func (r *recorder) outcome(step string, value any, err error) {
	if err != nil {
		value = "error: " + err.Error()
	}
	r.see(step, value)
}

// Scripts in other languages print lines of fields between tabs, in which tab, line feed and backslash are escaped:
//
//	P part             a part begins
//	O step value       an observation
//	F reason           the part could not go on
//	D                  the script has come to its end
//
// What begins with anything else is not for us.
func parseTranscript(output string) *transcript {
	t := &transcript{Broken: "the script did not come to its end"}
	lines := bufio.NewScanner(strings.NewReader(output))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		f := strings.Split(lines.Text(), "\t")
		for i := range f {
			f[i] = unescape(f[i])
		}
		var now *part
		if n := len(t.Parts); n > 0 {
			now = t.Parts[n-1]
		}
		switch {
		case f[0] == "P" && len(f) == 2:
			t.Parts = append(t.Parts, &part{Name: f[1]})
		case f[0] == "O" && len(f) == 3 && now != nil:
			now.Seen = append(now.Seen, observation{f[1], f[2]})
		case f[0] == "F" && len(f) == 2 && now != nil:
			now.Broken = f[1]
		case f[0] == "D" && len(f) == 1:
			t.Broken = ""
		}
	}
	if err := lines.Err(); err != nil {
		t.Broken = err.Error()
	}
	return t
}

func unescape(s string) string {
	return strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n", `\r`, "\r").Replace(s)
}

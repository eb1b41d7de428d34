package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// helpWidth is where help wraps.
const helpWidth = 100

// writeHelp explains one action, or all in short.
func writeHelp(out io.Writer, name string) error {
	var b strings.Builder
	if a := findAction(name); a != nil {
		a.help(&b)
	} else {
		overview(&b)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func overview(b *strings.Builder) {
	fmt.Fprintf(b, "Manage cluster mirrors: exact, live copies of topics from another Kafka cluster.\n\n")
	fmt.Fprintf(b, "Usage:\n  %s --bootstrap-server HOST:PORT [--command-config FILE] ACTION [FLAGS]\n", program)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, g := range actionGroups() {
		fmt.Fprintf(w, "\n%s:\n", g)
		for _, a := range actions() {
			if a.group == g {
				fmt.Fprintf(w, "  %s\t%s\n", a.flag(), a.short)
			}
		}
		w.Flush()
	}
	fmt.Fprintf(b, "\nFlags of most actions:\n")
	for _, d := range optionTable() {
		if slices.Contains(append(always(), "mirror", "topics", "dry-run", "wait", "timeout", "json"), d.name) {
			fmt.Fprintf(w, "  %s\t%s\n", d.flag(), d.doc)
		}
	}
	w.Flush()
	fmt.Fprintf(b, "\nExamples:\n")
	for _, name := range []string{"create", "start", "describe", "stop"} {
		fmt.Fprintf(b, "  %s\n", findAction(name).example(0))
	}
	fmt.Fprintf(b, "\nExit status:\n")
	for _, e := range []struct {
		code int
		text string
	}{
		{0, "everything that was asked for happened"},
		{exitFailed, "something was refused, failed, or is not equal"},
		{exitUsage, "the command line was not understood; nothing was asked"},
		{exitTimeout, "asked for, but not done within --timeout; it goes on by itself"},
		{exitUnreachable, "no sidecar answers"},
		{exitInterrupted, "interrupted"},
	} {
		fmt.Fprintf(w, "  %d\t%s\n", e.code, e.text)
	}
	w.Flush()
	fmt.Fprintf(b, "\n'%s --help ACTION' explains an action and all its flags.\n", program)
}

// flag is how an action is written.
func (a *action) flag() string {
	if a.value != "" {
		return "--" + a.name + " " + a.value
	}
	return "--" + a.name
}

func (d *option) flag() string {
	if d.arg != "" {
		return "--" + d.name + " " + d.arg
	}
	return "--" + d.name
}

// example is a whole command.
func (a *action) example(i int) string {
	e := a.examples[i]
	switch {
	case !strings.HasPrefix(e, "--"):
		return e
	case a.local:
		return program + " " + e
	}
	return program + " --bootstrap-server localhost:9092 " + e
}

func (a *action) help(b *strings.Builder) {
	flags := map[string]*option{}
	for _, d := range optionTable() {
		flags[d.name] = &d
	}
	usage := program
	if !a.local {
		usage += " --bootstrap-server HOST:PORT"
	}
	usage += " " + a.flag()
	for _, n := range a.needs {
		usage += " " + flags[n].flag()
	}
	if a.files {
		usage += " FILE…"
	}
	optional := slices.Clone(a.takes)
	if !a.local {
		optional = append(optional, "command-config", "quiet")
	}
	if len(optional) > 0 {
		usage += " [FLAGS]"
	}
	fmt.Fprintf(b, "Usage:\n  %s\n\n", usage)
	wrap(b, a.long)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	section := func(title string, names []string) {
		if len(names) == 0 {
			return
		}
		fmt.Fprintf(b, "\n%s:\n", title)
		for _, n := range names {
			d := flags[n]
			fmt.Fprintf(w, "  %s\t%s%s\n", d.flag(), d.doc, d.standard())
		}
		w.Flush()
	}
	needed := slices.Clone(a.needs)
	if !a.local {
		needed = append([]string{"bootstrap-server"}, needed...)
	}
	section("Needed", needed)
	section("Flags", optional)
	fmt.Fprintf(b, "\nExamples:\n")
	for i := range a.examples {
		fmt.Fprintf(b, "  %s\n", a.example(i))
	}
}

func wrap(b *strings.Builder, text string) {
	column := 0
	for _, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case column > 0 && column+1+n > helpWidth:
			b.WriteByte('\n')
			column = 0
		case column > 0:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteByte('\n')
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// The shapes of --json are read by scripts: fields may be added, none is renamed or removed.

// say prints one outcome, in JSON or as a sentence.
func (o *options) say(out io.Writer, v any, text string) error {
	if !o.json {
		_, err := fmt.Fprintln(out, text)
		return err
	}
	return writeJSON(out, v)
}

func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func number(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// plural counts things: 1 topic, 2 topics.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

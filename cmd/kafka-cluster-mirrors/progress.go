package main

import (
	"fmt"
	"io"
	"unicode/utf8"
)

// progress shows how far something is: a line for each change, or on a terminal one line
// that is drawn again.
type progress struct {
	out   io.Writer
	quiet bool
	width int // of the terminal, 0 where there is none
	last  string
	drawn bool
}

func newProgress(out io.Writer, quiet bool) *progress {
	return &progress{out: out, quiet: quiet, width: terminalWidth(out)}
}

func (p *progress) show(line string) {
	if p.quiet || line == p.last {
		return
	}
	p.last = line
	if p.width == 0 {
		fmt.Fprintln(p.out, line)
		return
	}
	if utf8.RuneCountInString(line) >= p.width {
		line = string([]rune(line)[:max(p.width-2, 0)]) + "…"
	}
	fmt.Fprintf(p.out, "\r\x1b[K%s", line)
	p.drawn = true
}

// end leaves what was drawn and begins a new line, for what is said next.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprintln(p.out)
	}
	p.drawn, p.last = false, ""
}

package config

import (
	"fmt"
	"math"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// unknownKey words the error for a key nobody knows, with the nearest known one.
func unknownKey(key string, known []string) error {
	best, distance := "", math.MaxInt
	for _, k := range known {
		if d := editDistance(key, k); d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return fmt.Errorf("unknown key %q", key)
	}
	return fmt.Errorf("unknown key %q; the nearest known key is %q", key, best)
}

// editDistance is Levenshtein's, over bytes: keys are ASCII.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next := min(row[j]+1, row[j-1]+1, diagonal+cost)
			diagonal, row[j] = row[j], next
		}
	}
	return row[len(b)]
}

func parseInt(v string, lo, hi int64) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", v)
	}
	if n < lo || n > hi {
		return 0, fmt.Errorf("%d is out of range, allowed are %d to %d", n, lo, hi)
	}
	return n, nil
}

func parseMillis(v string, lo, hi int64) (time.Duration, error) {
	n, err := parseInt(v, lo, hi)
	return time.Duration(n) * time.Millisecond, err
}

func parseBool(v string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(v)) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", v)
}

// SplitList splits a comma separated list; blanks and empty items are dropped.
func SplitList(v string) []string {
	var out []string
	for _, s := range strings.Split(v, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// parseAddresses reads host:port[,host:port…].
func parseAddresses(v string) ([]string, error) {
	list := SplitList(v)
	for _, a := range list {
		if _, _, err := splitHostPort(a); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func splitHostPort(a string) (string, uint16, error) {
	host, port, err := net.SplitHostPort(a)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port", a)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q: port is not a number from 0 to 65535", a)
	}
	return host, uint16(n), nil
}

// Pattern is a comma separated list of regular expressions, each matched against the
// whole name (RE2 syntax).
type Pattern struct {
	text string
	re   *regexp.Regexp
}

// ParsePattern compiles a list; an empty one matches nothing.
func ParsePattern(v string) (Pattern, error) {
	list := SplitList(v)
	if len(list) == 0 {
		return Pattern{}, nil
	}
	for _, s := range list {
		if _, err := regexp.Compile(s); err != nil {
			return Pattern{}, fmt.Errorf("%q is not a regular expression: %w", s, err)
		}
	}
	re, err := regexp.Compile(`^(?:(?:` + strings.Join(list, `)|(?:`) + `))$`)
	if err != nil {
		return Pattern{}, fmt.Errorf("%q is not a list of regular expressions: %w", v, err)
	}
	return Pattern{text: strings.Join(list, ","), re: re}, nil
}

// Match tells whether the whole name matches one of the expressions.
func (p Pattern) Match(name string) bool { return p.re != nil && p.re.MatchString(name) }

// Empty tells whether the pattern matches nothing at all.
func (p Pattern) Empty() bool { return p.re == nil }

// String returns the list as it was written.
func (p Pattern) String() string { return p.text }

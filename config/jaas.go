package config

import (
	"errors"
	"fmt"
	"strings"
)

// jaasEntry is the one login module of a client's sasl.jaas.config.
type jaasEntry struct {
	module  string
	options map[string]string
}

// parseJAAS reads sasl.jaas.config as people paste it: the entry alone, or the whole
// KafkaClient { … }; of a JAAS file with its comments; double, single or no quotes; with or without the
// final semicolon. Errors never repeat the text: it holds a password.
func parseJAAS(s string) (jaasEntry, error) {
	tokens, err := jaasTokens(s)
	if err != nil {
		return jaasEntry{}, err
	}
	if len(tokens) > 2 && tokens[1].text == "{" && !tokens[1].quoted {
		tokens = tokens[2:]
		for n := len(tokens); n > 0 && !tokens[n-1].quoted && (tokens[n-1].text == ";" || tokens[n-1].text == "}"); n = len(tokens) {
			tokens = tokens[:n-1]
		}
	}
	if n := len(tokens); n > 0 && tokens[n-1].text == ";" && !tokens[n-1].quoted {
		tokens = tokens[:n-1]
	}
	if len(tokens) < 2 {
		return jaasEntry{}, errors.New("sasl.jaas.config: want <login module> required key=\"value\" …;")
	}
	e := jaasEntry{module: tokens[0].text, options: map[string]string{}}
	switch strings.ToLower(tokens[1].text) {
	case "required", "requisite", "sufficient", "optional":
	default:
		return jaasEntry{}, errors.New("sasl.jaas.config: \"required\" must follow the login module's name")
	}
	rest := tokens[2:]
	for len(rest) > 0 {
		if len(rest) < 3 || rest[1].text != "=" || rest[1].quoted || rest[0].quoted {
			return jaasEntry{}, errors.New("sasl.jaas.config: options must be key=\"value\" (one login module only)")
		}
		e.options[rest[0].text] = rest[2].text
		rest = rest[3:]
	}
	return e, nil
}

type jaasToken struct {
	text   string
	quoted bool
}

func jaasTokens(s string) ([]jaasToken, error) {
	var out []jaasToken
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case isComment(out, s[i:]):
			i += commentLength(s[i:])
		case c == '=' || c == ';' || c == '{' || c == '}':
			out = append(out, jaasToken{text: string(c)})
			i++
		case c == '"' || c == '\'':
			var b strings.Builder
			i++
			for i < len(s) && s[i] != c {
				if s[i] == '\\' && i+1 < len(s) {
					i++
				}
				b.WriteByte(s[i])
				i++
			}
			if i >= len(s) {
				return nil, fmt.Errorf("sasl.jaas.config: a quote (%c) is not closed", c)
			}
			i++
			out = append(out, jaasToken{text: b.String(), quoted: true})
		default:
			start := i
			for i < len(s) && !strings.ContainsRune(" \t\r\n=;{}\"'", rune(s[i])) {
				i++
			}
			text := s[start:i]
			// An unquoted value may hold '=' (base64 passwords), which has no other meaning there.
			if n := len(out); n > 0 && out[n-1].text == "=" && !out[n-1].quoted {
				for i < len(s) && !strings.ContainsRune(" \t\r\n;", rune(s[i])) {
					i++
				}
				text = s[start:i]
			}
			out = append(out, jaasToken{text: text})
		}
	}
	return out, nil
}

// isComment tells whether rest begins with a comment: where a value is due it is none, but part of a password.
func isComment(before []jaasToken, rest string) bool {
	value := len(before) > 0 && before[len(before)-1].text == "=" && !before[len(before)-1].quoted
	return !value && (strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "/*"))
}

// commentLength is how long it is; one that does not end goes to the end.
func commentLength(rest string) int {
	end := "\n"
	if rest[1] == '*' {
		end = "*/"
	}
	if i := strings.Index(rest[2:], end); i >= 0 {
		return 2 + i + len(end)
	}
	return len(rest)
}

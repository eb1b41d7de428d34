package config

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cluster-mirroring/mirror-sidecar/sealed"
)

// maxPropertiesBytes bounds what is read from one file; inline PEM bundles are the
// largest thing that belongs there.
const maxPropertiesBytes = 4 << 20

// Properties are the key-value pairs of a Java properties file.
type Properties map[string]string

// ParseProperties reads the java.util.Properties text form: '=' ':' or blanks
// between key and value, '#' and '!' comments, backslash escapes with \uXXXX, and
// lines continued by a trailing backslash. A key given twice is an error: Java keeps
// the last one silently, which is how wrong values go unnoticed.
func ParseProperties(r io.Reader) (Properties, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxPropertiesBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read properties: %w", err)
	}
	if len(raw) > maxPropertiesBytes {
		return nil, fmt.Errorf("properties are larger than %d bytes", maxPropertiesBytes)
	}
	if !utf8.Valid(raw) {
		return nil, errors.New("properties are not valid UTF-8")
	}
	out := Properties{}
	sc := bufio.NewScanner(strings.NewReader(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(raw))))
	sc.Buffer(make([]byte, 0, 64<<10), maxPropertiesBytes+1)
	number, start := 0, 0
	var logical strings.Builder
	continued := false
	for sc.Scan() {
		number++
		line := sc.Text()
		trimmed := strings.TrimLeft(line, " \t\f")
		if !continued {
			if trimmed == "" || trimmed[0] == '#' || trimmed[0] == '!' {
				continue
			}
			start = number
		}
		backslashes := len(trimmed) - len(strings.TrimRight(trimmed, `\`))
		if backslashes%2 == 1 {
			logical.WriteString(trimmed[:len(trimmed)-1])
			continued = true
			continue
		}
		logical.WriteString(trimmed)
		if err := out.add(logical.String(), start); err != nil {
			return nil, err
		}
		logical.Reset()
		continued = false
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("read properties: %w", err)
	}
	if continued {
		if err := out.add(logical.String(), start); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// add splits one logical line and stores it.
func (p Properties) add(line string, number int) error {
	end, sep := len(line), len(line)
	for i := 0; i < len(line); i++ {
		c := line[i]
		if c == '\\' {
			i++
			continue
		}
		if c == '=' || c == ':' || c == ' ' || c == '\t' || c == '\f' {
			end, sep = i, i
			break
		}
	}
	for sep < len(line) && isBlank(line[sep]) {
		sep++
	}
	if sep < len(line) && (line[sep] == '=' || line[sep] == ':') {
		sep++
		for sep < len(line) && isBlank(line[sep]) {
			sep++
		}
	}
	key, err := unescape(line[:end])
	if err != nil {
		return fmt.Errorf("line %d: %w", number, err)
	}
	value, err := unescape(line[sep:])
	if err != nil {
		return fmt.Errorf("line %d, key %q: %w", number, key, err)
	}
	if key == "" {
		return fmt.Errorf("line %d: a value without a key", number)
	}
	if _, twice := p[key]; twice {
		return fmt.Errorf("line %d: key %q is given twice", number, key)
	}
	p[key] = strings.TrimRightFunc(value, unicode.IsSpace)
	return nil
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\f' }

func unescape(s string) (string, error) {
	if !strings.ContainsRune(s, '\\') {
		return s, nil
	}
	var b strings.Builder
	var high rune
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i == len(s) {
			break
		}
		switch s[i] {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			if i+5 > len(s) {
				return "", errors.New(`a \u escape needs four hex digits`)
			}
			n, err := strconv.ParseUint(s[i+1:i+5], 16, 32)
			if err != nil {
				return "", errors.New(`a \u escape needs four hex digits`)
			}
			i += 4
			r := rune(n)
			// Java writes characters beyond the basic plane as two escapes.
			switch {
			case r >= 0xd800 && r < 0xdc00:
				high = r
				continue
			case r >= 0xdc00 && r < 0xe000 && high != 0:
				b.WriteRune((high-0xd800)<<10 + (r - 0xdc00) + 0x10000)
			default:
				b.WriteRune(r)
			}
			high = 0
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}

// ReadPropertiesFile reads a properties file from disk.
func ReadPropertiesFile(path string) (Properties, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read properties: %w", err)
	}
	defer f.Close()
	p, err := ParseProperties(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// Clone returns an independent copy.
func (p Properties) Clone() Properties { return maps.Clone(p) }

// Keys returns the keys in order.
func (p Properties) Keys() []string { return slices.Sorted(maps.Keys(p)) }

// redactedValue stands for a secret wherever configuration is shown.
const redactedValue = "[hidden]"

// Redacted returns a copy that may be shown: secrets replaced.
func (p Properties) Redacted() Properties {
	out := make(Properties, len(p))
	for k, v := range p {
		if Hidden(k, v) && v != "" {
			v = redactedValue
		}
		out[k] = v
	}
	return out
}

// String is the redacted form, so that a stray %v does not leak a password.
func (p Properties) String() string {
	var b strings.Builder
	r := p.Redacted()
	for i, k := range r.Keys() {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s=%s", k, r[k])
	}
	return b.String()
}

// Hidden tells whether a value must never be shown: that of a secret's key, and a private
// key wherever it was pasted, encrypted or not.
func Hidden(key, value string) bool {
	return IsSecret(key) || strings.Contains(value, "PRIVATE KEY-----") || sealed.Is(value)
}

// IsSecret tells whether a key's value must never be shown. It errs towards hiding:
// keys that are not known are judged by the words in them.
func IsSecret(key string) bool {
	k := strings.ToLower(key)
	if strings.HasSuffix(k, "sasl.jaas.config") || strings.HasSuffix(k, "ssl.keystore.key") {
		return true
	}
	for _, w := range []string{"password", "passwd", "passphrase", "secret", "token", "credential", "apikey", "api.key"} {
		if strings.Contains(k, w) && !slices.ContainsFunc([]string{".url", ".client.id", ".scope"}, func(end string) bool { return strings.HasSuffix(k, end) }) {
			return true
		}
	}
	return false
}

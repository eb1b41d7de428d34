package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// readable checks the files that a mirror's keys name, before anything reads them. Like references
// they come over the wire and are opened by the sidecar: a keystore of its own would let whoever may
// create a mirror act under the sidecar's identity at a cluster of his choice, and any other file
// would tell him whether it exists. So the same paths are allowed as for ${file:…}.
func (v Providers) readable(p Properties) error {
	for _, key := range p.Keys() {
		path, isFile := namedFile(key, strings.TrimSpace(p[key]))
		if !isFile {
			continue
		}
		if err := v.allowedPath(path); err != nil {
			inline := "give what is in it in the configuration itself"
			if strings.HasPrefix(key, "ssl.") {
				inline = "give PEM text in ssl.truststore.certificates, ssl.keystore.certificate.chain and ssl.keystore.key"
			}
			return fmt.Errorf("%s: a mirror's files are read by the sidecars, and the %w (%s, or put the file there at each of them)", key, err, inline)
		}
	}
	return v.readableLogin(p)
}

// readableLogin is readable for what a login needs: files that its options name, and the address that tokens
// come from, which the sidecars send the client's secret to, from inside their network.
func (v Providers) readableLogin(p Properties) error {
	if text := p["sasl.jaas.config"]; text != "" {
		e, err := parseJAAS(text)
		if err != nil {
			return err
		}
		for option, value := range e.options {
			if path, isFile := namedFile(option, strings.TrimSpace(value)); isFile && strings.HasPrefix(option, "ssl.") {
				if err := v.allowedPath(path); err != nil {
					return fmt.Errorf("sasl.jaas.config: %s: a mirror's files are read by the sidecars, and the %w", option, err)
				}
			}
		}
	}
	at := strings.TrimSpace(p[keyTokenURL])
	if _, isFile := namedFile(keyTokenURL, at); at == "" || isFile || slices.Contains(v.AllowedURLs, at) {
		return nil
	}
	return fmt.Errorf("%s: the sidecars ask for a mirror's tokens, and this address is not in %s of the sidecar; add it there, as it is written here", keyTokenURL, keyAllowedURLs)
}

// namedFile returns the file that a key's value names.
func namedFile(key, value string) (path string, isFile bool) {
	switch {
	case value == "":
		return "", false
	case strings.HasSuffix(key, ".location"):
		return value, true
	case strings.HasPrefix(strings.ToLower(value), "file:"): // a token's
		u, err := url.Parse(value)
		if err != nil {
			return value, true // no path at all
		}
		return u.Path, true
	}
	return "", false
}

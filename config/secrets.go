package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/sealed"
)

// Secrets of a mirror are kept where everybody can read who may read the state topic. So they are
// encrypted there, or only referred to.

// literalSecret tells whether a value holds a secret itself: not only references to where secrets are.
func literalSecret(key, value string) bool {
	if value == "" || sealed.Is(value) || !Hidden(key, value) || isReference(value) {
		return false
	}
	if !strings.HasSuffix(strings.ToLower(key), "sasl.jaas.config") {
		return true
	}
	e, err := parseJAAS(value)
	if err != nil {
		return true
	}
	for option, v := range e.options {
		if !publicOption(option) && v != "" && !isReference(v) {
			return true
		}
	}
	return false
}

// publicOption tells whether an option of a login module says no secret. What is not known may.
func publicOption(name string) bool {
	return slices.Contains([]string{"username", "clientId", "scope", "tokenauth", "ssl.truststore.location", "ssl.truststore.type"}, name) ||
		strings.HasPrefix(name, "extension_") || strings.HasPrefix(name, "unsecuredLogin")
}

func isSecurityKey(key string) bool {
	return slices.ContainsFunc(securityKeys(), func(k Key) bool { return k.Name == key })
}

// SealSecrets returns a mirror's configuration as the state topic may hold it: what is new in it and
// secret is encrypted. Without keys that is refused. What stood in before stays as it is.
func SealSecrets(keys *sealed.Keys, mirror string, before, next Properties) (Properties, error) {
	out := next.Clone()
	var errs []error
	for _, key := range next.Keys() {
		value := next[key]
		old, had := before[key]
		switch {
		case had && old == value:
		case sealed.Is(value):
			errs = append(errs, fmt.Errorf("%s: it looks like what is stored of a secret; give the secret itself", key))
		case !isSecurityKey(key) || !literalSecret(key, value):
		case keys == nil:
			errs = append(errs, fmt.Errorf("%s: a secret would lie in the state topic for everybody to read: write ${file:/path:key}, ${dir:/path:name} or ${env:NAME} in its place and allow that in config.providers.allowed.paths or .env of the sidecars, "+
				"or give all sidecars a key to encrypt it with (state.encryption.key.file)", key))
		case had && sameSecret(keys, mirror, key, old, value):
			out[key] = old // written anew, it would look like another login
		default:
			text, err := keys.Seal(value, mirror, key)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: it cannot be encrypted: %w", key, err))
			}
			out[key] = text
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

func sameSecret(keys *sealed.Keys, mirror, key, stored, value string) bool {
	if ids := keys.IDs(); len(ids) == 0 || sealed.KeyID(stored) != ids[0] {
		return false
	}
	was, err := keys.Open(stored, mirror, key)
	return err == nil && was == value
}

// ResealSecrets encrypts what a mirror's stored configuration has in clear, or encrypted with another
// key than the first. What cannot be decrypted stays, and is told.
func ResealSecrets(keys *sealed.Keys, mirror string, stored Properties) (next Properties, changed []string, err error) {
	next = stored.Clone()
	ids := keys.IDs()
	if len(ids) == 0 {
		return next, nil, nil
	}
	var errs []error
	for key, id := range StoredSecrets(stored) {
		if id == ids[0] {
			continue
		}
		plain := stored[key]
		if sealed.Is(plain) {
			if plain, err = keys.Open(plain, mirror, key); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", key, err))
				continue
			}
		}
		text, err := keys.Seal(plain, mirror, key)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
			continue
		}
		next[key] = text
		changed = append(changed, key)
	}
	slices.Sort(changed)
	return next, changed, errors.Join(errs...)
}

// StoredSecrets are the keys of a mirror's stored configuration that hold secrets, each with the id of the
// key that it is encrypted with: "" if it lies there in clear, "unknown" if another version has encrypted it.
func StoredSecrets(stored Properties) map[string]string {
	out := map[string]string{}
	for key, value := range stored {
		if isSecurityKey(key) && (sealed.Is(value) || literalSecret(key, value)) {
			if out[key] = sealed.KeyID(value); out[key] == "" && sealed.Is(value) {
				out[key] = "unknown"
			}
		}
	}
	return out
}

// OpenSecrets returns a mirror's stored keys with its secrets decrypted. References stay.
func OpenSecrets(keys *sealed.Keys, mirror string, stored Properties) (Properties, error) {
	out := stored.Clone()
	var errs []error
	for _, key := range stored.Keys() {
		if !sealed.Is(stored[key]) {
			continue
		}
		plain, err := keys.Open(stored[key], mirror, key)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
		out[key] = plain
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

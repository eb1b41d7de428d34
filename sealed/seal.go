package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// prefix begins every encrypted text; a login module, PEM text or a number never does. The key's id,
// a colon and the rest follow: nonce, ciphertext and tag in base64.
const prefix = "sealed:v1:"

// reserved begins what this version, or another one, takes for encrypted.
const reserved = "sealed:"

// ErrNoKeys says that there is no file of keys.
var ErrNoKeys = errors.New("state.encryption.key.file is not set")

// Is tells whether a text is an encrypted one.
func Is(text string) bool { return strings.HasPrefix(text, reserved) }

// KeyID is that of the key which a text was encrypted with, "" if it is not encrypted.
func KeyID(text string) string {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, ":")
	return id
}

// Seal encrypts a text that belongs to the given names.
func (k *Keys) Seal(text string, of ...string) (string, error) {
	keys, err := k.current()
	if err != nil {
		return "", err
	}
	if len(keys) == 0 {
		return "", ErrNoKeys
	}
	aead, err := keys[0].aead()
	if err != nil {
		return "", err
	}
	return prefix + keys[0].id + ":" + base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, []byte(text), bound(of))), nil
}

// Open decrypts a text that belongs to the given names.
func (k *Keys) Open(text string, of ...string) (string, error) {
	rest, ok := strings.CutPrefix(text, prefix)
	id, body, parts := strings.Cut(rest, ":")
	if !ok || !parts {
		return "", errors.New("it is encrypted in a way that this version does not know")
	}
	keys, err := k.current()
	if err != nil {
		return "", fmt.Errorf("it is encrypted: %w", err)
	}
	if k == nil {
		return "", fmt.Errorf("it is encrypted with key %.16q, and %w here; give this sidecar the file that the others have", id, ErrNoKeys)
	}
	for _, key := range keys {
		if key.id != id {
			continue
		}
		aead, err := key.aead()
		if err != nil {
			return "", err
		}
		raw, err := base64.RawURLEncoding.DecodeString(body)
		if err != nil {
			return "", errors.New("what was encrypted is damaged; give the secret again")
		}
		plain, err := aead.Open(nil, nil, raw, bound(of))
		if err != nil {
			return "", errors.New("what was encrypted is damaged, or was taken from elsewhere; give the secret again")
		}
		return string(plain), nil
	}
	return "", fmt.Errorf("it is encrypted with key %.16q, which %s does not have; add that key, or give the secret again", id, k.path)
}

func (k *key) aead() (cipher.AEAD, error) {
	block, err := aes.NewCipher(k.raw[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// bound is the additional data that binds a text to names, each with its length before it.
func bound(names []string) []byte {
	out := []byte(prefix)
	for _, n := range names {
		out = binary.AppendUvarint(out, uint64(len(n)))
		out = append(out, n...)
	}
	return out
}

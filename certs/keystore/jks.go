package keystore

import (
	"bytes"
	"crypto"
	"crypto/sha1" //nolint:gosec // the format has no other
	"crypto/subtle"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf16"
)

const (
	jksMagic   = 0xfeedfeed
	jksPrivate = 1
	jksTrusted = 2
)

// jksReader reads what is left of a file. After the first thing that is not there nothing is.
type jksReader struct {
	b   []byte
	s   *Store
	err error
}

// take returns the next n bytes: no more is believed of a length than the file has.
func (r *jksReader) take(n uint64) []byte {
	if r.err != nil || n > uint64(len(r.b)) {
		if r.err == nil {
			r.err = errors.New("the file ends within an entry")
		}
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *jksReader) number(size uint64) uint64 {
	var out uint64
	for _, b := range r.take(size) {
		out = out<<8 | uint64(b)
	}
	return out
}

func (r *jksReader) text() string { return string(r.take(r.number(2))) }

// certificate returns nil for one that is not X.509, or cannot be read.
func (r *jksReader) certificate(version uint64) *x509.Certificate {
	kind := "X.509"
	if version == 2 {
		kind = r.text()
	}
	der := r.take(r.number(4))
	if r.err != nil || (kind != "X.509" && kind != "X509") {
		return nil
	}
	return r.s.certificate(der)
}

func readJKS(b []byte, password string) (*Store, error) {
	if len(b) < sha1.Size+12 {
		return nil, errors.New("the file ends before its first entry")
	}
	signed, sum := b[:len(b)-sha1.Size], b[len(b)-sha1.Size:]
	if password != "" && subtle.ConstantTimeCompare(jksSum(password, []byte("Mighty Aphrodite"), signed), sum) == 0 {
		return nil, ErrPassword
	}
	s := &Store{Format: JKS}
	r := &jksReader{b: signed[4:], s: s}
	version := r.number(4)
	if version != 1 && version != 2 {
		return nil, fmt.Errorf("version %d of the format is not known", version)
	}
	n := r.number(4)
	if n > maxEntries {
		return nil, fmt.Errorf("it has more than %d entries", maxEntries)
	}
	for range n {
		tag, alias := r.number(4), r.text()
		r.take(8) // when it was made
		switch tag {
		case jksPrivate:
			s.Keys = append(s.Keys, r.key(version, alias))
		case jksTrusted:
			if c := r.certificate(version); c != nil {
				s.Trusted = append(s.Trusted, c)
			}
		default:
			if r.err == nil {
				r.err = fmt.Errorf("there is no entry of kind %d", tag)
			}
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	if len(r.b) > 0 {
		return nil, errors.New("the file goes on behind its last entry")
	}
	return s, nil
}

func (r *jksReader) key(version uint64, alias string) Key {
	encrypted := r.take(r.number(4))
	k := Key{Alias: alias, open: func(password string) (crypto.PrivateKey, error) { return openJKS(encrypted, password) }}
	n := r.number(4)
	if n > maxChain && r.err == nil {
		r.err = fmt.Errorf("a key has more than %d certificates", maxChain)
	}
	for i := uint64(0); i < n && r.err == nil; i++ {
		if c := r.certificate(version); c != nil {
			k.Chain = append(k.Chain, c)
		}
	}
	return k
}

// jksSum is SHA-1 over a password, two bytes a character, and what follows it.
func jksSum(password string, parts ...[]byte) []byte {
	h := sha1.New() //nolint:gosec // the format has no other
	for _, u := range utf16.Encode([]rune(password)) {
		h.Write(binary.BigEndian.AppendUint16(nil, u))
	}
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// openJKS takes off Sun's own protection: a stream of hashes, each of the password and the one before.
func openJKS(encrypted []byte, password string) (crypto.PrivateKey, error) {
	if password == "" {
		return nil, ErrNoPassword
	}
	var info encryptedKey
	if err := unmarshal(encrypted, &info); err != nil {
		return nil, fmt.Errorf("the key: %w", err)
	}
	if !info.Algorithm.Algorithm.Equal(asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 42, 2, 17, 1, 1}) {
		return nil, fmt.Errorf("the key is encrypted with %v, which JKS has not", info.Algorithm.Algorithm)
	}
	if len(info.Data) < 2*sha1.Size {
		return nil, errors.New("the key is too short")
	}
	digest, text, sum := info.Data[:sha1.Size], info.Data[sha1.Size:len(info.Data)-sha1.Size], info.Data[len(info.Data)-sha1.Size:]
	plain := make([]byte, 0, len(text))
	for len(text) > 0 {
		digest = jksSum(password, digest)
		n := min(len(text), len(digest))
		for i := range n {
			plain = append(plain, text[i]^digest[i])
		}
		text = text[n:]
	}
	if !bytes.Equal(jksSum(password, plain), sum) {
		return nil, ErrPassword
	}
	return parseKey(plain)
}

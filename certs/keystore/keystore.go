package keystore

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Format is how a store is written, by Kafka's name for it.
type Format string

// The formats that can be read.
const (
	PEM    Format = "PEM"
	PKCS12 Format = "PKCS12"
	JKS    Format = "JKS"
)

// What is wrong with a password. Which key has it is for the caller to say.
var (
	ErrPassword   = errors.New("the password is wrong, or the file is damaged")
	ErrNoPassword = errors.New("a password is needed")
	ErrNoKey      = errors.New("there is no private key in it")
)

// FormatError is a file in another format than was said.
type FormatError struct {
	Said string
	Is   Format // empty: none that is known
}

func (e *FormatError) Error() string {
	if e.Is == "" {
		return fmt.Sprintf("this is no %s file", e.Said)
	}
	return fmt.Sprintf("this is a %s file, not %s", e.Is, e.Said)
}

// maxFile bounds a store. The largest that JDKs come with, of all authorities, has 200 KiB.
const maxFile = 4 << 20

// maxEntries and maxChain bound what a store may say that it has.
const (
	maxEntries = 10_000
	maxChain   = 100
)

// Store is what a file holds.
type Store struct {
	Format Format
	// Keys are in the order of their aliases, and in PEM in that of the file.
	Keys []Key
	// Trusted are the certificates that do not belong to a key.
	Trusted []*x509.Certificate
	// Unread is what is wrong with the first of the certificates that cannot be read, if there are any. They
	// count for nothing: one odd authority of hundreds must not keep the others from being trusted.
	Unread error
}

// certificate returns nil for one that cannot be read.
func (s *Store) certificate(der []byte) *x509.Certificate {
	c, err := x509.ParseCertificate(der)
	if err != nil {
		if s.Unread == nil {
			s.Unread = fmt.Errorf("a certificate: %w", err)
		}
		return nil
	}
	return c
}

// Key is a private key, not decrypted yet, with the certificates that go with it.
type Key struct {
	Alias string // empty in PEM, and where there is none
	Chain []*x509.Certificate

	open func(password string) (crypto.PrivateKey, error)
}

// Open decrypts the key.
func (k Key) Open(password string) (tls.Certificate, error) {
	if len(k.Chain) == 0 {
		return tls.Certificate{}, errors.New("there is no certificate for its key")
	}
	key, err := k.open(password)
	if err != nil {
		return tls.Certificate{}, err
	}
	if !pair(key, k.Chain[0]) {
		return tls.Certificate{}, errors.New("its first certificate and its key do not form a pair")
	}
	out := tls.Certificate{PrivateKey: key, Leaf: k.Chain[0]}
	for _, c := range k.Chain {
		out.Certificate = append(out.Certificate, c.Raw)
	}
	return out, nil
}

func pair(key crypto.PrivateKey, c *x509.Certificate) bool {
	signer, ok := key.(crypto.Signer)
	if !ok {
		return false
	}
	public, ok := signer.Public().(interface{ Equal(x crypto.PublicKey) bool })
	return ok && public.Equal(c.PublicKey)
}

// First is the key that is used where a store has several. Java's choice among them goes by hashes of
// their aliases; this one goes by the aliases.
func (s *Store) First() (Key, error) {
	if len(s.Keys) == 0 {
		return Key{}, ErrNoKey
	}
	return s.Keys[0], nil
}

// ReadFile is Read of a file.
func ReadFile(path, format, password string) (*Store, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	return Read(b, format, password)
}

// Read reads a store. Without a format it is what it looks like; JKS and PKCS12 stand for each other,
// as in Java, whose tools have written the one under the name of the other since version 9.
// Without a password what is encrypted cannot be read, and what is not is not verified.
func Read(b []byte, format, password string) (*Store, error) {
	return read(b, format, password, maxIterations)
}

func read(b []byte, format, password string, iterations int) (*Store, error) {
	if len(b) > maxFile {
		return nil, fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	is := looks(b)
	switch said := Format(strings.ToUpper(format)); said {
	case "":
		if is == "" {
			return nil, &FormatError{Said: "PEM, PKCS12 or JKS"}
		}
	case JKS, PKCS12:
		if is != JKS && is != PKCS12 {
			return nil, &FormatError{Said: string(said), Is: is}
		}
	case PEM:
		if is == JKS || is == PKCS12 {
			return nil, &FormatError{Said: string(said), Is: is}
		}
		is = PEM
	default:
		return nil, fmt.Errorf("stores of type %q cannot be read, JKS, PKCS12 and PEM can", format)
	}
	d := decrypter{iterations: iterations}
	if is == PEM {
		return d.readPEM(string(b))
	}
	readJava := d.readPKCS12
	if is == JKS {
		readJava = readJKS
	}
	s, err := readJava(b, password)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(s.Keys, func(a, b Key) int { return strings.Compare(a.Alias, b.Alias) })
	return s, nil
}

// looks tells the format by what a file begins with.
func looks(b []byte) Format {
	switch {
	case len(b) >= 4 && binary.BigEndian.Uint32(b) == jksMagic:
		return JKS
	case len(b) >= 2 && b[0] == 0x30 && (b[1] >= 0x80 || int(b[1]) == len(b)-2):
		return PKCS12
	case bytes.Contains(b, []byte(pemBegin)):
		return PEM
	}
	return ""
}

// parseKey reads PKCS#8.
func parseKey(der []byte) (crypto.PrivateKey, error) {
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		// What a wrong password has decrypted, by chance with right padding. The error may show it.
		return nil, errors.New("the private key cannot be read")
	}
	switch key.(type) {
	case *rsa.PrivateKey, *ecdsa.PrivateKey, ed25519.PrivateKey:
		return key, nil
	}
	return nil, fmt.Errorf("keys of type %T cannot be used for TLS", key)
}

// chainOf puts what issued a certificate behind it, as far as it is there.
func chainOf(leaf *x509.Certificate, all []*x509.Certificate) []*x509.Certificate {
	chain := []*x509.Certificate{leaf}
	for len(chain) < maxChain {
		last := chain[len(chain)-1]
		if bytes.Equal(last.RawIssuer, last.RawSubject) {
			return chain
		}
		next := issuer(last, all)
		if next == nil {
			return chain
		}
		chain = append(chain, next)
	}
	return chain
}

func issuer(c *x509.Certificate, all []*x509.Certificate) *x509.Certificate {
	for _, other := range all {
		if other != c && bytes.Equal(other.RawSubject, c.RawIssuer) && c.CheckSignatureFrom(other) == nil {
			return other
		}
	}
	return nil
}

// Anchors are the certificates that a store means to trust. In a PEM file these are all of them; in Java's
// stores those that belong to no key and, as in Java, those of the keys themselves.
func (s *Store) Anchors() []*x509.Certificate {
	out := slices.Clone(s.Trusted)
	for i, k := range s.Keys {
		switch {
		case len(k.Chain) == 0:
		case s.Format != PEM:
			out = append(out, k.Chain[0])
		case i == 0: // each key has all of them
			out = append(out, k.Chain...)
		}
	}
	return out
}

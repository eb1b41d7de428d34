package keystore

import (
	"bytes"
	"crypto"
	"crypto/hmac"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unicode/utf16"
)

// The parts of RFC 7292 that stores of keys and certificates have.
type (
	pfx struct {
		Version  int
		AuthSafe contentInfo
		Mac      macData `asn1:"optional"`
	}
	contentInfo struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue `asn1:"tag:0,explicit,optional"`
	}
	encryptedData struct {
		Version int
		Info    struct {
			Type      asn1.ObjectIdentifier
			Algorithm pkix.AlgorithmIdentifier
			Data      []byte `asn1:"tag:0,optional"`
		}
	}
	macData struct {
		Digest struct {
			Algorithm pkix.AlgorithmIdentifier
			Digest    []byte
		}
		Salt       []byte
		Iterations int `asn1:"optional,default:1"`
	}
	safeBag struct {
		ID         asn1.ObjectIdentifier
		Value      asn1.RawValue  `asn1:"tag:0,explicit"`
		Attributes []bagAttribute `asn1:"set,optional"`
	}
	bagAttribute struct {
		ID    asn1.ObjectIdentifier
		Value asn1.RawValue `asn1:"set"`
	}
	certBag struct {
		ID   asn1.ObjectIdentifier
		Data []byte `asn1:"tag:0,explicit"`
	}
	encryptedKey struct {
		Algorithm pkix.AlgorithmIdentifier
		Data      []byte
	}
)

func oidData() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1} }

func oidEncryptedData() asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 6}
}

func oidPKCS12(n ...int) asn1.ObjectIdentifier {
	return append(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12}, n...)
}

func oidPKCS9(n ...int) asn1.ObjectIdentifier {
	return append(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9}, n...)
}

// oidTrusted is Java's mark of a certificate that is trusted, not one of a key's chain.
func oidTrusted() asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{2, 16, 840, 1, 113894, 746875, 1, 1}
}

func unmarshal(b []byte, into any) error {
	rest, err := asn1.Unmarshal(b, into)
	if err != nil {
		return errors.New("it is not built as it must be")
	}
	if len(rest) > 0 {
		return errors.New("it goes on behind its end")
	}
	return nil
}

func (d decrypter) readPKCS12(b []byte, password string) (*Store, error) {
	var p pfx
	if err := unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("PKCS12: %w", err)
	}
	var safe []byte
	if p.Version != 3 || !p.AuthSafe.Type.Equal(oidData()) || unmarshal(p.AuthSafe.Content.Bytes, &safe) != nil {
		return nil, errors.New("PKCS12: it is not one that a password protects")
	}
	// Java too reads without verifying where it is given no password.
	if len(p.Mac.Digest.Algorithm.Algorithm) > 0 && password != "" {
		if err := d.verify(p.Mac, safe, password); err != nil {
			return nil, err
		}
	}
	var contents []contentInfo
	if err := unmarshal(safe, &contents); err != nil {
		return nil, fmt.Errorf("PKCS12: %w", err)
	}
	if len(contents) > maxChain {
		return nil, fmt.Errorf("PKCS12: it has more than %d parts", maxChain)
	}
	var bags []safeBag
	for _, c := range contents {
		more, err := d.bags(c, password)
		if err != nil {
			return nil, err
		}
		bags = append(bags, more...)
		if len(bags) > maxEntries {
			return nil, fmt.Errorf("PKCS12: it has more than %d entries", maxEntries)
		}
	}
	return d.sort(bags, password)
}

func (d decrypter) bags(c contentInfo, password string) ([]safeBag, error) {
	var plain []byte
	switch {
	case c.Type.Equal(oidData()):
		if err := unmarshal(c.Content.Bytes, &plain); err != nil {
			return nil, fmt.Errorf("PKCS12: a part: %w", err)
		}
	case c.Type.Equal(oidEncryptedData()):
		var e encryptedData
		if err := unmarshal(c.Content.Bytes, &e); err != nil {
			return nil, fmt.Errorf("PKCS12: an encrypted part: %w", err)
		}
		var err error
		if plain, err = d.decrypt(e.Info.Algorithm, e.Info.Data, password); err != nil {
			return nil, noPassword(err, password)
		}
	default:
		return nil, fmt.Errorf("PKCS12: parts of type %v cannot be read", c.Type)
	}
	var out []safeBag
	if err := unmarshal(plain, &out); err != nil {
		return nil, fmt.Errorf("PKCS12: a part: %w", err)
	}
	return out, nil
}

// noPassword says of what an empty password does not decrypt that there should be one.
func noPassword(err error, password string) error {
	if errors.Is(err, ErrPassword) && password == "" {
		return ErrNoPassword
	}
	return err
}

// certificate is one with what a store says of it.
type certificate struct {
	*x509.Certificate
	id      []byte // the key's that it belongs to
	trusted bool
}

// sort finds out what belongs together.
func (d decrypter) sort(bags []safeBag, password string) (*Store, error) {
	s := &Store{Format: PKCS12}
	var found []certificate
	var ids [][]byte
	for _, b := range bags {
		alias, id, trusted := b.attributes()
		switch {
		case b.ID.Equal(oidPKCS12(10, 1, 3)):
			c, err := b.certificate(s)
			if err != nil {
				return nil, err
			}
			if c != nil {
				found = append(found, certificate{c, id, trusted})
			}
		case b.ID.Equal(oidPKCS12(10, 1, 1)):
			der := b.Value.Bytes
			s.Keys = append(s.Keys, Key{Alias: alias, open: func(string) (crypto.PrivateKey, error) { return parseKey(der) }})
			ids = append(ids, id)
		case b.ID.Equal(oidPKCS12(10, 1, 2)):
			der := b.Value.Bytes
			s.Keys = append(s.Keys, Key{Alias: alias, open: func(own string) (crypto.PrivateKey, error) {
				key, err := d.openKey(der, own)
				if err != nil && own != password && password != "" {
					// Java keeps keys under the store's password, whatever one is given for them.
					return d.openKey(der, password)
				}
				return key, err
			}})
			ids = append(ids, id)
		}
	}
	all := make([]*x509.Certificate, len(found))
	for i, c := range found {
		all[i] = c.Certificate
	}
	for i := range s.Keys {
		s.Keys[i].Chain = chainFor(ids[i], found, all)
	}
	for _, c := range found {
		// openssl has no such mark: without a key all of them are meant.
		if c.trusted || len(s.Keys) == 0 {
			s.Trusted = append(s.Trusted, c.Certificate)
		}
	}
	return s, nil
}

// chainFor finds a key's certificate by the id that both have; a store that gives none has one key, and its
// own certificate is the first that has issued none.
func chainFor(id []byte, found []certificate, all []*x509.Certificate) []*x509.Certificate {
	at := slices.IndexFunc(found, func(c certificate) bool { return len(id) > 0 && bytes.Equal(c.id, id) })
	if at < 0 {
		at = slices.IndexFunc(found, func(c certificate) bool {
			return len(c.id) == 0 && !c.trusted && !slices.ContainsFunc(all, func(o *x509.Certificate) bool {
				return o != c.Certificate && bytes.Equal(o.RawIssuer, c.RawSubject)
			})
		})
	}
	if at < 0 {
		return nil
	}
	return chainOf(found[at].Certificate, all)
}

func (b safeBag) certificate(s *Store) (*x509.Certificate, error) {
	var bag certBag
	if err := unmarshal(b.Value.Bytes, &bag); err != nil {
		return nil, fmt.Errorf("PKCS12: a certificate: %w", err)
	}
	if !bag.ID.Equal(oidPKCS9(22, 1)) {
		return nil, nil // not X.509
	}
	return s.certificate(bag.Data), nil
}

func (b safeBag) attributes() (alias string, id []byte, trusted bool) {
	for _, a := range b.Attributes {
		var v asn1.RawValue
		if _, err := asn1.Unmarshal(a.Value.Bytes, &v); err != nil {
			continue
		}
		switch {
		case a.ID.Equal(oidPKCS9(20)):
			units := make([]uint16, len(v.Bytes)/2)
			for i := range units {
				units[i] = binary.BigEndian.Uint16(v.Bytes[2*i:])
			}
			alias = string(utf16.Decode(units))
		case a.ID.Equal(oidPKCS9(21)):
			id = v.Bytes
		case a.ID.Equal(oidTrusted()):
			trusted = true
		}
	}
	return alias, id, trusted
}

// verify tells by its checksum whether the password is the store's.
func (d decrypter) verify(m macData, content []byte, password string) error {
	algorithm := m.Digest.Algorithm
	var got []byte
	if algorithm.Algorithm.Equal(oidPKCS5(14)) { // PBMAC1
		h, key, err := d.pbmac1(algorithm.Parameters.FullBytes, password)
		if err != nil {
			return err
		}
		mac := hmac.New(h, key)
		mac.Write(content)
		got = mac.Sum(nil)
	} else {
		h, block, err := hashOf(algorithm.Algorithm)
		if err != nil {
			return fmt.Errorf("PKCS12: its checksum: %w", err)
		}
		if m.Iterations < 1 || m.Iterations > d.iterations {
			return d.tooMany(m.Iterations)
		}
		key := deriveKey(h, block, bmp(password), m.Salt, m.Iterations, 3, h().Size())
		mac := hmac.New(h, key)
		mac.Write(content)
		got = mac.Sum(nil)
	}
	if !hmac.Equal(got, m.Digest.Digest) {
		return ErrPassword
	}
	return nil
}

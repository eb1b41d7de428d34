package keystore

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

const pemBegin = "-----BEGIN "

// ReadPEM reads certificates and a key, which may be in one text or in several.
func ReadPEM(texts ...string) (*Store, error) {
	return decrypter{iterations: maxIterations}.readPEM(strings.Join(texts, "\n"))
}

// readPEM reads what is put into properties files as well: PEM in one line, with blanks for
// line breaks, is what Kafka accepts.
func (d decrypter) readPEM(text string) (*Store, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	s := &Store{Format: PEM}
	var certs []*x509.Certificate
	for rest := text; ; {
		_, after, found := strings.Cut(rest, pemBegin)
		if !found {
			break
		}
		label, after, found := strings.Cut(after, "-----")
		if !found {
			return nil, errors.New("broken PEM text")
		}
		body, after, found := strings.Cut(after, "-----END "+label+"-----")
		if !found {
			return nil, errors.New("a PEM block does not end")
		}
		rest = after
		if strings.Contains(body, "Proc-Type:") {
			return nil, errors.New("its key is encrypted the way of before PKCS#8, which Kafka does not read either; write it anew with: openssl pkcs8 -topk8 -v2 aes-256-cbc")
		}
		block, _ := pem.Decode([]byte(pemBegin + label + "-----\n" + strings.Join(strings.Fields(body), "\n") + "\n-----END " + label + "-----\n"))
		if block == nil {
			return nil, errors.New("a PEM block cannot be decoded")
		}
		switch {
		case label == "CERTIFICATE" || label == "TRUSTED CERTIFICATE" || label == "X509 CERTIFICATE":
			if c := s.certificate(block.Bytes); c != nil {
				certs = append(certs, c)
			}
		case label == "ENCRYPTED PRIVATE KEY":
			s.Keys = append(s.Keys, Key{open: func(password string) (crypto.PrivateKey, error) { return d.openKey(block.Bytes, password) }})
		case strings.HasSuffix(label, "PRIVATE KEY"):
			s.Keys = append(s.Keys, Key{open: func(string) (crypto.PrivateKey, error) { return parsePEMKey(block) }})
		}
		if len(certs) > maxEntries || len(s.Keys) > maxEntries {
			return nil, fmt.Errorf("it has more than %d entries", maxEntries)
		}
	}
	if len(certs) == 0 && len(s.Keys) == 0 && s.Unread == nil {
		return nil, errors.New("no PEM block found")
	}
	// PEM does not say what belongs together: a key's certificates are all of them, in their order.
	if len(s.Keys) == 0 {
		s.Trusted = certs
		return s, nil
	}
	for i := range s.Keys {
		s.Keys[i].Chain = certs
	}
	return s, nil
}

func parsePEMKey(b *pem.Block) (crypto.PrivateKey, error) {
	switch b.Type {
	case "RSA PRIVATE KEY":
		if key, err := x509.ParsePKCS1PrivateKey(b.Bytes); err == nil {
			return key, nil
		}
	case "EC PRIVATE KEY":
		if key, err := x509.ParseECPrivateKey(b.Bytes); err == nil {
			return key, nil
		}
	default:
		return parseKey(b.Bytes)
	}
	return nil, errors.New("the private key cannot be read")
}

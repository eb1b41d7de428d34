// Package pki makes certificates for tests: an authority that lives as long as the test, and
// what it signs, as PEM in the form that Kafka and the sidecars read.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA is a certificate authority.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Cert is a certificate with its key.
type Cert struct {
	// Chain and Key are PEM, Store is both in one text (ssl.keystore.location).
	Chain, Key, Store string
	Leaf              *x509.Certificate
}

// Subject says what a certificate is for. Its zero value with a Name is good for a day.
type Subject struct {
	Name                string   // common name
	Units               []string // organizational units
	Hosts               []string // localhost and 127.0.0.1 if nil
	NotBefore, NotAfter time.Time
}

// NewCA makes an authority.
func NewCA(tb testing.TB, name string) *CA {
	tb.Helper()
	key := newKey(tb)
	tmpl := &x509.Certificate{
		SerialNumber: serial(tb), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return &CA{cert: cert, key: key}
}

// PEM is what those who trust the authority are given (ssl.truststore.location).
func (ca *CA) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw}))
}

// Pool is PEM for Go.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Issue signs a certificate, for servers and clients.
func (ca *CA) Issue(tb testing.TB, s Subject) Cert {
	tb.Helper()
	if s.Hosts == nil {
		s.Hosts = []string{"localhost", "127.0.0.1"}
	}
	if s.NotBefore.IsZero() {
		s.NotBefore = time.Now().Add(-time.Hour)
	}
	if s.NotAfter.IsZero() {
		s.NotAfter = time.Now().Add(24 * time.Hour)
	}
	key := newKey(tb)
	tmpl := &x509.Certificate{
		SerialNumber: serial(tb), Subject: pkix.Name{CommonName: s.Name, OrganizationalUnit: s.Units},
		NotBefore: s.NotBefore, NotAfter: s.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range s.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		tb.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	kd, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	c := Cert{
		Leaf:  leaf,
		Chain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Key:   string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kd})),
	}
	c.Store = c.Key + c.Chain
	return c
}

// TLS is the certificate for Go.
func (c Cert) TLS(tb testing.TB) tls.Certificate {
	tb.Helper()
	cert, err := tls.X509KeyPair([]byte(c.Chain), []byte(c.Key))
	if err != nil {
		tb.Fatal(err)
	}
	return cert
}

// Write puts a text into a file of a folder, as a whole: who reads it meanwhile sees the
// old one or the new one.
func Write(tb testing.TB, dir, name, text string) string {
	tb.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		tb.Fatal(err)
	}
	return file
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func serial(tb testing.TB) *big.Int {
	tb.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		tb.Fatal(fmt.Errorf("serial number: %w", err))
	}
	return n
}

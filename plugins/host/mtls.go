package host

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
	"time"
)

// clientCertEnv is where go-plugin's AutoMTLS hands a plugin the host's certificate. The plugin's own
// comes back in its handshake line, and go-plugin takes it into the client's TLSConfig.
const clientCertEnv = "PLUGIN_CLIENT_CERT"

// hostIdentity is this side of AutoMTLS for one start of a plugin: the certificate as the plugin is
// given it, and what the host's client uses. go-plugin's own has a key on P-521, which gRPC's C core,
// and with it every plugin in Python, Ruby, PHP or C++, does not accept of a client; all else is the
// same, so that plugins built with go-plugin see no difference.
func hostIdentity() (certPEM []byte, cfg *tls.Config, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("key for a plugin's TLS: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, nil, fmt.Errorf("certificate for a plugin's TLS: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:      pkix.Name{CommonName: "localhost", Organization: []string{"mirror-sidecar"}},
		DNSNames:     []string{"localhost"},
		SerialNumber: serial,
		NotBefore:    now.Add(-time.Minute), NotAfter: now.AddDate(30, 0, 0), // as long as the process at least
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true, // it is its own root
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate for a plugin's TLS: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS12,
		ServerName:   "localhost",
	}, nil
}

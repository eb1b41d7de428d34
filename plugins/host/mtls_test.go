package host

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"
)

// gRPC's C core, which plugins in Python and other languages have, takes no client whose key is on P-521, as
// go-plugin's own are.
func TestHostIdentityIsTakenByOtherLanguages(t *testing.T) {
	text, cfg, err := hostIdentity()
	if err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode(text)
	if block == nil || len(rest) > 0 {
		t.Fatalf("not one certificate: %s", text)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if key, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		t.Errorf("its key is a %T, %v", cert.PublicKey, cert.PublicKeyAlgorithm)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: "localhost", KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Errorf("for usage %v: %v", usage, err)
		}
	}
	if cert.NotAfter.Before(time.Now().AddDate(10, 0, 0)) {
		t.Errorf("it ends on %v, and the sidecar may run for longer", cert.NotAfter)
	}
	if len(cfg.Certificates) != 1 || cfg.RootCAs != nil || cfg.InsecureSkipVerify {
		t.Error("the client would take a plugin without a certificate of its own")
	}
}

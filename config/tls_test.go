package config

import (
	"crypto/tls"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/pki"
)

// keystoreFile is one that package keystore's tests have: made by keytool or openssl, password store-pass.
func keystoreFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "certs", "keystore", "testdata", name+".b64"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestStores(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return pki.Write(t, dir, name, string(keystoreFile(t, name))) }
	chain := strings.SplitAfter(string(keystoreFile(t, "pkcs8-aes256.pem")), "-----END ENCRYPTED PRIVATE KEY-----")
	const wrong = "hunter2"
	for name, c := range map[string]struct {
		p    Properties
		want string // of the error
	}{
		"JKS":                        {Properties{"ssl.keystore.type": "JKS", "ssl.keystore.location": file("jdk25.jks"), "ssl.keystore.password": "store-pass", "ssl.truststore.location": file("jdk17-trust.jks")}, ""},
		"JKS, a password of its own": {Properties{"ssl.keystore.location": file("jdk17-keypass.jks"), "ssl.keystore.password": "store-pass", "ssl.key.password": "key-pass"}, ""},
		"PKCS12":                     {Properties{"ssl.keystore.type": "PKCS12", "ssl.keystore.location": file("jdk17.p12"), "ssl.keystore.password": "store-pass", "ssl.truststore.location": file("jdk25-trust.p12"), "ssl.truststore.password": "store-pass"}, ""},
		"PEM, encrypted":             {Properties{"ssl.keystore.type": "PEM", "ssl.keystore.location": file("pkcs8-aes256.pem"), "ssl.key.password": "store-pass"}, ""},
		"PEM inline, encrypted":      {Properties{"ssl.keystore.key": chain[0], "ssl.keystore.certificate.chain": chain[1], "ssl.key.password": "store-pass"}, ""},

		"wrong password":        {Properties{"ssl.keystore.location": file("jdk17.p12"), "ssl.keystore.password": wrong}, "password is wrong, or the file is damaged (ssl.keystore.password)"},
		"no password":           {Properties{"ssl.keystore.location": file("jdk17.p12")}, "a password is needed (ssl.keystore.password)"},
		"trust, wrong password": {Properties{"ssl.truststore.location": file("jdk17-trust.jks"), "ssl.truststore.password": wrong}, "(ssl.truststore.password)"},
		"key, wrong password":   {Properties{"ssl.keystore.location": file("jdk17-keypass.jks"), "ssl.keystore.password": "store-pass"}, "ssl.key.password if the key has one of its own"},
		"PEM, wrong password":   {Properties{"ssl.keystore.location": file("pkcs8-aes256.pem"), "ssl.key.password": wrong}, "(ssl.key.password)"},
		"PEM, no password":      {Properties{"ssl.keystore.location": file("pkcs8-aes256.pem")}, "a password is needed (ssl.key.password)"},
		"PEM with a store's":    {Properties{"ssl.keystore.location": file("plain.pem"), "ssl.keystore.password": wrong}, "ssl.keystore.password: there is no password for PEM, whose key has ssl.key.password"},
		"no key":                {Properties{"ssl.keystore.location": file("jdk17-trust.p12"), "ssl.keystore.password": "store-pass"}, "there is no private key in it"},
		"PKCS12, not PEM":       {Properties{"ssl.keystore.type": "PEM", "ssl.keystore.location": file("jdk17.p12"), "ssl.keystore.password": wrong}, "this is a PKCS12 file, not PEM: set ssl.keystore.type=PKCS12"},
		"PEM, not JKS":          {Properties{"ssl.truststore.type": "jks", "ssl.truststore.location": file("plain.pem")}, "this is a PEM file, not JKS: set ssl.truststore.type=PEM"},
		"inline is PEM":         {Properties{"ssl.truststore.type": "JKS", "ssl.truststore.certificates": chain[1]}, "these are PEM, but ssl.truststore.type is JKS"},
		"another type":          {Properties{"ssl.keystore.type": "BCFKS", "ssl.keystore.location": file("jdk17.p12")}, `"BCFKS" is not supported, JKS, PKCS12 and PEM are`},
		"the file is not there": {Properties{"ssl.keystore.location": dir + "/none.jks"}, "none.jks"},
		"an old suite":          {Properties{"ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_SHA"}, "supported are TLS_AES_128_GCM_SHA256"},
		"some of TLS 1.3":       {Properties{"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "add TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256"},
		"suites of no version":  {Properties{"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ssl.enabled.protocols": "TLSv1.3"}, "none of them is of a version"},
		"a version of long ago": {Properties{"ssl.enabled.protocols": "TLSv1.1"}, "neither TLSv1.2 nor TLSv1.3"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := tlsConfig(c.p)
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), wrong) {
				t.Errorf("the error shows a password: %v", err)
			}
			if err == nil && (len(cfg.Certificates) != 1 || cfg.Certificates[0].Leaf.Subject.CommonName != "one") {
				t.Errorf("%+v", cfg.Certificates)
			}
		})
	}
}

// TestStoresOfTests: what tests on real brokers make without Java's tools is read as what these make.
func TestStoresOfTests(t *testing.T) {
	ca, other := pki.NewCA(t, "a"), pki.NewCA(t, "b")
	own := ca.Issue(t, pki.Subject{Name: "own"})
	dir := t.TempDir()
	cfg, err := tlsConfig(Properties{
		"ssl.keystore.location": pki.Write(t, dir, "own.jks", own.JKS(t, "one")), "ssl.keystore.password": "one",
		"ssl.truststore.location": pki.Write(t, dir, "trust.jks", pki.JKSTrust("two", ca, other)), "ssl.truststore.password": "two",
	})
	if err != nil {
		t.Fatal(err)
	}
	both := ca.Pool()
	both.AppendCertsFromPEM([]byte(other.PEM()))
	if !cfg.RootCAs.Equal(both) || !cfg.Certificates[0].Leaf.Equal(own.Leaf) {
		t.Errorf("%+v", cfg)
	}
}

func TestCipherSuites(t *testing.T) {
	const all13 = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
	const one = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
	for name, c := range map[string]struct {
		suites   string
		min, max uint16
		n        int
	}{
		"any":        {"", tls.VersionTLS12, tls.VersionTLS13, 0},
		"of both":    {all13 + "," + one, tls.VersionTLS12, tls.VersionTLS13, 1},
		"of the old": {one, tls.VersionTLS12, tls.VersionTLS12, 1},
		"of the new": {all13, tls.VersionTLS13, tls.VersionTLS13, 0},
	} {
		cfg, err := tlsConfig(Properties{"ssl.cipher.suites": c.suites})
		if err != nil || cfg.MinVersion != c.min || cfg.MaxVersion != c.max || len(cfg.CipherSuites) != c.n {
			t.Errorf("%s: %v, %+v", name, err, cfg)
		}
	}
}

package keystore

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	storePass = "store-pass"
	keyPass   = "key-pass"
)

// stored is a store that testdata/make.sh has written.
func stored(tb testing.TB, name string) []byte {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".b64"))
	if err != nil {
		tb.Fatal(err)
	}
	b, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestKeys(t *testing.T) {
	for name, c := range map[string]struct {
		format string
		pass   string // of the key, if not the store's
		keys   int
	}{
		"openssl.p12":             {keys: 1},
		"openssl-legacy.p12":      {keys: 1, format: "pkcs12"},
		"openssl-3des.p12":        {keys: 1},
		"openssl-aes128.p12":      {keys: 1},
		"openssl-nomac.p12":       {keys: 1},
		"jdk17.p12":               {keys: 2, format: "JKS"}, // each stands for the other, as in Java
		"jdk17-legacy.p12":        {keys: 2, pass: "another, which PKCS12 has not"},
		"jdk17.jks":               {keys: 2, format: "PKCS12"},
		"jdk17-keypass.jks":       {keys: 2, pass: keyPass},
		"jdk25.p12":               {keys: 2},
		"jdk25-legacy.p12":        {keys: 2},
		"jdk25.jks":               {keys: 2, format: "JKS"},
		"jdk25-keypass.jks":       {keys: 2, pass: keyPass},
		"pkcs8-aes256.pem":        {keys: 1, format: "PEM"},
		"pkcs8-aes128-sha512.pem": {keys: 1},
		"pkcs8-des3.pem":          {keys: 1},
		"pkcs8-v1.pem":            {keys: 1},
		"plain.pem":               {keys: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Read(stored(t, name), c.format, storePass)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Keys) != c.keys {
				t.Fatalf("%d keys, want %d", len(s.Keys), c.keys)
			}
			first, err := s.First()
			if err != nil {
				t.Fatal(err)
			}
			pass := c.pass
			if pass == "" {
				pass = storePass
			}
			cert, err := first.Open(pass)
			if err != nil {
				t.Fatal(err)
			}
			if got := cert.Leaf.Subject.CommonName; got != "one" || len(cert.Certificate) != 2 || s.Format != PEM && first.Alias != "one" {
				t.Errorf("%s, alias %q, with a chain of %d", got, first.Alias, len(cert.Certificate))
			}
			if c.keys == 2 {
				if cert, err := s.Keys[1].Open(storePass); err != nil || cert.Leaf.Subject.CommonName != "two" {
					t.Errorf("the second: %v", err)
				}
			}
			if s.Format == PEM && name != "plain.pem" || s.Format == JKS || s.Format == PKCS12 && c.pass == "" {
				if _, err := first.Open("wrong"); s.Format != PKCS12 && !errors.Is(err, ErrPassword) {
					t.Errorf("a wrong password for the key: %v", err)
				}
			}
		})
	}
}

func TestTrust(t *testing.T) {
	for name, want := range map[string]string{
		"openssl-trust.p12": "authority", "jdk17-trust.p12": "authority", "jdk17-trust.jks": "authority",
		"jdk25-trust.p12": "authority", "jdk25-trust.jks": "authority",
		// What is trusted, and as in Java the keys' own.
		"jdk25.p12": "authority one two", "jdk17.jks": "authority one two", "plain.pem": "one authority",
	} {
		s, err := Read(stored(t, name), "", storePass)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, c := range s.Anchors() {
			got = append(got, c.Subject.CommonName)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
	// Without a password Java does not verify, and reads what is not encrypted.
	if s, err := Read(stored(t, "jdk17-trust.jks"), "", ""); err != nil || len(s.Anchors()) != 1 {
		t.Errorf("without a password: %v", err)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	jks, p12 := stored(t, "jdk17.jks"), stored(t, "jdk25.p12")
	hugeKey := append([]byte{0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 'k', 0, 0, 0, 0, 0, 0, 0, 0}, 0xff, 0xff, 0xff, 0xff)
	hugeKey = append(hugeKey, make([]byte, 100)...)
	many := append([]byte(nil), jks...)
	binary.BigEndian.PutUint32(many[8:], 0xffffffff)
	for name, c := range map[string]struct {
		b            []byte
		format, pass string
		want         string
		is           error
	}{
		"JKS, wrong password":         {b: jks, pass: "wrong", is: ErrPassword},
		"PKCS12, wrong password":      {b: p12, pass: "wrong", is: ErrPassword},
		"PKCS12, old, wrong password": {b: stored(t, "openssl-legacy.p12"), pass: "wrong", is: ErrPassword},
		"PKCS12, no password":         {b: p12, is: ErrNoPassword},
		"PEM is a store":              {b: p12, format: "PEM", pass: storePass, want: "this is a PKCS12 file, not PEM"},
		"JKS is PEM":                  {b: stored(t, "plain.pem"), format: "JKS", want: "this is a PEM file, not JKS"},
		"nothing":                     {b: []byte("hello"), want: "this is no PEM, PKCS12 or JKS file"},
		"empty":                       {want: "this is no PEM, PKCS12 or JKS file"},
		"another type":                {b: jks, format: "JCEKS", pass: storePass, want: "JKS, PKCS12 and PEM can"},
		"JKS, cut":                    {b: jks[:len(jks)/2], want: "the file ends within an entry"},
		"JKS, a huge key":             {b: hugeKey, want: "the file ends within an entry"},
		"JKS, many entries":           {b: many, want: "more than 10000 entries"},
		"PKCS12, cut":                 {b: p12[:len(p12)/2], pass: storePass, want: "not built as it must be"},
		"PEM, a block without an end": {b: []byte("-----BEGIN CERTIFICATE-----\nMII"), want: "does not end"},
		"PEM, of before PKCS8":        {b: stored(t, "traditional.pem"), want: "openssl pkcs8 -topk8"},
		"too large":                   {b: make([]byte, maxFile+1), want: "larger than"},
	} {
		_, err := Read(c.b, c.format, c.pass)
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s %v", name, err, c.want, c.is)
		}
	}
	scrypt, err := Read(stored(t, "pkcs8-scrypt.pem"), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scrypt.Keys[0].Open(storePass); err == nil || !strings.Contains(err.Error(), "write it anew") {
		t.Errorf("scrypt: %v", err)
	}
	trust, err := Read(stored(t, "jdk17-trust.p12"), "", storePass)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trust.First(); !errors.Is(err, ErrNoKey) {
		t.Errorf("no key: %v", err)
	}
	encrypted, err := Read(stored(t, "pkcs8-aes256.pem"), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := encrypted.Keys[0].Open(""); !errors.Is(err, ErrNoPassword) {
		t.Errorf("encrypted PEM without a password: %v", err)
	}
	noSum, err := Read(stored(t, "openssl-nomac.p12"), "", "wrong")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := noSum.Keys[0].Open("wrong"); !errors.Is(err, ErrPassword) {
		t.Errorf("a wrong password, which no checksum tells: %v", err)
	}
	// A store that says to hash its password for hours.
	d := decrypter{iterations: 1000}
	if _, err := d.readPKCS12(p12, storePass); err == nil || !strings.Contains(err.Error(), "at most 1000") {
		t.Errorf("iterations: %v", err)
	}
}

// TestOneOddCertificate: it does not keep the others from being trusted.
func TestOneOddCertificate(t *testing.T) {
	odd := []byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
	s, err := Read(append(odd, stored(t, "plain.pem")...), "", "")
	if err != nil || len(s.Anchors()) != 2 || s.Unread == nil {
		t.Errorf("%v, %+v", err, s)
	}
	if s, err = Read(odd, "", ""); err != nil || len(s.Anchors()) != 0 || s.Unread == nil {
		t.Errorf("alone: %v, %+v", err, s)
	}
}

// FuzzRead: whatever a file holds, it is read or refused, with memory and time of its own size.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.b64")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		f.Add(stored(f, strings.TrimSuffix(filepath.Base(file), ".b64")), "")
	}
	f.Fuzz(func(t *testing.T, b []byte, password string) {
		for _, pass := range []string{storePass, password} {
			s, err := read(b, "", pass, 3000)
			if err != nil {
				continue
			}
			s.Anchors()
			for _, k := range s.Keys[:min(3, len(s.Keys))] {
				if cert, err := k.Open(pass); err == nil && (cert.PrivateKey == nil || len(cert.Certificate) == 0) {
					t.Errorf("half a certificate: %+v", cert)
				}
			}
		}
	})
}

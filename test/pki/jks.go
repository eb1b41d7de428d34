package pki

import (
	"crypto/rand"
	"crypto/sha1"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"encoding/pem"
	"testing"
	"unicode/utf16"
)

// jks is a Java key store in the making: Go has no keytool, and starting Java's takes a second each time.
type jks struct {
	entries []byte
	count   uint32
}

// JKS is the certificate with its key as a Java key store, under the alias "own", the key under the same
// password.
func (c Cert) JKS(tb testing.TB, password string) string {
	tb.Helper()
	key, _ := pem.Decode([]byte(c.Key))
	salt := make([]byte, sha1.Size)
	if _, err := rand.Read(salt); err != nil {
		tb.Fatal(err)
	}
	// Sun's own protection: a stream of hashes, each of the password and the one before.
	data, digest := append([]byte(nil), salt...), salt
	for i, b := range key.Bytes {
		if i%sha1.Size == 0 {
			digest = jksSum(password, digest)
		}
		data = append(data, b^digest[i%sha1.Size])
	}
	data = append(data, jksSum(password, key.Bytes)...)
	encrypted, err := asn1.Marshal(struct {
		Algorithm pkix.AlgorithmIdentifier
		Data      []byte
	}{pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 42, 2, 17, 1, 1}, Parameters: asn1.NullRawValue}, data})
	if err != nil {
		tb.Fatal(err)
	}
	var j jks
	j.entry(1, "own")
	j.bytes(encrypted)
	j.number(1) // certificates
	j.certificate([]byte(c.Chain))
	return j.signed(password)
}

// JKSTrust is a Java trust store of authorities.
func JKSTrust(password string, authorities ...*CA) string {
	var j jks
	for i, ca := range authorities {
		j.entry(2, "authority-"+string(rune('a'+i)))
		j.certificate([]byte(ca.PEM()))
	}
	return j.signed(password)
}

func (j *jks) number(n uint32) { j.entries = binary.BigEndian.AppendUint32(j.entries, n) }

func (j *jks) text(s string) {
	j.entries = append(binary.BigEndian.AppendUint16(j.entries, uint16(len(s))), s...)
}

func (j *jks) bytes(b []byte) {
	j.number(uint32(len(b)))
	j.entries = append(j.entries, b...)
}

func (j *jks) entry(kind uint32, alias string) {
	j.count++
	j.number(kind)
	j.text(alias)
	j.entries = append(j.entries, make([]byte, 8)...) // made in 1970
}

func (j *jks) certificate(text []byte) {
	block, _ := pem.Decode(text)
	j.text("X.509")
	j.bytes(block.Bytes)
}

func (j *jks) signed(password string) string {
	out := binary.BigEndian.AppendUint32([]byte{0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2}, j.count)
	out = append(out, j.entries...)
	return string(append(out, jksSum(password, []byte("Mighty Aphrodite"), out)...))
}

func jksSum(password string, parts ...[]byte) []byte {
	h := sha1.New()
	for _, u := range utf16.Encode([]rune(password)) {
		h.Write(binary.BigEndian.AppendUint16(nil, u))
	}
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

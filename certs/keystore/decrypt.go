package keystore

import (
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/des" //nolint:gosec // old stores have it; nothing is encrypted here
	"crypto/pbkdf2"
	"crypto/sha1" //nolint:gosec // as above
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"hash"
	"unicode/utf16"
)

// maxIterations is how often a password is hashed at most, which is Java's own bound: seconds of
// a processor's time. keytool writes 10,000, openssl 2048.
const maxIterations = 5_000_000

// maxSalt bounds a salt; there are none above 64 bytes.
const maxSalt = 1024

// decrypter takes passwords' encryption off, in all the ways that stores have it.
type decrypter struct{ iterations int }

func oidPKCS5(n ...int) asn1.ObjectIdentifier {
	return append(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5}, n...)
}

type (
	pbeParams struct {
		Salt       []byte
		Iterations int
	}
	pbes2Params  struct{ KDF, Cipher pkix.AlgorithmIdentifier }
	pbkdf2Params struct {
		Salt       []byte
		Iterations int
		KeyLength  int                      `asn1:"optional"`
		PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
	}
)

func (d decrypter) tooMany(n int) error {
	return fmt.Errorf("its password is hashed %d times, at most %d are accepted", n, d.iterations)
}

// openKey decrypts PKCS#8's EncryptedPrivateKeyInfo.
func (d decrypter) openKey(der []byte, password string) (crypto.PrivateKey, error) {
	if password == "" {
		return nil, ErrNoPassword
	}
	var info encryptedKey
	if err := unmarshal(der, &info); err != nil {
		return nil, fmt.Errorf("the encrypted key: %w", err)
	}
	plain, err := d.decrypt(info.Algorithm, info.Data, password)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(plain)
	if err != nil {
		// Padding alone is right once in 256 times.
		return nil, fmt.Errorf("%w (%w)", ErrPassword, err)
	}
	return key, nil
}

func (d decrypter) decrypt(with pkix.AlgorithmIdentifier, data []byte, password string) ([]byte, error) {
	block, iv, err := d.cipher(with, password)
	if err != nil {
		return nil, err
	}
	size := block.BlockSize()
	if len(data) == 0 || len(data)%size != 0 || len(iv) != size {
		return nil, errors.New("what is encrypted is cut off")
	}
	out := make([]byte, len(data))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(out, data)
	pad := int(out[len(out)-1])
	if pad == 0 || pad > size {
		return nil, ErrPassword
	}
	for _, b := range out[len(out)-pad:] {
		if int(b) != pad {
			return nil, ErrPassword
		}
	}
	return out[:len(out)-pad], nil
}

func (d decrypter) cipher(with pkix.AlgorithmIdentifier, password string) (cipher.Block, []byte, error) {
	oid := with.Algorithm
	if oid.Equal(oidPKCS5(13)) {
		return d.pbes2(with.Parameters.FullBytes, password)
	}
	var keySize int
	var build func(key []byte) (cipher.Block, error)
	triple := func(key []byte) (cipher.Block, error) { return des.NewTripleDESCipher(key) } //nolint:gosec // as above
	switch {
	case oid.Equal(oidPKCS12(1, 3)):
		keySize, build = 24, triple
	case oid.Equal(oidPKCS12(1, 4)):
		keySize, build = 16, func(key []byte) (cipher.Block, error) { return triple(append(key[:16:16], key[:8]...)) }
	case oid.Equal(oidPKCS12(1, 5)):
		keySize, build = 16, newRC2
	case oid.Equal(oidPKCS12(1, 6)):
		keySize, build = 5, newRC2
	default:
		return nil, nil, unknownCipher(oid)
	}
	var p pbeParams
	if err := unmarshal(with.Parameters.FullBytes, &p); err != nil {
		return nil, nil, fmt.Errorf("how it is encrypted: %w", err)
	}
	if err := d.check(p.Salt, p.Iterations); err != nil {
		return nil, nil, err
	}
	secret := bmp(password)
	block, err := build(deriveKey(sha1.New, sha1.BlockSize, secret, p.Salt, p.Iterations, 1, keySize))
	return block, deriveKey(sha1.New, sha1.BlockSize, secret, p.Salt, p.Iterations, 2, 8), err
}

func unknownCipher(oid asn1.ObjectIdentifier) error {
	return fmt.Errorf("it is encrypted with %v, which is not supported; write it anew with: openssl pkcs8 -topk8 -v2 aes-256-cbc, or openssl pkcs12 -export", oid)
}

func (d decrypter) check(salt []byte, iterations int) error {
	if iterations < 1 || iterations > d.iterations {
		return d.tooMany(iterations)
	}
	if len(salt) == 0 || len(salt) > maxSalt {
		return errors.New("its salt has no such length")
	}
	return nil
}

func (d decrypter) pbes2(params []byte, password string) (cipher.Block, []byte, error) {
	var p pbes2Params
	if err := unmarshal(params, &p); err != nil {
		return nil, nil, fmt.Errorf("how it is encrypted: %w", err)
	}
	var size int
	build := aes.NewCipher
	nist := asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1}
	switch oid := p.Cipher.Algorithm; {
	case oid.Equal(append(nist[:8:8], 2)):
		size = 16
	case oid.Equal(append(nist[:8:8], 22)):
		size = 24
	case oid.Equal(append(nist[:8:8], 42)):
		size = 32
	case oid.Equal(asn1.ObjectIdentifier{1, 2, 840, 113549, 3, 7}):
		size, build = 24, des.NewTripleDESCipher
	default:
		return nil, nil, unknownCipher(oid)
	}
	key, err := d.pbkdf2(p.KDF, password, size)
	if err != nil {
		return nil, nil, err
	}
	block, err := build(key)
	if err != nil {
		return nil, nil, err
	}
	var iv []byte
	if err := unmarshal(p.Cipher.Parameters.FullBytes, &iv); err != nil {
		return nil, nil, fmt.Errorf("how it is encrypted: %w", err)
	}
	return block, iv, nil
}

// pbkdf2 makes a key of size bytes, or of as many as it says itself if that is 0.
func (d decrypter) pbkdf2(kdf pkix.AlgorithmIdentifier, password string, size int) ([]byte, error) {
	var p pbkdf2Params
	if !kdf.Algorithm.Equal(oidPKCS5(12)) {
		return nil, unknownCipher(kdf.Algorithm)
	}
	if err := unmarshal(kdf.Parameters.FullBytes, &p); err != nil {
		return nil, fmt.Errorf("how its password is hashed: %w", err)
	}
	if err := d.check(p.Salt, p.Iterations); err != nil {
		return nil, err
	}
	if size == 0 {
		size = p.KeyLength
	}
	if size < 1 || size > sha512.Size {
		return nil, errors.New("how its password is hashed: there are no keys of this length")
	}
	h := sha1.New
	if len(p.PRF.Algorithm) > 0 {
		var err error
		if h, err = hmacOf(p.PRF.Algorithm); err != nil {
			return nil, err
		}
	}
	return pbkdf2.Key(h, password, p.Salt, p.Iterations, size)
}

// pbmac1 is the hash and the key of a store's checksum as of RFC 9579.
func (d decrypter) pbmac1(params []byte, password string) (func() hash.Hash, []byte, error) {
	var p pbes2Params // the same two
	if err := unmarshal(params, &p); err != nil {
		return nil, nil, fmt.Errorf("PKCS12: its checksum: %w", err)
	}
	h, err := hmacOf(p.Cipher.Algorithm)
	if err != nil {
		return nil, nil, err
	}
	key, err := d.pbkdf2(p.KDF, password, 0)
	return h, key, err
}

// hmacOf are the HMACs of RFC 8018.
func hmacOf(oid asn1.ObjectIdentifier) (func() hash.Hash, error) {
	hashes := map[int]func() hash.Hash{7: sha1.New, 8: sha256.New224, 9: sha256.New, 10: sha512.New384, 11: sha512.New, 12: sha512.New512_224, 13: sha512.New512_256}
	if len(oid) == 6 && oid[:5].Equal(asn1.ObjectIdentifier{1, 2, 840, 113549, 2}) && hashes[oid[5]] != nil {
		return hashes[oid[5]], nil
	}
	return nil, fmt.Errorf("its password is hashed with %v, which is not supported", oid)
}

// hashOf returns a hash and the size of its blocks.
func hashOf(oid asn1.ObjectIdentifier) (func() hash.Hash, int, error) {
	nist := asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2}
	switch {
	case oid.Equal(asn1.ObjectIdentifier{1, 3, 14, 3, 2, 26}):
		return sha1.New, sha1.BlockSize, nil
	case oid.Equal(append(nist[:8:8], 1)):
		return sha256.New, sha256.BlockSize, nil
	case oid.Equal(append(nist[:8:8], 2)):
		return sha512.New384, sha512.BlockSize, nil
	case oid.Equal(append(nist[:8:8], 3)):
		return sha512.New, sha512.BlockSize, nil
	case oid.Equal(append(nist[:8:8], 4)):
		return sha256.New224, sha256.BlockSize, nil
	}
	return nil, 0, fmt.Errorf("hash %v is not supported", oid)
}

// bmp is a password as PKCS#12 hashes it: two bytes a character, and two of zero.
func bmp(password string) []byte {
	var out []byte
	for _, u := range utf16.Encode([]rune(password)) {
		out = append(out, byte(u>>8), byte(u))
	}
	return append(out, 0, 0)
}

// deriveKey is RFC 7292, appendix B.2: u and v there are the hash's size and its block's.
func deriveKey(h func() hash.Hash, v int, password, salt []byte, iterations int, purpose byte, size int) []byte {
	fill := func(b []byte) []byte {
		if len(b) == 0 {
			return nil
		}
		out := make([]byte, (len(b)+v-1)/v*v)
		for i := range out {
			out[i] = b[i%len(b)]
		}
		return out
	}
	diversifier := make([]byte, v)
	for i := range diversifier {
		diversifier[i] = purpose
	}
	in := append(fill(salt), fill(password)...)
	var out []byte
	for {
		sum := h()
		sum.Write(diversifier)
		sum.Write(in)
		a := sum.Sum(nil)
		for range iterations - 1 {
			sum.Reset()
			sum.Write(a)
			a = sum.Sum(a[:0])
		}
		if out = append(out, a...); len(out) >= size {
			return out[:size]
		}
		b := make([]byte, v)
		for i := range b {
			b[i] = a[i%len(a)]
		}
		// Each block of in becomes itself plus b plus one.
		for at := 0; at < len(in); at += v {
			carry := 1
			for i := v - 1; i >= 0; i-- {
				carry += int(in[at+i]) + int(b[i])
				in[at+i] = byte(carry)
				carry >>= 8
			}
		}
	}
}

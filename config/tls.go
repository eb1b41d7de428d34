package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/certs/keystore"
)

// tlsKeys are Kafka's keys of TLS, with its names and, but for the stores' types, its defaults: a
// store without a type is what it looks like.
func tlsKeys() []Key {
	return []Key{
		{Name: "ssl.truststore.type", Doc: "JKS, PKCS12 or PEM; empty: what the file looks like"},
		{Name: "ssl.truststore.certificates", Doc: "trusted certificates, PEM"},
		{Name: "ssl.truststore.location", Doc: "file of trusted certificates: JKS, PKCS12 or PEM"},
		{Name: "ssl.truststore.password", Doc: "password of a JKS or PKCS12 file of trusted certificates", secret: true},
		{Name: "ssl.keystore.type", Doc: "JKS, PKCS12 or PEM; empty: what the file looks like"},
		{Name: "ssl.keystore.certificate.chain", Doc: "own certificate with its chain, PEM"},
		{Name: "ssl.keystore.key", Doc: "key of the own certificate, PEM", secret: true},
		{Name: "ssl.keystore.location", Doc: "file with the own certificate and its key: JKS, PKCS12 or PEM; of several keys the first is used"},
		{Name: "ssl.keystore.password", Doc: "password of a JKS or PKCS12 file with the own certificate", secret: true},
		{Name: "ssl.key.password", Doc: "password of the key, of an encrypted PEM key too; empty: that of the keystore", secret: true},
		{Name: "ssl.endpoint.identification.algorithm", Default: "https", Doc: "https, or empty to accept any host name"},
		{Name: "ssl.enabled.protocols", Default: "TLSv1.2,TLSv1.3", Doc: "TLS versions"},
		{Name: "ssl.cipher.suites", Doc: "cipher suites of TLS, by their standard names; empty: all that are secure"},
	}
}

// keystoreKeys are the keys of an own certificate.
func keystoreKeys() []string {
	return []string{"ssl.keystore.type", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password"}
}

// truststoreKeys are the keys of whom to trust.
func truststoreKeys() []string {
	return []string{"ssl.truststore.type", "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password"}
}

// TLSConfig turns Kafka's keys into settings of a TLS client, for those who speak to others than brokers.
func TLSConfig(p Properties) (*tls.Config, error) { return tlsConfig(p) }

func tlsConfig(p Properties) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	trusted, err := trustStore(p)
	if err != nil {
		return nil, err
	}
	if trusted != nil {
		cfg.RootCAs = x509.NewCertPool()
		for _, c := range trusted {
			cfg.RootCAs.AddCert(c)
		}
	}
	cert, err := ownCertificate(p)
	if err != nil {
		return nil, err
	}
	if cert != nil {
		cfg.Certificates = []tls.Certificate{*cert}
	}
	if v, given := p["ssl.endpoint.identification.algorithm"]; given && strings.TrimSpace(v) == "" {
		anyName(cfg)
	} else if given && !strings.EqualFold(strings.TrimSpace(v), "https") {
		return nil, fmt.Errorf("ssl.endpoint.identification.algorithm: %q is neither https nor empty", v)
	}
	if err := tlsVersions(cfg, p.or("ssl.enabled.protocols", "TLSv1.2,TLSv1.3")); err != nil {
		return nil, err
	}
	if err := cipherSuites(cfg, p["ssl.cipher.suites"]); err != nil {
		return nil, err
	}
	return cfg, nil
}

// anyName has the chain verified without the name.
func anyName(cfg *tls.Config) {
	roots := cfg.RootCAs
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return errors.New("the server sent no certificate")
		}
		pool := x509.NewCertPool()
		for _, c := range cs.PeerCertificates[1:] {
			pool.AddCert(c)
		}
		_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: pool})
		return err
	}
}

// trustStore returns nil for that of the system.
func trustStore(p Properties) ([]*x509.Certificate, error) {
	s, key, err := store(p, "ssl.truststore", p["ssl.truststore.certificates"])
	if s == nil || err != nil {
		return nil, err
	}
	trusted := s.Anchors()
	if len(trusted) == 0 {
		return nil, errors.Join(fmt.Errorf("%s: no certificate found in it", key), s.Unread)
	}
	return trusted, nil
}

// ownCertificate returns nil if there is none.
func ownCertificate(p Properties) (*tls.Certificate, error) {
	inline := ""
	if chain, key := p["ssl.keystore.certificate.chain"], p["ssl.keystore.key"]; chain != "" && key != "" {
		inline = chain + "\n" + key
	} else if chain != "" || key != "" {
		return nil, errors.New("ssl.keystore: certificate chain and key are needed together")
	}
	s, key, err := store(p, "ssl.keystore", inline)
	if s == nil || err != nil {
		return nil, err
	}
	first, err := s.First()
	if err != nil {
		return nil, fmt.Errorf("%s: %w; a certificate and its key are needed together", key, err)
	}
	// Kafka takes the store's password where the key has none of its own.
	password, from := p["ssl.key.password"], "ssl.key.password"
	if password == "" && s.Format != keystore.PEM {
		password, from = p["ssl.keystore.password"], "ssl.keystore.password, or ssl.key.password if the key has one of its own"
	}
	cert, err := first.Open(password)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: its key: %w", key, aboutPassword(err, from)), s.Unread)
	}
	return &cert, nil
}

// store reads one of a configuration's two stores, and returns nil if there is none. It
// says in which key it was.
func store(p Properties, prefix, inline string) (s *keystore.Store, key string, err error) {
	format, location, password := strings.TrimSpace(p[prefix+".type"]), strings.TrimSpace(p[prefix+".location"]), p[prefix+".password"]
	if format != "" && !slices.Contains([]string{"JKS", "PKCS12", "PEM"}, strings.ToUpper(format)) {
		return nil, "", fmt.Errorf("%s.type: %q is not supported, JKS, PKCS12 and PEM are", prefix, format)
	}
	switch {
	case inline != "":
		key = map[string]string{"ssl.truststore": "ssl.truststore.certificates", "ssl.keystore": "ssl.keystore.certificate.chain and ssl.keystore.key"}[prefix]
		if format != "" && !strings.EqualFold(format, "PEM") {
			return nil, "", fmt.Errorf("%s: these are PEM, but %s.type is %s", key, prefix, format)
		}
		if s, err = keystore.ReadPEM(inline); err != nil {
			err = fmt.Errorf("%s: %w", key, err)
		}
	case location != "":
		key = prefix + ".location"
		if s, err = keystore.ReadFile(location, format, password); err != nil {
			if wrong, ok := errors.AsType[*keystore.FormatError](err); ok && wrong.Is != "" {
				err = fmt.Errorf("%w: set %s.type=%s", err, prefix, wrong.Is)
			}
			err = fmt.Errorf("%s: %s: %w", key, location, aboutPassword(err, prefix+".password"))
		}
		key += ": " + location
	}
	if err != nil {
		return nil, "", err
	}
	if s != nil && s.Format == keystore.PEM && password != "" {
		// Kafka refuses it as well: who gives it may believe that it protects something.
		instead := ""
		if prefix == "ssl.keystore" {
			instead = ", whose key has ssl.key.password if it is encrypted"
		}
		return nil, "", fmt.Errorf("%s.password: there is no password for PEM%s", prefix, instead)
	}
	return s, key, nil
}

// aboutPassword names the key that has the password with which something is wrong.
func aboutPassword(err error, key string) error {
	if errors.Is(err, keystore.ErrPassword) || errors.Is(err, keystore.ErrNoPassword) {
		return fmt.Errorf("%w (%s)", err, key)
	}
	return err
}

func tlsVersions(cfg *tls.Config, list string) error {
	lo, hi := uint16(0xffff), uint16(0)
	for _, v := range SplitList(list) {
		var n uint16
		switch v {
		case "TLSv1.2":
			n = tls.VersionTLS12
		case "TLSv1.3":
			n = tls.VersionTLS13
		default:
			return fmt.Errorf("ssl.enabled.protocols: %q is neither TLSv1.2 nor TLSv1.3", v)
		}
		lo, hi = min(lo, n), max(hi, n)
	}
	cfg.MinVersion, cfg.MaxVersion = lo, hi
	return nil
}

// cipherSuites keeps to a list. Those of TLS 1.3 cannot be chosen from here: a list has all of them
// or none, and without any there is no TLS 1.3, as in Java.
func cipherSuites(cfg *tls.Config, list string) error {
	names := SplitList(list)
	if len(names) == 0 {
		return nil
	}
	var modern, supported []string
	byName := map[string]*tls.CipherSuite{}
	for _, c := range tls.CipherSuites() {
		byName[c.Name] = c
		supported = append(supported, c.Name)
		if slices.Contains(c.SupportedVersions, tls.VersionTLS13) {
			modern = append(modern, c.Name)
		}
	}
	var missing []string
	for _, name := range modern {
		if !slices.Contains(names, name) {
			missing = append(missing, name)
		}
	}
	for _, name := range names {
		switch c := byName[name]; {
		case c == nil:
			return fmt.Errorf("ssl.cipher.suites: %q is not supported; supported are %s", name, strings.Join(supported, ", "))
		case !slices.Contains(modern, name):
			cfg.CipherSuites = append(cfg.CipherSuites, c.ID)
		}
	}
	switch {
	case len(missing) == len(modern):
		cfg.MaxVersion = min(cfg.MaxVersion, tls.VersionTLS12)
	case len(missing) > 0 && cfg.MaxVersion >= tls.VersionTLS13:
		return fmt.Errorf("ssl.cipher.suites: TLS 1.3's are taken all or none here: add %s, or name none of them, which leaves TLS 1.2", strings.Join(missing, ", "))
	}
	if len(cfg.CipherSuites) == 0 {
		cfg.MinVersion = max(cfg.MinVersion, tls.VersionTLS13)
	}
	if cfg.MinVersion > cfg.MaxVersion {
		return errors.New("ssl.cipher.suites: none of them is of a version in ssl.enabled.protocols")
	}
	return nil
}

package config

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// first is what a mechanism sends first, or its error.
func first(t *testing.T, p Properties, files Providers) (string, error) {
	t.Helper()
	m, err := saslMechanism(p, files)
	if err != nil {
		return "", err
	}
	_, text, err := m.Authenticate(t.Context(), "h:1")
	return string(text), err
}

func TestOAuthKeys(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, secret, _ := r.BasicAuth(); id != "id" || secret != "canary" || r.FormValue("scope") != "s" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"access_token":"from-there","expires_in":60}`))
	}))
	defer srv.Close()
	const module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
	for name, c := range map[string]struct {
		p          Properties
		want, fail string
	}{
		"file":               {p: Properties{keyTokenURL: "file://" + token}, want: "n,,\x01auth=Bearer from-a-file\x01\x01"},
		"extensions":         {p: Properties{keyTokenURL: "file://" + token, "sasl.jaas.config": module + `extension_logicalCluster="lkc-1";`}, want: "from-a-file\x01logicalCluster=lkc-1\x01\x01"},
		"keys":               {p: Properties{keyTokenURL: srv.URL, keyClientID: "id", keyClientSecret: "canary", keyScope: "s"}, want: "Bearer from-there"},
		"options":            {p: Properties{keyTokenURL: srv.URL, "sasl.jaas.config": module + `clientId="id" clientSecret="canary" scope="s";`}, want: "Bearer from-there"},
		"pasted class names": {p: Properties{keyTokenURL: srv.URL, keyClientID: "id", keyClientSecret: "canary", keyScope: "s", keyCallbacks: "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler", keyRetriever: "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever"}, want: "Bearer from-there"},
		"unsecured":          {p: Properties{"sasl.jaas.config": module + `unsecuredLoginStringClaim_sub="u" unsecuredLoginListClaim_scope=",a,b" unsecuredLoginNumberClaim_n="1";`}, want: "Bearer eyJhbGciOiJub25lIn0."},
		"wrong secret":       {p: Properties{keyTokenURL: srv.URL, keyClientID: "id", keyClientSecret: "canary-2", keyScope: "s"}, fail: "no token to log in with: token endpoint " + srv.URL + ": it answered 401"},
		"no secret":          {p: Properties{keyTokenURL: srv.URL, keyClientID: "id"}, fail: keyClientSecret},
		"nothing":            {p: Properties{}, fail: keyTokenURL},
		"no such file":       {p: Properties{keyTokenURL: "file://" + token + "x"}, fail: "there is no such file"},
		"relative file":      {p: Properties{keyTokenURL: "file:token"}, fail: "file:///"},
		"file on a host":     {p: Properties{keyTokenURL: "file://host/token"}, fail: "file:///"},
		"ftp":                {p: Properties{keyTokenURL: "ftp://h/x"}, fail: "none of https"},
		"other class":        {p: Properties{keyTokenURL: srv.URL, keyCallbacks: "com.example.Handler"}, fail: keyCallbacks},
		"assertion":          {p: Properties{keyTokenURL: srv.URL, keyRetriever: "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"}, fail: keyRetriever},
		"retriever of files": {p: Properties{keyTokenURL: srv.URL, keyRetriever: "FileJwtRetriever"}, fail: "does not fit"},
		"other module":       {p: Properties{"sasl.jaas.config": `a.PlainLoginModule required username="u" password="canary";`}, fail: "set sasl.mechanism to PLAIN"},
		"extension auth":     {p: Properties{keyTokenURL: "file://" + token, "sasl.jaas.config": module + `extension_auth="x";`}, fail: "extension_auth"},
		"extension's value":  {p: Properties{keyTokenURL: "file://" + token, "sasl.jaas.config": module + "extension_a=\"x\x01auth=y\";"}, fail: "extension_a"},
		"window":             {p: Properties{keyTokenURL: srv.URL, keyClientID: "id", keyClientSecret: "canary", keyWindow: "NaN"}, fail: keyWindow},
		"backoff":            {p: Properties{keyTokenURL: srv.URL, keyClientID: "id", keyClientSecret: "canary", keyBackoff: "100000"}, fail: keyMaxBackoff},
	} {
		t.Run(name, func(t *testing.T) {
			c.p["sasl.mechanism"] = "OAUTHBEARER"
			got, err := first(t, c.p, CallersProviders())
			if c.fail == "" && (err != nil || !strings.Contains(got, c.want)) {
				t.Errorf("%q, %v", got, err)
			}
			if c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail) || strings.Contains(err.Error(), "canary")) {
				t.Errorf("%v, want %q", err, c.fail)
			}
		})
	}
}

// TestEndpointsTrust: a token endpoint is trusted as Kafka does, and by its name also where brokers' names do not count.
func TestEndpointsTrust(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"access_token":"x"}`)) }))
	defer srv.Close()
	trust := filepath.Join(t.TempDir(), "trust.pem")
	if err := os.WriteFile(trust, []byte(pemOf(srv.Certificate().Raw)), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	const module = `OAuthBearerLoginModule required `
	for name, c := range map[string]struct {
		p    Properties
		fail string
	}{
		"the brokers'":    {p: Properties{"ssl.truststore.location": trust}},
		"its own":         {p: Properties{"sasl.jaas.config": module + `ssl.truststore.location="` + trust + `" ssl.truststore.type="PEM";`}},
		"nobody's":        {p: Properties{}, fail: "certificate"},
		"another name":    {p: Properties{"ssl.truststore.location": trust, "ssl.endpoint.identification.algorithm": "", keyTokenURL: "https://localhost:" + u.Port()}, fail: "certificate"},
		"no store at all": {p: Properties{"sasl.jaas.config": module + `ssl.truststore.location="/no/such";`}, fail: "sasl.jaas.config: ssl.truststore.location"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Properties{"sasl.mechanism": "OAUTHBEARER", keyTokenURL: srv.URL, keyClientID: "id", keyClientSecret: "s", keyMaxBackoff: "100"}
			for k, v := range c.p {
				p[k] = v
			}
			_, err := first(t, p, CallersProviders())
			if (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%v, want %q", err, c.fail)
			}
		})
	}
}

// TestMirrorsTokens: who may create a mirror has the sidecars read no file and ask no address that is not allowed.
func TestMirrorsTokens(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	allowed := Providers{AllowedPaths: []string{dir}, AllowedURLs: []string{"https://idp.example.com/token"}}
	for name, c := range map[string]struct {
		p       Properties
		v       Providers
		refused string
	}{
		"allowed file":     {p: Properties{keyTokenURL: "file://" + token}, v: allowed},
		"file":             {p: Properties{keyTokenURL: "file:///etc/passwd"}, v: allowed, refused: keyTokenURL},
		"no file allowed":  {p: Properties{keyTokenURL: "file://" + token}, refused: keyTokenURL},
		"allowed endpoint": {p: Properties{keyTokenURL: "https://idp.example.com/token"}, v: allowed},
		"another endpoint": {p: Properties{keyTokenURL: "http://169.254.169.254/token"}, v: allowed, refused: keyAllowedURLs},
		"its trust store": {
			p: Properties{keyTokenURL: "https://idp.example.com/token", "sasl.jaas.config": `OAuthBearerLoginModule required ssl.truststore.location="/etc/passwd";`},
			v: allowed, refused: "ssl.truststore.location",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Properties{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", keyClientID: "id", keyClientSecret: "${file:" + token + ":x}"}
			if c.v.AllowedPaths == nil {
				delete(p, keyClientSecret)
			} else if err := os.WriteFile(token, []byte("x=y"), 0o600); err != nil {
				t.Fatal(err)
			}
			for k, v := range c.p {
				p[k] = v
			}
			m := &Mirror{Bootstrap: []string{"h:1"}, Security: p}
			_, err := m.Options(c.v)
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%v, want %q", err, c.refused)
			}
		})
	}
}

func pemOf(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestOwnKeysAreTakenWhole: a link with a certificate, a trust or a login of its own has nothing of another link's.
func TestOwnKeysAreTakenWhole(t *testing.T) {
	from := Properties{
		"ssl.truststore.certificates": "inline", "ssl.keystore.location": "/a", "ssl.keystore.password": "p", "ssl.enabled.protocols": "TLSv1.3",
		"sasl.mechanism": "OAUTHBEARER", keyClientID: "id", keyClientSecret: "s", keyTokenURL: "https://h/t",
	}
	for name, c := range map[string]struct{ own, want Properties }{
		"trust": {
			own:  Properties{"ssl.truststore.location": "/b"},
			want: Properties{"ssl.truststore.location": "/b", "ssl.truststore.certificates": "", "ssl.keystore.location": "/a", "ssl.enabled.protocols": "TLSv1.3"},
		},
		"certificate": {
			own:  Properties{"ssl.keystore.certificate.chain": "c", "ssl.keystore.key": "k"},
			want: Properties{"ssl.keystore.location": "", "ssl.keystore.password": "", "ssl.truststore.certificates": "inline"},
		},
		"login": {
			own:  Properties{"sasl.jaas.config": "j"},
			want: Properties{keyClientID: "", keyClientSecret: "", keyTokenURL: "https://h/t", "sasl.mechanism": "OAUTHBEARER"},
		},
		"types alone": {
			own:  Properties{"ssl.truststore.type": "PEM", "ssl.keystore.type": "JKS"},
			want: Properties{"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "inline", "ssl.keystore.type": "JKS", "ssl.keystore.location": "/a", "ssl.keystore.password": "p"},
		},
		"nothing": {own: Properties{}, want: from},
	} {
		t.Run(name, func(t *testing.T) {
			inherit(c.own, from)
			for k, v := range c.want {
				if c.own[k] != v {
					t.Errorf("%s is %q, want %q", k, c.own[k], v)
				}
			}
		})
	}
}

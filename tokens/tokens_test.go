package tokens

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

const secret = "canary+secret/%"

// clock is moved by the test, and by what sleeps.
type clock struct{ at time.Time }

func (c *clock) source(fetch Fetch) *Source {
	s := New(fetch, Times{Window: 0.8, Backoff: 100 * time.Millisecond, MaxBackoff: time.Second})
	s.now = func() time.Time { return c.at }
	s.sleep = func(_ context.Context, d time.Duration) error { c.at = c.at.Add(d); return nil }
	return s
}

func TestTokensAreReplacedBeforeTheyEnd(t *testing.T) {
	c := &clock{at: time.Unix(1e9, 0)}
	var fetched int
	var broken error
	s := c.source(func(context.Context) (Token, error) {
		if broken != nil {
			return Token{}, broken
		}
		fetched++
		return Token{Text: fmt.Sprint(fetched), From: c.at, Until: c.at.Add(100 * time.Second)}, nil
	})
	for _, step := range []struct {
		after  time.Duration
		broken error
		want   string // "" for an error
	}{
		{want: "1"},
		{after: 79 * time.Second, want: "1"},
		{after: 2 * time.Second, broken: errors.New("refused"), want: "1"}, // as long as it lasts
		{after: time.Second, want: "2"},
		{after: 90 * time.Second, broken: errorTemporary{errors.New("down")}, want: "2"},
		{after: 11 * time.Second, broken: errorTemporary{errors.New("down")}},
		{after: 5 * time.Second, want: "3"},
	} {
		c.at, broken = c.at.Add(step.after), step.broken
		got, err := s.Get(t.Context())
		if got.Text != step.want || (err != nil) != (step.want == "") {
			t.Errorf("%+v: %q, %v", step, got.Text, err)
		}
	}
}

func TestFailuresAreTriedAgainWithBackoff(t *testing.T) {
	c := &clock{at: time.Unix(1e9, 0)}
	var asked int
	failure := error(errorTemporary{errors.New("down")})
	s := c.source(func(context.Context) (Token, error) { asked++; return Token{}, failure })
	begun := c.at
	if _, err := s.Get(t.Context()); err == nil || asked < 3 || c.at.Sub(begun) > 2*time.Second {
		t.Errorf("%d asked within %v: %v", asked, c.at.Sub(begun), err)
	}
	before := asked
	if _, err := s.Get(t.Context()); err == nil || asked != before {
		t.Errorf("asked again at once: %v", err)
	}
	c.at, failure = c.at.Add(time.Second), errors.New("invalid_client")
	if _, err := s.Get(t.Context()); err == nil || asked != before+1 {
		t.Errorf("a refusal is asked for %d times: %v", asked-before, err)
	}
	c.at, failure = c.at.Add(2*time.Second), nil
	if _, err := s.Get(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEndpoint(t *testing.T) {
	fetch, err := Unsecured(map[string]any{"sub": "u"}, time.Hour)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	answer := func(path string, status int, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			id, pass, _ := r.BasicAuth()
			if path == "/encoded" {
				id, _ = url.QueryUnescape(id)
				pass, _ = url.QueryUnescape(pass)
			}
			if r.Method != http.MethodPost || id != "the client" || pass != secret || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "a b" {
				t.Errorf("%s asked by %s with id %q, %v", path, r.Method, id, r.Form)
			}
			if status == http.StatusFound {
				w.Header().Set("Location", "/jwt")
			}
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		})
	}
	jwt := fmt.Sprintf(`{"access_token":%q,"token_type":"bearer","expires_in":7}`, fetch.Text)
	answer("/jwt", 200, jwt)
	answer("/encoded", 200, jwt)
	answer("/opaque", 200, `{"access_token":"opaque","expires_in":"60"}`)
	answer("/refused", 401, `{"error":"invalid_client","error_description":"no such\nclient"}`)
	answer("/down", 503, "<html>")
	answer("/moved", 302, "")
	answer("/none", 200, `{"x":1}`)
	answer("/html", 200, "<html>")
	answer("/mac", 200, `{"access_token":"x","token_type":"mac"}`)
	answer("/long", 200, strings.Repeat(" ", maxAnswer+1))
	answer("/bad", 200, `{"access_token":"x\u0001auth=y"}`)
	srv := httptest.NewTLSServer(mux)
	defer srv.Close()
	for path, want := range map[string]string{
		"jwt": "", "encoded": "", "opaque": "", "refused": "401 Unauthorized: invalid_client (no such client); check", "down": "503", "moved": "redirections", "none": "no access_token",
		"html": "JSON", "mac": "Bearer", "long": "longer", "bad": "characters",
	} {
		t.Run(path, func(t *testing.T) {
			u, err := url.Parse(srv.URL + "/" + path)
			if err != nil {
				t.Fatal(err)
			}
			e := Endpoint{
				URL: u, ID: "the client", Secret: secret, Scope: "a b", Encode: path == "encoded", Connect: 30 * time.Second, Timeout: time.Minute,
				TLS: srv.Client().Transport.(*http.Transport).TLSClientConfig,
			}
			got, err := e.Fetch()(t.Context())
			if want == "" && (err != nil || got.Text == "" || got.Until.IsZero() || got.From.IsZero()) {
				t.Errorf("%+v, %v", got, err)
			}
			if want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary")) {
				t.Errorf("%v, want %q", err, want)
			}
			var temporary errorTemporary
			if errors.As(err, &temporary) != (path == "down") {
				t.Errorf("temporary or not: %v", err)
			}
		})
	}
	u, err := url.Parse(srv.URL + "/jwt")
	if err != nil {
		t.Fatal(err)
	}
	e := Endpoint{URL: u, ID: "the client", Secret: secret, Connect: 30 * time.Second, Timeout: time.Minute, TLS: &tls.Config{}}
	if _, err := e.Fetch()(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an endpoint that nobody trusts: %v", err)
	}
}

func TestFile(t *testing.T) {
	ended, err := Unsecured(map[string]any{"sub": "u"}, -time.Minute)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := " opaque\n"
	fetch := File("/t", func() (string, error) { return text, nil })
	if got, err := fetch(t.Context()); err != nil || got.Text != "opaque" || !got.Until.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	text = ended.Text
	if _, err := fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "ended at") || strings.Contains(err.Error(), text) {
		t.Errorf("%v", err)
	}
	if text = "\n"; true {
		if _, err := fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "/t: the token is empty") {
			t.Errorf("%v", err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a.eyJleHAiOjF9.c")
	f.Add("a.eyJleHAiOjFlMzAwfQ.")
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := Parse(s)
		if err == nil && (tok.Text == "" || strings.ContainsAny(tok.Text, "\x00\x01\n")) {
			t.Errorf("%q", tok.Text)
		}
	})
}

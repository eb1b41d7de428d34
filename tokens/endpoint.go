package tokens

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
)

// maxAnswer bounds what an endpoint may answer, and what a file may hold.
const maxAnswer = 1 << 20

// Endpoint is where tokens are given for client credentials.
type Endpoint struct {
	URL              *url.URL
	ID, Secret       string
	Scope            string
	Encode           bool // id and secret are URL encoded before they are put into the header, as RFC 6749 has it
	Connect, Timeout time.Duration
	TLS              *tls.Config // nil for http
}

// Fetch returns how its tokens are got. Every fetch is a connection of its own: they are rare, and what
// is kept open would need an end.
func (e Endpoint) Fetch() Fetch {
	client := &http.Client{
		Timeout: e.Timeout,
		Transport: &http.Transport{
			DialContext:     (&net.Dialer{Timeout: e.Connect}).DialContext,
			TLSClientConfig: e.TLS, TLSHandshakeTimeout: e.Connect,
			DisableKeepAlives: true, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
		},
		// The secret is for the address that is configured and for no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context) (Token, error) {
		t, err := e.ask(ctx, client)
		if err != nil {
			return t, fmt.Errorf("token endpoint %s: %w", e.URL.Redacted(), err)
		}
		return t, nil
	}
}

func (e Endpoint) ask(ctx context.Context, client *http.Client) (Token, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if e.Scope != "" {
		form.Set("scope", e.Scope)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return Token{}, errors.New("the url cannot be asked") // err has it with everything in it
	}
	id, secret := e.ID, e.Secret
	if e.Encode {
		id, secret = url.QueryEscape(id), url.QueryEscape(secret)
	}
	req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(id+":"+secret)))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	asked := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		if inner := (*url.Error)(nil); errors.As(err, &inner) {
			err = inner.Err // without the url once more
		}
		return Token{}, errorTemporary{err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return Token{}, errorTemporary{fmt.Errorf("its answer was cut off: %w", err)}
	}
	if len(body) > maxAnswer {
		return Token{}, fmt.Errorf("its answer is longer than %d bytes", maxAnswer)
	}
	if resp.StatusCode != http.StatusOK {
		return Token{}, refusal(resp.StatusCode, body)
	}
	return parseAnswer(body, asked)
}

// refusal says what the endpoint said, as far as that is meant for people (RFC 6749, 5.2).
func refusal(status int, body []byte) error {
	var said struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	text := fmt.Sprintf("it answered %d %s", status, http.StatusText(status))
	if json.Unmarshal(body, &said) == nil && said.Error != "" {
		text += ": " + printable(said.Error)
		if said.Description != "" {
			text += " (" + printable(said.Description) + ")"
		}
	}
	switch {
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return errorTemporary{errors.New(text)}
	case status == http.StatusUnauthorized || status == http.StatusBadRequest || status == http.StatusForbidden:
		text += "; check the client's id and secret, and its scope"
	case status >= 300 && status < 400:
		text += "; redirections are not followed, since the secret is for the configured address only"
	}
	return errors.New(text)
}

func printable(s string) string {
	const most = 200
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// parseAnswer reads a token with what is said of its end.
func parseAnswer(body []byte, asked time.Time) (Token, error) {
	var answer struct {
		AccessToken string          `json:"access_token"`
		IDToken     string          `json:"id_token"`
		Type        string          `json:"token_type"`
		ExpiresIn   json.RawMessage `json:"expires_in"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return Token{}, errors.New("its answer is not a JSON object with an access_token")
	}
	text := answer.AccessToken
	if text == "" {
		text = answer.IDToken // as Kafka does
	}
	if text == "" {
		return Token{}, errors.New("its answer has no access_token")
	}
	if answer.Type != "" && !strings.EqualFold(answer.Type, "Bearer") {
		return Token{}, errors.New("its token is not one of type Bearer")
	}
	t, err := Parse(text)
	if err != nil {
		return Token{}, err
	}
	var in float64
	if t.Until.IsZero() && json.Unmarshal([]byte(strings.Trim(string(answer.ExpiresIn), `"`)), &in) == nil && in > 0 && in < maxSeconds/1000 {
		t.Until = asked.Add(time.Duration(in * float64(time.Second)))
	}
	// Its own clock may be another: what it has already lived is not counted.
	t.From = asked
	return t, nil
}

// File returns a fetch of what read returns. Somebody else replaces it, so it is read each time.
func File(name string, read func() (string, error)) Fetch {
	return func(context.Context) (Token, error) {
		text, err := read()
		if err == nil {
			var t Token
			if t, err = Parse(text); err == nil {
				if !t.Until.IsZero() && !time.Now().Before(t.Until) {
					err = fmt.Errorf("the token ended at %s, and nobody has replaced it", t.Until.UTC().Format(time.RFC3339))
				} else {
					t.From, t.Until = time.Time{}, time.Time{} // not kept
					return t, nil
				}
			}
		}
		return Token{}, fmt.Errorf("token file %s: %w", name, err)
	}
}

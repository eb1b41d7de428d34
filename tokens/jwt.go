package tokens

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// maxSeconds bounds what is taken for a time; a float beyond has no whole number.
const maxSeconds = 1 << 40

// Parse reads the times of a token that is a JWT. One that is none is a token all the same, whose end
// is not known. It fails for what cannot be sent.
func Parse(text string) (Token, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return Token{}, errors.New("the token is empty")
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return Token{}, errors.New("the token has characters in it that none can have")
	}
	t := Token{Text: text}
	part := strings.Split(text, ".")
	if len(part) != 3 {
		return t, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(part[1], "="))
	if err != nil {
		return t, nil //nolint:nilerr // opaque, for the broker to judge
	}
	var claims struct {
		Exp, Iat *float64
	}
	if json.Unmarshal(raw, &claims) == nil && claims.Exp != nil && *claims.Exp > 0 && *claims.Exp < maxSeconds {
		t.Until = seconds(*claims.Exp)
		if claims.Iat != nil && *claims.Iat > 0 && *claims.Iat < *claims.Exp {
			t.From = seconds(*claims.Iat)
		}
	}
	return t, nil
}

func seconds(f float64) time.Time {
	whole, part := math.Modf(f)
	return time.Unix(int64(whole), int64(part*float64(time.Second)))
}

// Unsecured returns a fetch of tokens that nobody has signed, which brokers accept only where they were told
// to for tests.
func Unsecured(claims map[string]any, life time.Duration) Fetch {
	return func(context.Context) (Token, error) {
		now := time.Now()
		all := map[string]any{"iat": float64(now.UnixMilli()) / 1000, "exp": float64(now.Add(life).UnixMilli()) / 1000}
		for k, v := range claims {
			all[k] = v
		}
		payload, err := json.Marshal(all)
		if err != nil {
			return Token{}, fmt.Errorf("unsecured token: %w", err)
		}
		part := base64.RawURLEncoding.EncodeToString
		return Token{Text: part([]byte(`{"alg":"none"}`)) + "." + part(payload) + ".", From: now, Until: now.Add(life)}, nil
	}
}

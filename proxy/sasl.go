package proxy

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// tokens says which of the next client frames are SASL tokens without a request
// header, as they follow a SaslHandshake of version 0. From version 1 on tokens travel
// in SaslAuthenticate requests, which are relayed as any other.
type tokens struct {
	left int
	// asn1: the number is not known before (GSSAPI). Its tokens are empty or begin with
	// a byte that is not zero, requests that follow begin with a zero byte.
	asn1 bool
}

func (t *tokens) pending() bool { return t.left > 0 || t.asn1 }

// take tells whether a frame, given by its first byte if it has one, is a token.
func (t *tokens) take(first []byte) bool {
	if t.asn1 {
		if len(first) == 0 || first[0] != 0 {
			return true
		}
		t.asn1 = false
		return false
	}
	t.left--
	return true
}

// tokensOf returns what follows a handshake of version 0.
func tokensOf(mechanism string) (tokens, error) {
	switch {
	case mechanism == "PLAIN", mechanism == "OAUTHBEARER":
		return tokens{left: 1}, nil
	case strings.HasPrefix(mechanism, "SCRAM-"):
		return tokens{left: 2}, nil
	case mechanism == "GSSAPI":
		return tokens{asn1: true}, nil
	}
	return tokens{}, fmt.Errorf("SASL mechanism %q: it is not known how many tokens follow a handshake of version 0", mechanism)
}

func (c *conn) saslHandshake(r *request) (exchange, error) {
	if r.version == 0 {
		req, err := decode(r, kmsg.NewPtrSASLHandshakeRequest())
		if err != nil {
			return exchange{}, err
		}
		if c.tokens, err = tokensOf(req.Mechanism); err != nil {
			return exchange{}, err
		}
	}
	return r.forward(), nil
}

package proxy

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// tokens says which of the next client frames are SASL tokens without a request
// header, as they follow a SaslHandshake of version 0. From version 1 on tokens travel
// in SaslAuthenticate requests, which are relayed as any other.
type tokens struct {
	left int
	// open: the number is not known before (GSSAPI, and mechanisms that are not Kafka's own).
	// Tokens are taken to be empty or to begin with a byte that is not zero, as text and ASN.1
	// do; requests that follow begin with a zero byte.
	open bool
}

func (t *tokens) pending() bool { return t.left > 0 || t.open }

// take tells whether a frame, given by its first byte if it has one, is a token.
func (t *tokens) take(first []byte) bool {
	if t.open {
		if len(first) == 0 || first[0] != 0 {
			return true
		}
		t.open = false
		return false
	}
	t.left--
	return true
}

// tokensOf returns what follows a handshake of version 0. Whether the broker knows the
// mechanism is for it to say.
func tokensOf(mechanism string) tokens {
	switch {
	case mechanism == "PLAIN", mechanism == "OAUTHBEARER":
		return tokens{left: 1}
	case strings.HasPrefix(mechanism, "SCRAM-"):
		return tokens{left: 2}
	}
	return tokens{open: true}
}

func (c *conn) saslHandshake(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrSASLHandshakeRequest())
	if err != nil {
		return exchange{}, err
	}
	if r.version > 0 {
		ex := r.forward()
		c.agreed(&ex, req.Mechanism)
		return ex, nil
	}
	// What follows is taken for tokens, and so for nobody's business here, only once the broker
	// takes it for tokens as well: it refuses handshakes at any time and goes on to take requests.
	ex := relayed(r.header)
	var resp *kmsg.SASLHandshakeResponse
	ex.converse = func(ctx context.Context, up *conversation) error {
		got, err := up.request(ctx, req)
		if err != nil {
			return fmt.Errorf("SASL handshake: %w", err)
		}
		resp = got.(*kmsg.SASLHandshakeResponse)
		if resp.ErrorCode == errNone {
			c.tokens = tokensOf(req.Mechanism) // the reader waits
			c.login.handshake(req.Mechanism)
		}
		return nil
	}
	ex.answer = func(context.Context) (net.Buffers, error) { return responseFrame(resp, r.header) }
	return ex, nil
}

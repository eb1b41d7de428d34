package proxy

import (
	"encoding/binary"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A peer that has not logged in is a stranger. It gets as much as a login needs, and no longer than one
// takes: frames of maxLoginFrame, LoginTimeout, and nothing of what all connections share.

// maxLoginFrame bounds what belongs to a login, and whatever comes before it has succeeded: brokers
// read no more either (sasl.server.max.receive.size).
const maxLoginFrame = 512 << 10

// loginBytes bounds what those together hold in memory who log in with more than fits a read buffer:
// nearly nobody.
const loginBytes = 16 << 20

const keySASLAuthenticate = int16(kmsg.SASLAuthenticate)

// ofLogin tells whether an API is for those who have not logged in, and so has small requests.
func ofLogin(key int16) bool {
	return key == keyAPIVersions || key == int16(kmsg.SASLHandshake) || key == keySASLAuthenticate
}

// login follows the login of a client to its end, of which only the broker's answers tell. Where the
// broker's listener has no SASL there is none, and everybody is logged in.
type login struct {
	begun time.Time
	done  atomic.Bool

	// mechanism is that of the last handshake, and answers how often the broker has accepted a token
	// since then. Both belong to the writer.
	mechanism string
	answers   int
}

// handshake notes a mechanism that the broker agreed to.
func (l *login) handshake(mechanism string) { l.mechanism, l.answers = mechanism, 0 }

// accepted notes a token that the broker did not refuse, and the size of its own.
func (l *login) accepted(size int) {
	l.answers++
	if loggedIn(l.mechanism, l.answers, size) {
		l.done.Store(true)
	}
}

// loggedIn tells whether a login has succeeded with the broker's nth answer without an error.
func loggedIn(mechanism string, n, size int) bool {
	switch {
	case strings.HasPrefix(mechanism, "SCRAM-"):
		return n >= 2 // the first is a challenge, which everybody gets who knows a name
	case mechanism == "OAUTHBEARER":
		return size == 0 // else it says what is wrong with the token (RFC 7628)
	}
	// PLAIN has one answer. Of other mechanisms only the broker knows more.
	return true
}

// saslAuthenticate passes a token on, and learns from the answer whether the client is in.
func (c *conn) saslAuthenticate(r *request) (exchange, error) {
	ex := r.forward()
	if c.login.done.Load() {
		return ex, nil // a session is renewed
	}
	ex.transform = func(body []byte) (kmsg.Response, error) {
		resp, err := decodeResponse(r.key, r.version, body)
		if err != nil {
			return nil, err
		}
		if got := resp.(*kmsg.SASLAuthenticateResponse); got.ErrorCode == errNone {
			c.login.accepted(len(got.SASLAuthBytes))
		}
		return nil, nil
	}
	return ex, nil
}

// agreed has an exchange of a handshake note its mechanism, if the broker knows it.
func (c *conn) agreed(ex *exchange, mechanism string) {
	ex.transform = func(body []byte) (kmsg.Response, error) {
		if len(body) >= 2 && int16(binary.BigEndian.Uint16(body)) == errNone {
			c.login.handshake(mechanism)
		}
		return nil, nil
	}
}

// large decides about a request above maxLoginFrame: whoever has not logged in is asked to, before
// anything of it goes anywhere.
func (c *conn) large(h header, size int) error {
	if ofLogin(h.key) {
		return because(reasonOversized, "%s request of %d bytes, at most %d are read", kmsg.NameForKey(h.key), size, maxLoginFrame)
	}
	if c.login.done.Load() {
		return nil
	}
	return c.introduced(h)
}

// late tells why a client that has not logged in is waited for no longer, nil if it is.
func (l *login) late(now time.Time, most time.Duration) error {
	if l.done.Load() || now.Sub(l.begun) < most {
		return nil
	}
	return because(reasonNoLogin, "the client has not logged in within %v (connections.max.login.ms)", most)
}

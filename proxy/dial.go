package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
)

// Dialer returns a Config.Dial that tries addresses in order, the home broker's first. A
// virtual listener names the other live brokers behind it: with the home broker down,
// followers must still be able to authenticate somewhere (facts/design-review.md S8).
// addrs is asked for each connection. security is nil for plain TCP.
func Dialer(addrs func() []string, security *tls.Config) func(ctx context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var errs []error
		for _, addr := range addrs() {
			c, err := dialOne(ctx, addr, security)
			if err == nil {
				return c, nil
			}
			errs = append(errs, fmt.Errorf("%s: %w", addr, err))
			if ctx.Err() != nil {
				break
			}
		}
		if len(errs) == 0 {
			return nil, errors.New("no broker to connect to")
		}
		return nil, errors.Join(errs...)
	}
}

func dialOne(ctx context.Context, addr string, security *tls.Config) (net.Conn, error) {
	var d net.Dialer
	if security == nil {
		return d.DialContext(ctx, "tcp", addr)
	}
	return (&tls.Dialer{NetDialer: &d, Config: security}).DialContext(ctx, "tcp", addr)
}

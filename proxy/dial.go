package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/cluster-mirroring/mirror-sidecar/certs"
)

// Dialer returns a Config.Dial that tries addresses in order, the home broker's first. A
// virtual listener names the other live brokers behind it: with the home broker down,
// followers must still be able to authenticate somewhere (facts/design-review.md S8).
// addrs is asked for each connection, and so is security: under which certificate the
// client is relayed. A nil security, or one that returns nil, is for plain TCP.
func Dialer(addrs func() []string, security func(ctx context.Context) (*certs.Dialer, error)) func(ctx context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var with *certs.Dialer
		if security != nil {
			var err error
			if with, err = security(ctx); err != nil {
				return nil, err
			}
		}
		var errs []error
		for _, addr := range addrs() {
			c, err := with.DialContext(ctx, "tcp", addr)
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

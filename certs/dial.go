package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// Dialer opens connections with what the files hold then. Its zero value, and nil, dial
// plain TCP.
type Dialer struct {
	TLS *Watched
	// ServerName is what the other side's certificate must be for, the host that is
	// dialled if empty.
	ServerName string
	Timeout    time.Duration
}

// DialContext connects, and makes the handshake if there is TLS.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if d == nil {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	nd := &net.Dialer{Timeout: d.Timeout}
	if d.TLS == nil {
		return nd.DialContext(ctx, network, addr)
	}
	cfg := d.TLS.Config()
	if d.ServerName != "" || cfg.ServerName == "" {
		cfg = cfg.Clone()
		if cfg.ServerName = d.ServerName; cfg.ServerName == "" {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, fmt.Errorf("address %q: %w", addr, err)
			}
			cfg.ServerName = host
		}
	}
	return (&tls.Dialer{NetDialer: nd, Config: cfg}).DialContext(ctx, network, addr)
}

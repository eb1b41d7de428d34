package host

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// RefusesStrangers is an error if the plugin answers somebody who does not have the certificate that
// this process has made for it.
func (p *Plugin) RefusesStrangers(ctx context.Context) error {
	r, err := p.ready(ctx)
	if err != nil {
		return err
	}
	_, other, err := hostIdentity()
	if err != nil {
		return err
	}
	other.InsecureSkipVerify = true // a stranger does not mind
	for as, creds := range map[string]credentials.TransportCredentials{
		"without TLS":                insecure.NewCredentials(),
		"without a certificate":      credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}),
		"with a certificate of ours": credentials.NewTLS(other),
	} {
		if err := r.approach(ctx, creds); err != nil {
			return fmt.Errorf("%w %s", err, as)
		}
	}
	return nil
}

func (r *run) approach(ctx context.Context, creds credentials.TransportCredentials) error {
	var reached atomic.Pointer[error]
	conn, err := grpc.NewClient("passthrough:plugin", grpc.WithTransportCredentials(creds), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, r.proc.network, r.proc.addr)
		reached.Store(&err)
		return conn, err
	}))
	if err != nil {
		return fmt.Errorf("prepare a connection: %w", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := policyv1.NewPluginInfoClient(conn).Describe(ctx, &policyv1.DescribeRequest{}); err == nil {
		return errors.New("it answers somebody who comes")
	}
	switch err := reached.Load(); {
	case err == nil:
		return errors.New("it was not reached by somebody who came")
	case *err != nil:
		return fmt.Errorf("it cannot be reached, %w, by somebody who comes", *err)
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

const (
	// requestTimeout is above what a sidecar takes to give up on a source.
	requestTimeout = 60 * time.Second
	// coordinatorPatience is how long a coordinator that is about to change is waited for.
	coordinatorPatience = 20 * time.Second
	// connectPatience bridges the restart of a sidecar.
	connectPatience = 5 * time.Second
	retryPause      = 300 * time.Millisecond
)

// dial returns a client for addresses with the security of a properties file.
func dial(bootstrap []string, file string, more ...kgo.Opt) (*kgo.Client, error) {
	p := config.Properties{}
	if file != "" {
		var err error
		if p, err = config.ReadPropertiesFile(file); err != nil {
			return nil, err
		}
	}
	opts, err := config.ParseClient(p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(bootstrap...),
		kgo.ClientID(program),
		kgo.DialTimeout(10 * time.Second),
		kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())),
		kgo.DisableClientMetrics(),
	}, append(opts, more...)...)
	return kgo.NewClient(opts...)
}

// ask sends a request to the first sidecar that answers. An answer that is an error as a
// whole is an error here. Where nobody could be reached, or the coordinator is not known
// yet, it is asked again for a while.
func ask[R kmsg.Response](ctx context.Context, cl *kgo.Client, req kmsg.Request) (R, error) {
	begun := time.Now()
	for {
		r, err := askOnce[R](ctx, cl, req)
		patience := time.Duration(0)
		switch {
		case isDial(err):
			patience = connectPatience
		case protocol.ComesUp(err):
			patience = coordinatorPatience
		}
		if err == nil || time.Since(begun) >= patience {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, err
		case <-time.After(retryPause):
		}
	}
}

// isDial tells whether nothing can have been sent.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// askOnce asks one address after the other. What may have been done before its answer got
// lost is not asked for again, unless doing it again changes nothing.
func askOnce[R kmsg.Response](ctx context.Context, cl *kgo.Client, req kmsg.Request) (R, error) {
	var none R
	var errs []error
	for _, b := range cl.SeedBrokers() {
		resp, err := b.Request(ctx, req)
		if err != nil {
			if strings.Contains(err.Error(), "broker is too old") {
				err = errors.New("the address answers, but is not a mirror sidecar's (it does not list the mirror APIs)")
			}
			errs = append(errs, err)
			if !isDial(err) && onlyOnce(req) {
				break
			}
			continue
		}
		r, ok := resp.(R)
		if !ok {
			return none, fmt.Errorf("unexpected answer %T", resp)
		}
		return r, topLevel(resp)
	}
	return none, unreachableError{fmt.Errorf("no sidecar answers: %w", errors.Join(errs...))}
}

func onlyOnce(req kmsg.Request) bool {
	switch req.(type) {
	case *protocol.CreateClusterMirrorRequest, *protocol.DeleteClusterMirrorRequest:
		return true
	}
	return false
}

// topLevel returns the error that an answer is as a whole.
func topLevel(resp kmsg.Response) error {
	switch r := resp.(type) {
	case *protocol.CreateClusterMirrorResponse:
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	case *protocol.DeleteClusterMirrorResponse:
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	case *protocol.StartMirrorTopicsResponse:
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	case *protocol.StopMirrorTopicsResponse:
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	case *protocol.PauseMirrorTopicsResponse:
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	case *protocol.ResumeMirrorTopicsResponse:
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	case *protocol.RecoverMirrorTopicsResponse:
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	case *protocol.ListClusterMirrorsResponse:
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	case *protocol.DescribeClusterMirrorsResponse:
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	case *protocol.ExplainClusterMirrorResponse:
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	case *protocol.FenceTopicWritesResponse:
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	}
	return nil
}

// fetchMirrors describes the mirror that was named, or all of them.
func (o *options) fetchMirrors(ctx context.Context, cl *kgo.Client) ([]protocol.DescribedMirror, error) {
	req := protocol.NewDescribeClusterMirrorsRequest()
	if o.mirror != "" {
		req.MirrorNames = []string{o.mirror}
	}
	r, err := ask[*protocol.DescribeClusterMirrorsResponse](ctx, cl, &req)
	if err != nil {
		return nil, err
	}
	for _, m := range r.Mirrors {
		if err := protocol.ErrorForCode(m.ErrorCode, m.ErrorMessage); err != nil {
			return nil, err
		}
	}
	if o.mirror != "" && len(r.Mirrors) != 1 {
		return nil, fmt.Errorf("the sidecar's answer does not describe mirror %s", o.mirror)
	}
	slices.SortFunc(r.Mirrors, func(a, b protocol.DescribedMirror) int { return strings.Compare(a.MirrorName, b.MirrorName) })
	return r.Mirrors, nil
}

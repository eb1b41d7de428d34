package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
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
		kgo.ClientID("kafka-cluster-mirrors"),
		kgo.DialTimeout(10 * time.Second),
		kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())),
		kgo.DisableClientMetrics(),
	}, append(opts, more...)...)
	return kgo.NewClient(opts...)
}

// ask sends a request to the first sidecar that answers.
func ask[R kmsg.Response](ctx context.Context, cl *kgo.Client, req kmsg.Request) (R, error) {
	var none R
	var errs []error
	for _, b := range cl.SeedBrokers() {
		resp, err := b.RetriableRequest(ctx, req)
		if err != nil {
			if strings.Contains(err.Error(), "broker is too old") {
				err = errors.New("the address answers, but is not a mirror sidecar's (it does not list the mirror APIs)")
			}
			errs = append(errs, err)
			continue
		}
		r, ok := resp.(R)
		if !ok {
			return none, fmt.Errorf("unexpected answer %T", resp)
		}
		return r, nil
	}
	return none, fmt.Errorf("no sidecar answers: %w", errors.Join(errs...))
}

// literal tells whether a text is a topic's name rather than a regular expression. A dot
// is both; a name is what most people mean by it.
func literal(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-') {
			return false
		}
	}
	return s != ""
}

// split sorts what was given as topics into names and patterns.
func split(list []string) (names, patterns []string) {
	for _, s := range list {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		if literal(s) {
			names = append(names, s)
		} else {
			patterns = append(patterns, s)
		}
	}
	return names, patterns
}

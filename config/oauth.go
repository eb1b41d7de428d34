package config

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"

	"github.com/cluster-mirroring/mirror-sidecar/tokens"
)

const (
	//nolint:gosec // names of keys
	keyTokenURL = "sasl.oauthbearer.token.endpoint.url"
	keyClientID = "sasl.oauthbearer.client.credentials.client.id"
	//nolint:gosec // a name as well
	keyClientSecret = "sasl.oauthbearer.client.credentials.client.secret"
	keyScope        = "sasl.oauthbearer.scope"
	keyEncode       = "sasl.oauthbearer.header.urlencode"
	keyRetriever    = "sasl.oauthbearer.jwt.retriever.class"
	keyCallbacks    = "sasl.login.callback.handler.class"
	keyConnect      = "sasl.login.connect.timeout.ms"
	keyRead         = "sasl.login.read.timeout.ms"
	keyBackoff      = "sasl.login.retry.backoff.ms"
	keyMaxBackoff   = "sasl.login.retry.backoff.max.ms"
	keyWindow       = "sasl.login.refresh.window.factor"

	keyAllowedURLs = "mirror.oauthbearer.allowed.urls"
)

// oauthKeys are Kafka's of OAUTHBEARER, with its names and, where it has any, its defaults.
func oauthKeys() []Key {
	return []Key{
		{Name: keyTokenURL, Doc: "OAUTHBEARER: where tokens come from, https://… by client credentials, or file:///… with one in it"},
		{Name: keyClientID, Doc: "OAUTHBEARER: the client's id, else clientId in sasl.jaas.config"},
		{Name: keyClientSecret, Doc: "OAUTHBEARER: the client's secret, else clientSecret in sasl.jaas.config", secret: true},
		{Name: keyScope, Doc: "OAUTHBEARER: scope that is asked for, else scope in sasl.jaas.config"},
		{Name: keyEncode, Default: "false", Doc: "OAUTHBEARER: id and secret are URL encoded in the request for a token"},
		{Name: keyRetriever, Doc: "OAUTHBEARER: Kafka's DefaultJwtRetriever, ClientCredentialsJwtRetriever or FileJwtRetriever; empty: what the url says"},
		{Name: keyCallbacks, Doc: "OAUTHBEARER: Kafka's own OAuthBearerLoginCallbackHandler, or empty; nothing else is needed or can be run"},
		{Name: keyConnect, Default: "10000", Doc: "OAUTHBEARER: how long connecting to the token endpoint may take"},
		{Name: keyRead, Default: "10000", Doc: "OAUTHBEARER: how long the token endpoint may take for its answer"},
		{Name: keyBackoff, Default: "100", Doc: "OAUTHBEARER: wait before a token is asked for again, doubled each time"},
		{Name: keyMaxBackoff, Default: "10000", Doc: "OAUTHBEARER: the longest such wait, and how long one login tries"},
		{Name: keyWindow, Default: "0.8", Doc: "OAUTHBEARER: the part of a token's life after which it is replaced, 0.5 to 1"},
	}
}

// oauthMechanism makes the mechanism of OAUTHBEARER. Tokens are got when connections are made, and files are
// read with the rights of files.
func oauthMechanism(p Properties, files Providers) (sasl.Mechanism, error) {
	e := jaasEntry{module: "OAuthBearerLoginModule", options: map[string]string{}}
	if p["sasl.jaas.config"] != "" {
		var err error
		if e, err = parseJAAS(p["sasl.jaas.config"]); err != nil {
			return nil, err
		}
	}
	if err := needsModule(e, "OAUTHBEARER", "OAuthBearerLoginModule"); err != nil {
		return nil, err
	}
	extensions, err := oauthExtensions(e)
	if err != nil {
		return nil, err
	}
	fetch, err := tokenFetch(p, e, files)
	if err != nil {
		return nil, err
	}
	times, err := tokenTimes(p)
	if err != nil {
		return nil, err
	}
	source := tokens.New(fetch, times)
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		t, err := source.Get(ctx)
		if err != nil {
			return oauth.Auth{}, fmt.Errorf("sasl.mechanism OAUTHBEARER: no token to log in with: %w", err)
		}
		return oauth.Auth{Token: t.Text, Extensions: extensions}, nil
	}), nil
}

func oauthExtensions(e jaasEntry) (map[string]string, error) {
	out := map[string]string{}
	for option, v := range e.options {
		name, is := strings.CutPrefix(option, "extension_")
		if !is {
			continue
		}
		letters := func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }
		if name == "" || strings.EqualFold(name, "auth") || strings.ContainsFunc(name, letters) {
			return nil, fmt.Errorf("sasl.jaas.config: %s: extensions are named with letters only, and not auth", option)
		}
		if strings.ContainsFunc(v, func(r rune) bool { return r > '~' || r < ' ' && r != '\t' && r != '\r' && r != '\n' }) {
			return nil, fmt.Errorf("sasl.jaas.config: the value of %s has characters that extensions cannot have", option)
		}
		out[name] = v
	}
	return out, nil
}

// tokenFetch chooses where tokens come from.
func tokenFetch(p Properties, e jaasEntry, files Providers) (tokens.Fetch, error) {
	if h := p.or(keyCallbacks, ""); h != "" && !strings.HasSuffix(h, ".OAuthBearerLoginCallbackHandler") && !strings.HasSuffix(h, ".OAuthBearerUnsecuredLoginCallbackHandler") {
		return nil, fmt.Errorf("%s: no Java class can be run here; leave it empty and say in %s where tokens come from", keyCallbacks, keyTokenURL)
	}
	at := p.or(keyTokenURL, "")
	if at == "" {
		return unsecuredFetch(e)
	}
	u, err := url.Parse(at)
	if err != nil || u.Opaque != "" {
		return nil, fmt.Errorf("%s: this is no url such as https://host/token or file:///path/of/token", keyTokenURL) // the url may hold a password
	}
	scheme := strings.ToLower(u.Scheme)
	retriever := p.or(keyRetriever, "DefaultJwtRetriever")
	retriever = retriever[strings.LastIndexByte(retriever, '.')+1:]
	switch {
	case !slices.Contains([]string{"DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever"}, retriever):
		return nil, fmt.Errorf("%s: only DefaultJwtRetriever, ClientCredentialsJwtRetriever and FileJwtRetriever are supported", keyRetriever)
	case retriever == "FileJwtRetriever" && scheme != "file", retriever == "ClientCredentialsJwtRetriever" && scheme == "file":
		return nil, fmt.Errorf("%s: %s does not fit a %s of %s", keyRetriever, retriever, keyTokenURL, scheme)
	case scheme == "file":
		if u.Host != "" && u.Host != "localhost" || u.Path == "" {
			return nil, fmt.Errorf("%s: a file is written file:///path/of/token", keyTokenURL)
		}
		return tokens.File(u.Path, func() (string, error) { return files.read(u.Path, maxSecretBytes) }), nil
	case scheme != "https" && scheme != "http" || u.Host == "":
		return nil, fmt.Errorf("%s: %q is none of https, http and file", keyTokenURL, scheme)
	}
	return endpointFetch(p, e, u)
}

func endpointFetch(p Properties, e jaasEntry, u *url.URL) (tokens.Fetch, error) {
	t := tokens.Endpoint{
		URL:    u,
		ID:     p.or(keyClientID, e.options["clientId"]),
		Secret: p.or(keyClientSecret, e.options["clientSecret"]),
		Scope:  p.or(keyScope, e.options["scope"]),
	}
	if t.ID == "" || t.Secret == "" {
		return nil, fmt.Errorf("sasl.mechanism OAUTHBEARER: the token endpoint needs a client's id and secret; set %s and %s, or clientId and clientSecret in sasl.jaas.config", keyClientID, keyClientSecret)
	}
	var err error
	if t.Encode, err = parseBool(p.or(keyEncode, "false")); err != nil {
		return nil, fmt.Errorf("%s: %w", keyEncode, err)
	}
	if t.Connect, err = oauthMillis(p, keyConnect); err != nil {
		return nil, err
	}
	if t.Timeout, err = oauthMillis(p, keyRead); err != nil {
		return nil, err
	}
	t.Timeout += t.Connect // of a request in all
	if strings.EqualFold(u.Scheme, "https") {
		if t.TLS, err = endpointTLS(p, e); err != nil {
			return nil, err
		}
	}
	return t.Fetch(), nil
}

// endpointTLS trusts for the token endpoint what ssl.* in sasl.jaas.config says, as in Kafka. Without a trust
// store there it trusts what the system does and what is trusted for brokers; its name is verified even if
// those of brokers are not.
func endpointTLS(p Properties, e jaasEntry) (*tls.Config, error) {
	own := Properties{}
	for option, v := range e.options {
		if strings.HasPrefix(option, "ssl.") {
			own[option] = v
		}
	}
	cfg, err := tlsConfig(own)
	if err != nil {
		return nil, fmt.Errorf("sasl.jaas.config: %w", err)
	}
	trusted, err := trustStore(p)
	if err != nil || cfg.RootCAs != nil || trusted == nil {
		return cfg, err
	}
	if cfg.RootCAs, err = x509.SystemCertPool(); err != nil {
		cfg.RootCAs = x509.NewCertPool() // a system without any
	}
	for _, c := range trusted {
		cfg.RootCAs.AddCert(c)
	}
	return cfg, nil
}

func tokenTimes(p Properties) (t tokens.Times, err error) {
	if t.Backoff, err = oauthMillis(p, keyBackoff); err != nil {
		return t, err
	}
	if t.MaxBackoff, err = oauthMillis(p, keyMaxBackoff); err != nil {
		return t, err
	}
	if t.Backoff > t.MaxBackoff {
		return t, fmt.Errorf("%s is above %s", keyBackoff, keyMaxBackoff)
	}
	t.Window, err = strconv.ParseFloat(p.or(keyWindow, "0.8"), 64)
	if err != nil || !(t.Window >= 0.5 && t.Window <= 1) {
		return t, fmt.Errorf("%s: not a number from 0.5 to 1", keyWindow)
	}
	return t, nil
}

func oauthMillis(p Properties, key string) (time.Duration, error) {
	i := slices.IndexFunc(oauthKeys(), func(k Key) bool { return k.Name == key })
	d, err := parseMillis(p.or(key, oauthKeys()[i].Default), 1, math.MaxInt32)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	return d, nil
}

// unsecuredFetch makes tokens up from the options that Kafka has for that, in tests.
func unsecuredFetch(e jaasEntry) (tokens.Fetch, error) {
	claims, life := map[string]any{}, time.Hour
	for option, v := range e.options {
		switch kind, name, _ := strings.Cut(option, "_"); kind {
		case "unsecuredLoginStringClaim":
			claims[name] = v
		case "unsecuredLoginNumberClaim":
			n, err := strconv.ParseFloat(v, 64)
			if err != nil || math.IsInf(n, 0) || math.IsNaN(n) {
				return nil, fmt.Errorf("sasl.jaas.config: %s is not a number", option)
			}
			claims[name] = n
		case "unsecuredLoginListClaim":
			if v == "" {
				return nil, fmt.Errorf("sasl.jaas.config: %s begins with the character that separates its values", option)
			}
			claims[name] = strings.Split(v[1:], v[:1])
		case "unsecuredLoginLifetimeSeconds":
			s, err := parseInt(v, 1, math.MaxInt32)
			if err != nil {
				return nil, fmt.Errorf("sasl.jaas.config: %s: %w", option, err)
			}
			life = time.Duration(s) * time.Second
		}
	}
	if len(claims) == 0 {
		return nil, errors.New("sasl.mechanism OAUTHBEARER: say where tokens come from: set " + keyTokenURL + " to the token endpoint (https://…), with the client's id and secret, or to a file (file:///path/of/token)")
	}
	if s, ok := claims[option(e, "unsecuredLoginPrincipalClaimName", "sub")].(string); !ok || s == "" {
		return nil, errors.New("sasl.jaas.config: an unsecured token needs unsecuredLoginStringClaim_sub, or the claim that unsecuredLoginPrincipalClaimName names")
	}
	return tokens.Unsecured(claims, life), nil
}

func option(e jaasEntry, name, def string) string {
	if v := e.options[name]; v != "" {
		return v
	}
	return def
}

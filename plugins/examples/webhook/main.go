// Command webhook tells an HTTP server what happens to mirrors: each batch of changes is one POST of
// JSON. A server that does not answer with 2xx is asked again by the sidecar, so that it may hear of a
// change more than once; changes of one partition come in order.
//
// plugin.<name>.config.url says where. config.token is sent as a bearer token, if it is given; leave it
// in a file, as in ${file:/etc/mirror/secrets.properties:webhook}. config.states lists the states of
// which it is told, separated by commas; all by default.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

func main() {
	plugins.Serve(plugins.Policy{Name: "webhook", Version: "1.0", CheckConfig: checkConfig, Events: &hook{client: http.DefaultClient}})
}

const urlKey, tokenKey, statesKey = "url", "token", "states"

func checkConfig(config map[string]string) error {
	for key := range config {
		if !slices.Contains([]string{urlKey, tokenKey, statesKey}, key) {
			return fmt.Errorf("there is no key %s; %s, %s and %s are", key, urlKey, tokenKey, statesKey)
		}
	}
	u, err := url.Parse(config[urlKey])
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%s: %q is no address of an HTTP server", urlKey, config[urlKey])
	}
	return nil
}

// Told is the body of a request.
type Told struct {
	Mirror  string `json:"mirror"`
	Cluster string `json:"cluster"` // the one that receives the copy
	// GivenUp counts the changes before these that could not be told in time.
	GivenUp int64    `json:"givenUp,omitempty"`
	Changes []Change `json:"changes"`
}

// Change is one change of one partition.
type Change struct {
	At        time.Time `json:"at"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	From      string    `json:"from,omitempty"`
	To        string    `json:"to,omitempty"`
	Detail    string    `json:"detail,omitempty"`
	Error     string    `json:"error,omitempty"`
}

type hook struct{ client *http.Client }

// Notify implements plugins.EventSink.
func (h *hook) Notify(ctx context.Context, r *policyv1.NotifyRequest) (*policyv1.NotifyResponse, error) {
	config := r.GetRound().GetPluginConfig()
	told := Told{Mirror: r.GetRound().GetMirror(), Cluster: r.GetRound().GetDestinationClusterId(), GivenUp: r.GetGivenUp()}
	states := strings.FieldsFunc(config[statesKey], func(r rune) bool { return r == ',' || r == ' ' })
	for _, e := range r.GetEvents() {
		if len(states) > 0 && !slices.Contains(states, e.GetToState()) {
			continue
		}
		told.Changes = append(told.Changes, Change{
			At: time.UnixMilli(e.GetAtMs()).UTC(), Topic: e.GetTopic(), Partition: e.GetPartition(),
			From: e.GetFromState(), To: e.GetToState(), Detail: e.GetDetail(), Error: e.GetError(),
		})
	}
	if len(told.Changes) == 0 && told.GivenUp == 0 {
		return &policyv1.NotifyResponse{}, nil
	}
	return &policyv1.NotifyResponse{}, h.post(ctx, config[urlKey], config[tokenKey], told)
}

func (h *hook) post(ctx context.Context, to, token string, told Told) error {
	body, err := json.Marshal(told)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("webhook: %s answers %s", req.URL.Redacted(), resp.Status)
	}
	return nil
}

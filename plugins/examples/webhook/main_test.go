package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

func TestNotify(t *testing.T) {
	var got []Told
	var token string
	answer := http.StatusNoContent
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var told Told
		if err := json.NewDecoder(r.Body).Decode(&told); err != nil {
			t.Error(err)
		}
		got, token = append(got, told), r.Header.Get("Authorization")
		w.WriteHeader(answer)
	}))
	defer s.Close()
	h := &hook{client: s.Client()}
	req := &policyv1.NotifyRequest{
		Round:   &policyv1.Round{Mirror: "east", DestinationClusterId: "here", PluginConfig: map[string]string{"url": s.URL, "token": "secret", "states": "FAILED,STOPPED"}},
		Events:  []*policyv1.Event{{AtMs: 1000, Topic: "orders", Partition: 2, FromState: "MIRRORING", ToState: "FAILED", Error: "it is gone"}, {Topic: "orders", ToState: "PAUSED"}},
		GivenUp: 4,
	}
	if _, err := h.Notify(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Mirror != "east" || got[0].Cluster != "here" || got[0].GivenUp != 4 || len(got[0].Changes) != 1 ||
		got[0].Changes[0].Topic != "orders" || got[0].Changes[0].To != "FAILED" || got[0].Changes[0].At.UnixMilli() != 1000 || token != "Bearer secret" {
		t.Errorf("posted %+v with %q", got, token)
	}

	// Who does not take it is told again: the sidecar needs an error for that.
	answer = http.StatusServiceUnavailable
	if _, err := h.Notify(t.Context(), req); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("error: %v", err)
	}

	// Nothing to tell is not told.
	req.Events, req.GivenUp = req.Events[1:], 0
	if _, err := h.Notify(t.Context(), req); err != nil || len(got) != 2 {
		t.Errorf("%d posts, %v", len(got), err)
	}
}

func TestCheckConfig(t *testing.T) {
	for _, c := range []struct {
		config map[string]string
		ok     bool
	}{
		{map[string]string{"url": "https://example.com/x"}, true},
		{map[string]string{"url": "http://example.com", "token": "x", "states": "FAILED"}, true},
		{nil, false},
		{map[string]string{"url": "example.com"}, false},
		{map[string]string{"url": "https://example.com", "uri": "x"}, false},
	} {
		if err := checkConfig(c.config); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.config, err)
		}
	}
}

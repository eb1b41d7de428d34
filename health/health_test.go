package health

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestReady: a failed check makes the process unready, a warning only says so.
func TestReady(t *testing.T) {
	s, err := New(Config{}, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var failed, warned error
	s.Ready("part", func() error { return failed })
	s.Warn("part", func() error { return warned })
	ask := func() (int, string) {
		w := httptest.NewRecorder()
		s.ready(w, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	for _, tc := range []struct {
		failed, warned error
		code           int
		body           string
	}{
		{nil, nil, 200, "ready"},
		{nil, errors.New("odd"), 200, "ready\nwarning: part: odd"},
		{errors.New("down"), nil, 503, "part: down"},
		{errors.New("down"), errors.New("odd"), 503, "part: down\nwarning: part: odd"},
	} {
		failed, warned = tc.failed, tc.warned
		if code, body := ask(); code != tc.code || body != tc.body {
			t.Errorf("%v, %v: %d %q, want %d %q", tc.failed, tc.warned, code, body, tc.code, tc.body)
		}
	}
}

package health

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-mirroring/mirror-sidecar/panics"
)

// guard lets through what only reads, and keeps mistakes in the handlers behind it to the request.
type guard struct {
	to       http.Handler
	loopback bool
	log      *slog.Logger
	panics   prometheus.Counter
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	refuse := func(code int, why string) {
		h.Set("Connection", "close") // what else it sends is not read
		http.Error(w, why, code)
	}
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		refuse(http.StatusMethodNotAllowed, "nothing can be changed here: GET and HEAD only")
		return
	case r.ContentLength != 0:
		refuse(http.StatusRequestEntityTooLarge, "requests have no body here")
		return
	case g.loopback && !namesAddress(r.Host):
		// A page in a browser on this machine could give its own name this address (DNS rebinding), and read.
		refuse(http.StatusForbidden, "at a loopback address this is asked for by address, or as localhost")
		return
	}
	ended := false
	defer func() {
		if ended {
			return
		}
		inState := panics.InState()
		value := recover()
		if value == http.ErrAbortHandler { //nolint:errorlint // a panic's value, as net/http compares it
			panic(value)
		}
		if inState {
			panics.End(value, debug.Stack()) // else the server would recover
		}
		g.panics.Inc()
		g.log.Error("a mistake in the sidecar ended an HTTP request, please report it", "path", r.URL.Path, "panic", value, "stack", string(debug.Stack()))
		panic(http.ErrAbortHandler) // closes the connection
	}()
	g.to.ServeHTTP(w, r)
	ended = true
}

// namesAddress tells whether a Host header is an address, or localhost: nobody can have those by a name of
// his own.
func namesAddress(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return host == "" || strings.EqualFold(host, "localhost")
}

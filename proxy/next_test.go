package proxy

import (
	"net"
	"runtime"
	"strings"
	"testing"
)

// What idle takes from the queue is delivered, whatever comes behind it meanwhile.
func TestNextLosesNoExchange(t *testing.T) {
	for name, behind := range map[string]func(queue chan exchange){
		"another": func(queue chan exchange) { queue <- exchange{correlation: 2} },
		"the end": func(queue chan exchange) { close(queue) },
	} {
		t.Run(name, func(t *testing.T) {
			up, broker := net.Pipe()
			defer up.Close()
			defer broker.Close()
			c := &conn{out: newUpstreamReader(up), queue: make(chan exchange, 2)}
			c.out.mu.Lock()
			type result struct {
				ex  exchange
				err error
			}
			got := make(chan result, 1)
			go func() {
				ex, err := c.next()
				got <- result{ex, err}
			}()
			// The queue was empty, and has not been asked again.
			waitFor(t, func() bool { return standsIn("(*upstreamReader).idle", "TestNextLosesNoExchange") })
			c.queue <- exchange{correlation: 1}
			behind(c.queue)
			c.out.mu.Unlock()
			if r := <-got; r.err != nil || r.ex.correlation != 1 {
				t.Errorf("got exchange %d, %v, want 1", r.ex.correlation, r.err)
			}
		})
	}
}

// standsIn tells whether a goroutine that a test made is within a function.
func standsIn(function, test string) bool {
	b := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(b[:runtime.Stack(b, true)]), "\n\n") {
		if strings.Contains(g, function) && strings.Contains(g, "created by") && strings.Contains(g, test) {
			return true
		}
	}
	return false
}

package proxy

import (
	"runtime/debug"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/panics"
)

// guarded runs a goroutine of the connection. A panic becomes the reason why the connection ends, unless it
// was in what all connections stand on.
func (c *conn) guarded(run func() error) (err error) {
	ended := false
	defer func() {
		if ended || panics.InState() {
			return // the process ends, if it was a panic
		}
		value := recover()
		err = because(reasonPanic, "panic: %v", value)
		if others, ok := c.p.panics.allow(time.Now()); ok {
			c.log.Error("a mistake in the sidecar ended a connection, please report it", "panic", value, "not logged before", others, "stack", string(debug.Stack()))
		}
	}()
	err = run()
	ended = true
	return err
}

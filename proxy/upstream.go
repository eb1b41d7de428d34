package proxy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// upstreamReader is the read side of the upstream connection. It belongs to the writer,
// which waits in idle whenever no answer is due: for the broker's next byte, which is an
// answer or tells that the broker hung up, and for wake. So an answer wakes one goroutine,
// which has it in hand then.
type upstreamReader struct {
	r  *bufio.Reader
	up net.Conn

	mu sync.Mutex // guards the following
	// waiting: the writer is in idle, and nobody reads an answer that a deadline could cut.
	waiting bool
	woken   bool
}

func newUpstreamReader(up net.Conn) *upstreamReader {
	return &upstreamReader{r: bufio.NewReaderSize(up, readBuffer), up: up}
}

// errWoken says that idle ended by wake.
var errWoken = errors.New("woken")

// idle waits for the next byte, or for wake, which the error errWoken tells of. pending is
// asked once a wake cannot be missed any more: if it is true, idle does not wait.
func (u *upstreamReader) idle(pending func() bool) error {
	u.mu.Lock()
	u.waiting = true
	u.mu.Unlock()
	var err error
	if pending() {
		err = errWoken
	} else {
		_, err = u.r.Peek(1)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waiting = false
	if !u.woken {
		return err
	}
	u.woken = false
	_ = u.up.SetReadDeadline(time.Time{})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errWoken
	}
	return err
}

// wake ends idle, if the writer is there. It is for what the broker will not wake it for.
func (u *upstreamReader) wake() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.waiting && !u.woken {
		u.woken = true
		_ = u.up.SetReadDeadline(time.Unix(1, 0))
	}
}

// size returns the length of the next frame without taking it from the reader.
func (u *upstreamReader) size() (int, error) {
	b, err := u.r.Peek(sizeLen)
	if err != nil {
		return 0, upstreamError(err)
	}
	n := int(int32(binary.BigEndian.Uint32(b)))
	if n < 0 {
		return 0, fmt.Errorf("response of %d bytes", n)
	}
	return n, nil
}

// checkCorrelation compares the correlation id of the next frame.
func (u *upstreamReader) checkCorrelation(want int32) error {
	b, err := u.r.Peek(sizeLen + minResponse)
	if err != nil {
		return upstreamError(err)
	}
	if got := int32(binary.BigEndian.Uint32(b[sizeLen:])); got != want {
		return fmt.Errorf("response with correlation id %d, want %d: out of step", got, want)
	}
	return nil
}

// Package scripted is a controller whose answers a test writes: it speaks Kafka's
// framing on a real socket and leaves every request to the test's function.
package scripted

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Handler answers one request. A nil response closes the connection unanswered. It
// runs on its connection's goroutine: different connections call it concurrently.
type Handler func(req kmsg.Request) kmsg.Response

// Controller is a listening fake controller.
type Controller struct {
	ln     net.Listener
	handle Handler
	// Features is what ApiVersions answers besides the versions of the APIs.
	features *kmsg.ApiVersionsResponse

	wg    sync.WaitGroup
	mu    sync.Mutex // guards the following
	conns map[net.Conn]struct{}
	done  bool
}

// keys are the APIs that the fake says it has.
var keys = []int16{1, 3, 18, 19, 20, 32, 43, 44, 45, 46, 55, 56, 59, 60, 62, 63, 64}

// Listen starts a fake controller. features, which may be nil, carries the features
// that its ApiVersions answer shows.
func Listen(addr string, features *kmsg.ApiVersionsResponse, handle Handler) (*Controller, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("scripted controller: %w", err)
	}
	c := &Controller{ln: ln, handle: handle, features: features, conns: make(map[net.Conn]struct{})}
	c.wg.Add(1)
	go c.accept()
	return c, nil
}

// Addr is where it listens.
func (c *Controller) Addr() string { return c.ln.Addr().String() }

// Close closes the listener and every connection and waits for their goroutines.
func (c *Controller) Close() {
	c.ln.Close()
	c.mu.Lock()
	c.done = true
	for conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
	c.wg.Wait()
}

func (c *Controller) accept() {
	defer c.wg.Done()
	for {
		conn, err := c.ln.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		if c.done {
			c.mu.Unlock()
			conn.Close()
			return
		}
		c.conns[conn] = struct{}{}
		c.wg.Add(1)
		c.mu.Unlock()
		go c.serve(conn)
	}
}

func (c *Controller) serve(conn net.Conn) {
	defer c.wg.Done()
	defer func() {
		conn.Close()
		c.mu.Lock()
		delete(c.conns, conn)
		c.mu.Unlock()
	}()
	for {
		size := make([]byte, 4)
		if _, err := io.ReadFull(conn, size); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size))
		if _, err := io.ReadFull(conn, frame); err != nil {
			return
		}
		req, err := parse(frame)
		if err != nil {
			return
		}
		var resp kmsg.Response
		if req.Key() == 18 {
			resp = c.apiVersions(req)
		} else {
			resp = c.handle(req)
		}
		if resp == nil {
			return
		}
		resp.SetVersion(req.GetVersion())
		out := append(make([]byte, 4, 256), frame[4:8]...)
		if resp.IsFlexible() && req.Key() != 18 {
			out = append(out, 0)
		}
		out = resp.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

func parse(frame []byte) (kmsg.Request, error) {
	if len(frame) < 10 {
		return nil, errors.New("short header")
	}
	req := kmsg.RequestForKey(int16(binary.BigEndian.Uint16(frame)))
	if req == nil {
		return nil, errors.New("unknown key")
	}
	req.SetVersion(int16(binary.BigEndian.Uint16(frame[2:])))
	body := frame[10:]
	if n := int16(binary.BigEndian.Uint16(frame[8:])); n > 0 {
		if int(n) > len(body) {
			return nil, errors.New("short client id")
		}
		body = body[n:]
	}
	if req.IsFlexible() {
		if len(body) == 0 {
			return nil, errors.New("no header tags")
		}
		body = body[1:] // franz-go sends no header tags
	}
	return req, req.ReadFrom(body)
}

func (c *Controller) apiVersions(req kmsg.Request) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if c.features != nil {
		resp.SupportedFeatures = c.features.SupportedFeatures
		resp.FinalizedFeatures = c.features.FinalizedFeatures
		resp.FinalizedFeaturesEpoch = c.features.FinalizedFeaturesEpoch
	}
	for _, k := range keys {
		r := kmsg.NewApiVersionsResponseApiKey()
		r.ApiKey, r.MaxVersion = k, kmsg.RequestForKey(k).MaxVersion()
		resp.ApiKeys = append(resp.ApiKeys, r)
	}
	return resp
}

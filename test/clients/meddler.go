package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// planted is what the meddler makes of every rack.
const planted = "planted"

// meddler stands between a sidecar and its broker and changes the racks that the broker tells of: what a proxy with a
// defect could do. It is there to be noticed.
type meddler struct {
	ln       net.Listener
	upstream string

	wg    sync.WaitGroup
	mu    sync.Mutex // guards the following
	conns map[net.Conn]bool
	ended bool
}

func startMeddler(upstream string) (*meddler, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("meddle with %s: %w", upstream, err)
	}
	m := &meddler{ln: ln, upstream: upstream, conns: map[net.Conn]bool{}}
	m.wg.Go(m.accept)
	return m, nil
}

func (m *meddler) addr() string { return m.ln.Addr().String() }

func (m *meddler) stop() error {
	err := m.ln.Close()
	m.mu.Lock()
	m.ended = true
	for c := range m.conns {
		_ = c.Close()
	}
	m.mu.Unlock()
	m.wg.Wait()
	return err
}

func (m *meddler) accept() {
	for {
		down, err := m.ln.Accept()
		if err != nil {
			return
		}
		up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", m.upstream)
		if err != nil || !m.hold(down, up) {
			_ = down.Close()
			if up != nil {
				_ = up.Close()
			}
			continue
		}
		asked := make(chan asking, 1024)
		m.wg.Go(func() { m.requests(down, up, asked) })
		m.wg.Go(func() { m.responses(up, down, asked) })
	}
}

func (m *meddler) hold(conns ...net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range conns {
		m.conns[c] = true
	}
	return !m.ended
}

func (m *meddler) drop(conns ...net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(m.conns, c)
	}
}

// asking is a request whose response is to come.
type asking struct {
	correlation int32
	resp        kmsg.Response
}

func (m *meddler) requests(down, up net.Conn, asked chan<- asking) {
	defer close(asked)
	defer m.drop(down, up)
	for {
		frame, err := readFrame(down)
		if err != nil || len(frame) < 8 {
			return
		}
		key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
		if key == int16(kmsg.Metadata) || key == int16(kmsg.DescribeCluster) {
			resp := kmsg.ResponseForKey(key)
			resp.SetVersion(version)
			asked <- asking{int32(binary.BigEndian.Uint32(frame[4:])), resp}
		}
		if err := writeFrame(up, frame); err != nil {
			return
		}
	}
}

func (m *meddler) responses(up, down net.Conn, asked <-chan asking) {
	defer m.drop(up, down)
	var waiting []asking
	for {
		frame, err := readFrame(up)
		if err != nil || len(frame) < 4 {
			return
		}
		for more := true; more; {
			select {
			case a, ok := <-asked:
				if more = ok; ok {
					waiting = append(waiting, a)
				}
			default:
				more = false
			}
		}
		for i, a := range waiting {
			if a.correlation == int32(binary.BigEndian.Uint32(frame)) {
				waiting = append(waiting[:i:i], waiting[i+1:]...)
				if frame, err = meddle(frame, a.resp); err != nil {
					return
				}
				break
			}
		}
		if err := writeFrame(down, frame); err != nil {
			return
		}
	}
}

// meddle changes the racks in a response.
func meddle(frame []byte, resp kmsg.Response) ([]byte, error) {
	body := frame[4:]
	if resp.IsFlexible() {
		body = body[1:] // no tags in the header
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, err
	}
	rack := planted
	switch r := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range r.Brokers {
			r.Brokers[i].Rack = &rack
		}
	case *kmsg.DescribeClusterResponse:
		for i := range r.Brokers {
			r.Brokers[i].Rack = &rack
		}
	}
	out := append([]byte{}, frame[:len(frame)-len(body)]...)
	return resp.AppendTo(out), nil
}

func readFrame(c net.Conn) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 100<<20 {
		return nil, errors.New("an oversized frame")
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(c, frame)
	return frame, err
}

func writeFrame(c net.Conn, frame []byte) error {
	_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	return err
}

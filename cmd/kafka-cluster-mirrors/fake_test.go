package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// fake is a broker, behind a sidecar or not, that answers as a test says and remembers what
// it was asked.
type fake struct {
	addr   string
	plain  bool // no sidecar: the mirror APIs are not listed
	answer func(kmsg.Request) kmsg.Response

	mu    sync.Mutex
	asked []string
}

func newFake(t *testing.T, answer func(kmsg.Request) kmsg.Response) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{addr: l.Addr().String(), answer: answer}
	var open sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			open.Go(func() {
				defer c.Close()
				if err := f.serve(c); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
					t.Logf("fake broker: %v", err)
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		open.Wait()
	})
	return f
}

func (f *fake) serve(c net.Conn) error {
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return err
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, frame); err != nil {
			return err
		}
		key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
		correlation, body := frame[4:8], frame[8:]
		if n := int16(binary.BigEndian.Uint16(body)); n > 0 { // client id
			body = body[n:]
		}
		body = body[2:]
		req := protocol.RequestForKey(key)
		if req == nil {
			req = kmsg.RequestForKey(key)
		}
		if req == nil {
			return fmt.Errorf("unknown key %d", key)
		}
		req.SetVersion(version)
		if req.IsFlexible() {
			body = body[1:] // no tags
		}
		if err := req.ReadFrom(body); err != nil {
			return fmt.Errorf("%s: %w", protocol.Name(key), err)
		}
		resp := f.respond(req)
		if resp == nil {
			return fmt.Errorf("no answer to %s", protocol.Name(key))
		}
		resp.SetVersion(version)
		out := append(make([]byte, 4), correlation...)
		if resp.IsFlexible() && key != 18 {
			out = append(out, 0)
		}
		out = resp.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := c.Write(out); err != nil {
			return err
		}
	}
}

func (f *fake) respond(req kmsg.Request) kmsg.Response {
	switch req.(type) {
	case *kmsg.ApiVersionsRequest:
		resp := kmsg.NewPtrApiVersionsResponse()
		kversion.Stable().EachMaxKeyVersion(func(key, top int16) {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = key, top
			resp.ApiKeys = append(resp.ApiKeys, k)
		})
		if !f.plain {
			protocol.ListAPIs(resp)
		}
		return resp
	case *kmsg.MetadataRequest:
		return f.answer(req)
	}
	f.mu.Lock()
	f.asked = append(f.asked, requestText(req))
	f.mu.Unlock()
	return f.answer(req)
}

// requests gives what was asked since the last call, without what looks only.
func (f *fake) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.DeleteFunc(f.asked, func(s string) bool { return strings.HasPrefix(s, "look ") })
	f.asked = nil
	return out
}

func requestText(req kmsg.Request) string {
	switch r := req.(type) {
	case *protocol.DescribeClusterMirrorsRequest, *kmsg.ListOffsetsRequest, *kmsg.ListGroupsRequest, *kmsg.OffsetFetchRequest, *kmsg.FindCoordinatorRequest:
		return "look " + protocol.Name(req.Key())
	case *kmsg.IncrementalAlterConfigsRequest:
		var b strings.Builder
		for _, res := range r.Resources {
			fmt.Fprintf(&b, "IncrementalAlterConfigs %d %s", res.ResourceType, res.ResourceName)
			for _, c := range res.Configs {
				fmt.Fprintf(&b, " %s %s=%s", c.Op, c.Name, deref(c.Value))
			}
		}
		fmt.Fprintf(&b, " validate=%t", r.ValidateOnly)
		return b.String()
	case *kmsg.DescribeConfigsRequest:
		return fmt.Sprintf("DescribeConfigs %d %s %v", r.Resources[0].ResourceType, r.Resources[0].ResourceName, r.Resources[0].ConfigNames)
	case *kmsg.OffsetCommitRequest:
		var b strings.Builder
		fmt.Fprintf(&b, "OffsetCommit %s", r.Group)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				fmt.Fprintf(&b, " %s-%d=%d", t.Topic, p.Partition, p.Offset)
			}
		}
		return b.String()
	}
	text, err := json.Marshal(req)
	if err != nil {
		return err.Error()
	}
	return protocol.Name(req.Key()) + " " + string(text)
}

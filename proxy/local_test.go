package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// apiBroker is a broker of a future release: it knows ApiVersions up to a version, offers
// versions beyond what the proxy knows and an API that nobody knows, and answers as KIP-511 has it.
func apiBroker(t testing.TB, max int16, identity func(*kmsg.ApiVersionsRequest)) script {
	return func(_ net.Conn, h header, frame []byte) []byte {
		resp := kmsg.NewPtrApiVersionsResponse()
		if h.key != keyAPIVersions {
			t.Errorf("API %d", h.key)
			return nil
		}
		own := kmsg.ApiVersionsResponseApiKey{ApiKey: keyAPIVersions, MaxVersion: max}
		switch {
		case h.version < 0 || h.version > max:
			resp.ErrorCode = errUnsupportedVersion
			resp.ApiKeys = append(resp.ApiKeys, own)
			return appendResponse(nil, resp, h.correlation)
		case h.version > 5: // of a form that kmsg does not know
			return frameOf(append(binary.BigEndian.AppendUint32(nil, uint32(h.correlation)), 0, 0, 0xff, 0xff, 0xff))
		case h.version == 5 && identity != nil:
			req := kmsg.NewPtrApiVersionsRequest()
			req.Version = h.version
			if err := req.ReadFrom(frame[h.size:]); err != nil || req.ClientSoftwareName != "sw" {
				t.Errorf("request %+v, %v", req, err)
			}
			identity(req)
		}
		resp.Version = h.version
		for _, key := range []int16{int16(kmsg.Produce), int16(kmsg.Fetch), int16(kmsg.OffsetCommit), 4711} {
			resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: 99})
		}
		// Below what the proxy knows nothing is left of an API.
		resp.ApiKeys = append(resp.ApiKeys, own, kmsg.ApiVersionsResponseApiKey{ApiKey: int16(kmsg.DeleteTopics), MinVersion: 98, MaxVersion: 99})
		resp.SupportedFeatures = []kmsg.ApiVersionsResponseSupportedFeature{{Name: "metadata.version", MinVersion: 1, MaxVersion: 77}}
		resp.FinalizedFeaturesEpoch = 12
		resp.FinalizedFeatures = []kmsg.ApiVersionsResponseFinalizedFeature{{Name: "metadata.version", MinVersionLevel: 1, MaxVersionLevel: 77}}
		return appendResponse(nil, resp, h.correlation)
	}
}

func TestApiVersions(t *testing.T) {
	start := func(t *testing.T, brokers int16) *client {
		b := startBroker(t, apiBroker(t, brokers, nil))
		s := setup{}
		s.deps.Mirror = &fakeHandler{}
		_, addr := s.start(t, b)
		return dial(t, addr)
	}
	receive := func(t *testing.T, c *client, version int16) *kmsg.ApiVersionsResponse {
		t.Helper()
		frame, err := readFrame(c)
		if err != nil {
			t.Fatal(err)
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.Version = version
		if err := resp.ReadFrom(frame[4:]); err != nil || binary.BigEndian.Uint32(frame) != 9 {
			t.Fatalf("%x: %v", frame, err)
		}
		return resp
	}
	for version := int16(0); version <= 5; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			c := start(t, 9)
			req := kmsg.NewPtrApiVersionsRequest()
			req.Version = version
			req.ClientSoftwareName, req.ClientSoftwareVersion = "sw", "1"
			c.send(req, 9)
			resp := receive(t, c, version)
			want := map[int16]int16{int16(kmsg.Produce): 13, int16(kmsg.Fetch): 18, int16(kmsg.OffsetCommit): 99, 4711: 99, keyAPIVersions: 5, 12794: 0, 12799: 0}
			got := make(map[int16]int16)
			for _, k := range resp.ApiKeys {
				got[k.ApiKey] = k.MaxVersion
			}
			if !maps.Equal(got, want) || resp.ErrorCode != errNone {
				t.Errorf("error %d, %v, want %v", resp.ErrorCode, got, want)
			}
			if version >= 3 && (len(resp.SupportedFeatures) != 1 || resp.FinalizedFeaturesEpoch != 12 || resp.FinalizedFeatures[0].MaxVersionLevel != 77) {
				t.Errorf("features %+v", resp)
			}
		})
	}
	for name, tc := range map[string]struct{ version, brokers, want int16 }{
		"newer than both":                   {12, 9, 5},
		"newer than the proxy":              {8, 9, 5},
		"newer than both, of an old broker": {6, 3, 3},
		"newer than an old broker":          {4, 3, 3},
		"negative":                          {-1, 9, 5},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, tc.brokers)
			// Of such a version only the header is known.
			if _, err := c.Write(frameOf([]byte{0, 18, byte(tc.version >> 8), byte(tc.version), 0, 0, 0, 9, 0xff, 0xff, 0, 0xde, 0xad})); err != nil {
				t.Fatal(err)
			}
			resp := receive(t, c, 0)
			if resp.ErrorCode != errUnsupportedVersion || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != keyAPIVersions || resp.ApiKeys[0].MaxVersion != tc.want {
				t.Errorf("%+v", resp)
			}
			// The connection goes on.
			req := kmsg.NewPtrApiVersionsRequest()
			c.send(req, 9)
			if resp := receive(t, c, 0); resp.ErrorCode != errNone {
				t.Errorf("then: %+v", resp)
			}
		})
	}
}

// Who looks for the virtual broker at its listener finds it, although a real one answers; whoever
// else looks for a broker is told by the broker whether it is the one.
func TestApiVersionsIdentity(t *testing.T) {
	const cluster, other, any = "ours", "theirs", ""
	for name, tc := range map[string]struct {
		virtual   bool
		cluster   string
		node      int32
		untouched bool // else the broker is asked for nobody
	}{
		"client listener, home":                  {false, cluster, 1, true},
		"client listener, another":               {false, cluster, 2, true},
		"client listener, virtual":               {false, cluster, 10001, true},
		"virtual listener, virtual":              {true, cluster, 10001, false},
		"virtual listener, virtual, any cluster": {true, any, 10001, false},
		"virtual listener, another cluster's":    {true, other, 10001, true},
		"virtual listener, another":              {true, cluster, 10002, true},
		"virtual listener, anybody":              {true, any, -1, true},
	} {
		t.Run(name, func(t *testing.T) {
			var got kmsg.ApiVersionsRequest
			b := startBroker(t, apiBroker(t, 5, func(r *kmsg.ApiVersionsRequest) { got = *r }))
			s := setup{}
			s.cfg.Virtual, s.cfg.ClusterID = tc.virtual, cluster
			_, addr := s.start(t, b)
			req := kmsg.NewPtrApiVersionsRequest()
			req.Version = 5
			req.ClientSoftwareName, req.ClientSoftwareVersion = "sw", "1"
			req.NodeID = tc.node
			if tc.cluster != any {
				req.ClusterID = &tc.cluster
			}
			dial(t, addr).ask(req)
			want := *req
			if !tc.untouched {
				want.NodeID, want.ClusterID = -1, nil
			}
			if got.NodeID != want.NodeID || (got.ClusterID == nil) != (want.ClusterID == nil) || got.ClusterID != nil && *got.ClusterID != *want.ClusterID {
				t.Errorf("the broker was asked for %d of %v, want %d of %v", got.NodeID, got.ClusterID, want.NodeID, want.ClusterID)
			}
		})
	}
}

// fakeHandler echoes bodies.
type fakeHandler struct {
	handle func(ctx context.Context, key int16, clientID string, body []byte) ([]byte, error)
}

func (h *fakeHandler) Keys() []int16 { return []int16{12794, 12799} }

func (h *fakeHandler) Handle(ctx context.Context, key, _ int16, clientID string, body []byte) ([]byte, error) {
	return h.handle(ctx, key, clientID, body)
}

func mirrorFrame(key, version int16, body string) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = append(b, 0, 0, 0, 9, 0, 2, 'm', 'e', 1, 7, 1, 0) // a tagged field in the header
	return frameOf(append(b, body...))
}

func TestMirrorAPIs(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		t.Run(fmt.Sprintf("virtual %v", virtual), func(t *testing.T) {
			b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
				resp := req.ResponseKind()
				if d, ok := resp.(*kmsg.DescribeClusterResponse); ok {
					d.ClusterAuthorizedOperations = 4711
				}
				return resp
			}))
			s := setup{}
			s.cfg.Virtual = virtual
			s.deps.Mirror = &fakeHandler{handle: func(ctx context.Context, key int16, clientID string, body []byte) ([]byte, error) {
				who, ok := CallerOf(ctx)
				if !ok || who.ClientID() != "me" {
					return nil, errors.New("no caller")
				}
				resp, err := who.Request(ctx, kmsg.NewPtrDescribeClusterRequest())
				if err != nil {
					return nil, err
				}
				ops := resp.(*kmsg.DescribeClusterResponse).ClusterAuthorizedOperations
				return fmt.Appendf(nil, "%d %s %s %d", key, clientID, body, ops), nil
			}}
			_, addr := s.start(t, b)
			c := dial(t, addr)
			for range 2 { // pipelined
				if _, err := c.Write(mirrorFrame(12799, 0, "body")); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				frame, err := readFrame(c)
				if err != nil {
					t.Fatal(err)
				}
				if want := "\x00\x00\x00\x09\x0012799 me body 4711"; string(frame) != want {
					t.Errorf("got %q, want %q", frame, want)
				}
			}
			if _, err := c.Write(mirrorFrame(12799, 1, "")); err != nil {
				t.Fatal(err)
			}
			c.wantClosed()
		})
	}
}

func TestUnauthenticatedCallersGetNothing(t *testing.T) {
	// A broker hangs up on whoever has not authenticated.
	b := startBroker(t, func(c net.Conn, _ header, _ []byte) []byte { c.Close(); return nil })
	s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0))}
	s.cfg.Virtual = true
	s.deps.Mirror = &fakeHandler{handle: func(context.Context, int16, string, []byte) ([]byte, error) {
		t.Error("handled")
		return nil, nil
	}}
	_, addr := s.start(t, b)
	for name, frame := range map[string][]byte{
		"mirror API": mirrorFrame(12799, 0, ""),
		"produce":    encodeRequest(produceRequest(9, 1, "m", 0), 1, nil),
		"follower":   encodeRequest(followerFetch(16), 1, nil),
		"log dirs":   encodeRequest(kmsg.NewPtrDescribeLogDirsRequest(), 1, nil),
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, addr)
			if _, err := c.Write(frame); err != nil {
				t.Fatal(err)
			}
			c.wantClosed()
		})
	}
}

// fakeCoordinators knows mirrors whose names begin with known, beside broker 2, and with lost,
// beside a broker that is not there.
type fakeCoordinators struct{}

func (fakeCoordinators) FindCoordinator(key string) (int32, error) {
	switch {
	case strings.HasPrefix(key, "known"):
		return 2, nil
	case strings.HasPrefix(key, "lost"):
		return 7, nil
	}
	return -1, protocol.Errorf(protocol.UnknownClusterMirror, "there is no mirror %q", key)
}

// clusterBroker answers DescribeCluster with brokers 1 and 2 and the given operations.
func clusterBroker(t *testing.T, ops int32) *fakeBroker {
	return startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind()
		switch r := resp.(type) {
		case *kmsg.DescribeClusterResponse:
			r.ClusterAuthorizedOperations = ops
			for _, id := range []int32{1, 2, 10001} {
				r.Brokers = append(r.Brokers, kmsg.DescribeClusterResponseBroker{NodeID: id, Host: "broker", Port: id})
			}
		case *kmsg.FindCoordinatorResponse:
			r.NodeID = 1
			r.Coordinators = []kmsg.FindCoordinatorResponseCoordinator{{NodeID: 1}}
		}
		return resp
	}))
}

func TestFindMirrorCoordinator(t *testing.T) {
	const describe = 1 << 8
	for name, tc := range map[string]struct {
		hosts map[int32]HostPort
		ops   int32
		want  map[string]string // by key: node, address and error
	}{
		"advertised": {nil, describe, map[string]string{
			"known": "2 broker:2 0", "known:AAAAAAAAAAAAAAAAAAAAAQ:3": "2 broker:2 0", "other": "-1 :-1 12837", "lost": "-1 :-1 15",
		}},
		"mapped":      {map[int32]HostPort{2: {"p2", 9002}}, describe, map[string]string{"known": "2 p2:9002 0"}},
		"not allowed": {nil, 1 << 3, map[string]string{"known": "-1 :-1 12844", "other": "-1 :-1 12844"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := clusterBroker(t, tc.ops)
			s := setup{}
			s.cfg.Hosts = tc.hosts
			s.deps.Coordinators = fakeCoordinators{}
			_, addr := s.start(t, b)
			c := dial(t, addr)
			for version := int16(1); version <= 6; version++ {
				req := kmsg.NewPtrFindCoordinatorRequest()
				req.Version, req.CoordinatorType = version, 3
				for key := range tc.want {
					req.CoordinatorKeys = append(req.CoordinatorKeys, key)
				}
				got := map[string]string{}
				if version >= 4 {
					for i, co := range c.ask(req).(*kmsg.FindCoordinatorResponse).Coordinators {
						if co.Key != req.CoordinatorKeys[i] || (co.ErrorMessage == nil) != (co.ErrorCode == 0) {
							t.Errorf("v%d: %+v", version, co)
						}
						got[co.Key] = fmt.Sprintf("%d %s:%d %d", co.NodeID, co.Host, co.Port, co.ErrorCode)
					}
				} else {
					for key := range tc.want {
						req.CoordinatorKey = key
						co := c.ask(req).(*kmsg.FindCoordinatorResponse)
						got[key] = fmt.Sprintf("%d %s:%d %d", co.NodeID, co.Host, co.Port, co.ErrorCode)
					}
				}
				if !maps.Equal(got, tc.want) {
					t.Errorf("v%d: got %v, want %v", version, got, tc.want)
				}
			}
			for _, r := range b.requests() {
				if r.key == int16(kmsg.FindCoordinator) {
					t.Error("forwarded")
				}
			}
		})
	}
	t.Run("other key types", func(t *testing.T) {
		b := clusterBroker(t, 0)
		s := setup{}
		s.deps.Coordinators = fakeCoordinators{}
		_, addr := s.start(t, b)
		c := dial(t, addr)
		for version := int16(0); version <= 6; version++ {
			for kind := range int8(3) {
				req := kmsg.NewPtrFindCoordinatorRequest()
				req.Version, req.CoordinatorType, req.CoordinatorKeys = version, kind, []string{"known"}
				if got := c.ask(req).(*kmsg.FindCoordinatorResponse); version < 4 && got.NodeID != 1 || version >= 4 && got.Coordinators[0].NodeID != 1 {
					t.Errorf("v%d, type %d: %+v", version, kind, got)
				}
			}
		}
	})
}

func TestVirtualBrokerDescribesItself(t *testing.T) {
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind()
		if d, ok := req.(*kmsg.DescribeConfigsRequest); ok {
			for _, res := range d.Resources {
				if res.ResourceName == "10001" {
					t.Error("asked for the virtual broker")
				}
				resp.(*kmsg.DescribeConfigsResponse).Resources = append(resp.(*kmsg.DescribeConfigsResponse).Resources,
					kmsg.DescribeConfigsResponseResource{ResourceType: res.ResourceType, ResourceName: res.ResourceName})
			}
		}
		return resp
	}))
	s := setup{}
	s.cfg.Virtual = true
	_, addr := s.start(t, b)
	c := dial(t, addr)
	dirs := kmsg.NewPtrDescribeLogDirsRequest()
	dirs.Version = 4
	if got := c.ask(dirs).(*kmsg.DescribeLogDirsResponse); len(got.Dirs) != 0 || got.ErrorCode != 0 {
		t.Errorf("%+v", got)
	}
	for _, names := range [][]string{{"10001"}, {"10001", "t"}, {"t"}} {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version = 4
		for _, name := range names {
			res := kmsg.NewDescribeConfigsRequestResource()
			res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, name
			if name == "10001" {
				res.ResourceType = kmsg.ConfigResourceTypeBroker
			}
			req.Resources = append(req.Resources, res)
		}
		got := c.ask(req).(*kmsg.DescribeConfigsResponse)
		if len(got.Resources) != len(names) {
			t.Fatalf("%+v", got)
		}
		for i, res := range got.Resources {
			if res.ResourceName != names[i] || res.ErrorCode != 0 {
				t.Errorf("%+v", res)
			}
		}
	}
}

// Every row of the table says why it is there, and knows versions that kmsg knows.
func TestTable(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range table() {
		req := kmsg.RequestForKey(r.key)
		if r.why == "" || r.at == 0 || req == nil {
			t.Errorf("API %d: incomplete", r.key)
			continue
		}
		if r.max > req.MaxVersion() {
			t.Errorf("%s: up to version %d, kmsg knows %d", kmsg.NameForKey(r.key), r.max, req.MaxVersion())
		}
		for _, l := range []at{atClient, atVirtual} {
			if id := fmt.Sprint(r.key, l); r.at&l != 0 {
				if seen[id] {
					t.Errorf("%s: two rows for one listener", kmsg.NameForKey(r.key))
				}
				seen[id] = true
			}
		}
	}
}

package coordinator

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// allowed is a caller that the cluster allows these operations.
type allowed []operation

func (a allowed) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	if r, ok := req.(*kmsg.DescribeClusterRequest); !ok || !r.IncludeClusterAuthorizedOperations {
		return nil, errors.New("not what was expected")
	}
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.ClusterAuthorizedOperations = 0
	for _, op := range a {
		resp.ClusterAuthorizedOperations |= 1 << op
	}
	return resp, nil
}

func TestAuthorize(t *testing.T) {
	for name, c := range map[string]struct {
		req  kmsg.Request
		have allowed
		ok   bool
	}{
		"create with both":         {&protocol.CreateClusterMirrorRequest{}, allowed{opCreate, opAlter}, true},
		"create without ALTER":     {&protocol.CreateClusterMirrorRequest{}, allowed{opCreate, opDescribe}, false},
		"create without CREATE":    {&protocol.CreateClusterMirrorRequest{}, allowed{opAlter, opDescribe}, false},
		"start":                    {&protocol.StartMirrorTopicsRequest{}, allowed{opAlter}, true},
		"start without":            {&protocol.StartMirrorTopicsRequest{}, allowed{opCreate, opDescribe, opClusterAction}, false},
		"stop without":             {&protocol.StopMirrorTopicsRequest{}, allowed{opDescribe}, false},
		"recover without":          {&protocol.RecoverMirrorTopicsRequest{}, allowed{opDescribe}, false},
		"delete without":           {&protocol.DeleteClusterMirrorRequest{}, allowed{opDescribe}, false},
		"describe":                 {&protocol.DescribeClusterMirrorsRequest{}, allowed{opDescribe}, true},
		"list without":             {&protocol.ListClusterMirrorsRequest{}, allowed{opAlter}, false},
		"states between sidecars":  {&protocol.WriteMirrorStatesRequest{}, allowed{opClusterAction}, true},
		"states from somebody":     {&protocol.WriteMirrorStatesRequest{}, allowed{opAlter, opCreate, opDescribe}, false},
		"reading states":           {&protocol.ReadMirrorStatesRequest{}, allowed{opDescribe}, false},
		"un-cordoning by somebody": {&protocol.UncordonVirtualBrokerRequest{}, allowed{opAlter}, false},
	} {
		t.Run(name, func(t *testing.T) {
			co := &Coordinator{deps: Deps{Caller: func(context.Context) (Caller, bool) { return c.have, true }}}
			err := co.authorize(t.Context(), c.req)
			if (err == nil) != c.ok {
				t.Fatalf("got %v", err)
			}
			if err == nil {
				return
			}
			if code, _ := protocol.CodeOf(err); code != protocol.ClusterMirrorAuthorizationFailed {
				t.Errorf("code %d", code)
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		co := &Coordinator{deps: Deps{Caller: func(context.Context) (Caller, bool) { return nil, false }}}
		if co.authorize(t.Context(), &protocol.ListClusterMirrorsRequest{}) == nil {
			t.Error("allowed")
		}
	})
}

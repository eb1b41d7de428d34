package rights

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// broker answers as a script says.
type broker func(kmsg.Request) (kmsg.Response, error)

func (b broker) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) { return b(req) }

// answering gives every resource of a request the code of its name.
func answering(t *testing.T, codes map[string]int16) broker {
	return func(req kmsg.Request) (kmsg.Response, error) {
		switch r := req.(type) {
		case *kmsg.IncrementalAlterConfigsRequest:
			if !r.ValidateOnly {
				t.Error("something would change")
			}
			resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
			for _, res := range slices.Backward(r.Resources) {
				if len(res.Configs) > 0 {
					t.Error("something would change")
				}
				resp.Resources = append(resp.Resources, kmsg.IncrementalAlterConfigsResponseResource{
					ResourceType: res.ResourceType, ResourceName: res.ResourceName, ErrorCode: codes[res.ResourceName],
				})
			}
			return resp, nil
		case *kmsg.DescribeConfigsRequest:
			resp := kmsg.NewPtrDescribeConfigsResponse()
			resp.Resources = []kmsg.DescribeConfigsResponseResource{{ErrorCode: codes[""]}}
			return resp, nil
		case *kmsg.DescribeClusterRequest:
			resp := kmsg.NewPtrDescribeClusterResponse()
			resp.ClusterAuthorizedOperations = 1<<7 | 1<<8
			return resp, nil
		}
		return nil, fmt.Errorf("unexpected %T", req)
	}
}

func TestOnCluster(t *testing.T) {
	s, err := OnCluster(t.Context(), answering(t, nil))
	if err != nil || !s.Has(Alter) || !s.Has(Describe) || s.Has(Create) {
		t.Errorf("got %b, %v", s, err)
	}
	if Set(-1<<31).Has(Alter) || Set(-1<<31).Has(31) {
		t.Error("Kafka's number for not asked allows something")
	}
}

func TestDeniedTopics(t *testing.T) {
	codes := map[string]int16{"denied": 29, "missing": 3, "odd name": 17, "policy": 44, "also": 29}
	got, err := DeniedTopics(t.Context(), answering(t, codes), []string{"ok", "denied", "missing", "odd name", "denied", "policy", "also"})
	if want := []string{"denied", "denied", "also"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	codes["also"] = 7
	if _, err := DeniedTopics(t.Context(), answering(t, codes), []string{"also"}); err == nil {
		t.Error("a time-out is taken for a verdict")
	}
	var many []string
	for i := range 2*chunk + 1 {
		many = append(many, fmt.Sprint("t", i))
	}
	asked := 0
	count := broker(func(req kmsg.Request) (kmsg.Response, error) {
		asked++
		return answering(t, codes).Request(t.Context(), req)
	})
	if got, err := DeniedTopics(t.Context(), count, many); len(got) > 0 || err != nil || asked != 3 {
		t.Errorf("%d requests, denied %v, %v", asked, got, err)
	}
	empty := broker(func(req kmsg.Request) (kmsg.Response, error) { return req.ResponseKind(), nil })
	if _, err := DeniedTopics(t.Context(), empty, []string{"t"}); err == nil {
		t.Error("no answer is taken for a verdict")
	}
}

func TestClusterConfigs(t *testing.T) {
	for name, ask := range map[string]func(context.Context, Asker) (bool, error){
		"describe": DescribesClusterConfigs, "alter": AltersClusterConfigs,
	} {
		t.Run(name, func(t *testing.T) {
			for code, want := range map[int16]bool{0: true, 31: false, 40: true} {
				if got, err := ask(t.Context(), answering(t, map[string]int16{"": code})); got != want || err != nil {
					t.Errorf("code %d: %t, %v", code, got, err)
				}
			}
			if _, err := ask(t.Context(), answering(t, map[string]int16{"": -1})); err == nil {
				t.Error("an error is taken for a verdict")
			}
			broken := errors.New("broken")
			dead := broker(func(kmsg.Request) (kmsg.Response, error) { return nil, broken })
			if _, err := ask(t.Context(), dead); !errors.Is(err, broken) {
				t.Errorf("got %v", err)
			}
		})
	}
}

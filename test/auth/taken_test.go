package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// get returns what an address of a sidecar says, whatever its status.
func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// single is one right of some.
func single(a acl, op kmsg.ACLOperation) acl {
	a.allowed = []kmsg.ACLOperation{op}
	return a
}

// says waits until /readyz of the first sidecar has all texts, or has none of them.
func (e *env) says(t *testing.T, there bool, texts ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("/readyz has %q: %t", texts, there), func(ctx context.Context) error {
		body, err := get(ctx, "http://"+e.dst.Sidecars[0].HTTP+"/readyz")
		if err != nil {
			return err
		}
		for _, text := range texts {
			if strings.Contains(body, text) != there {
				return errors.New(body)
			}
		}
		return nil
	})
}

// testTaken takes rights of the sidecars away, which say so by themselves, and gives them back.
func (e *env) testTaken(t *testing.T) {
	e.says(t, false, "lacks")
	some := []acl{
		{userSidecar, kmsg.ACLResourceTypeTopic, protocol.StateTopic, []kmsg.ACLOperation{kmsg.ACLOperationWrite}},
		{userSidecar, kmsg.ACLResourceTypeCluster, "kafka-cluster", []kmsg.ACLOperation{kmsg.ACLOperationDescribeConfigs}},
		{userSidecar, kmsg.ACLResourceTypeTopic, anyName, []kmsg.ACLOperation{kmsg.ACLOperationCreate}},
	}
	e.take(t, e.dst.Cluster, some)
	e.says(t, true,
		"User:"+userSidecar+" lacks", "DESCRIBE_CONFIGS on the cluster", "--allow-principal User:"+userSidecar+" --operation DescribeConfigs --cluster",
		"WRITE on topic "+protocol.StateTopic, "--operation Write --topic "+protocol.StateTopic)
	e.allow(t, e.dst.Cluster, some[:2])
	e.says(t, false, "lacks")
	e.create(t)
	// A topic that may not be created waits, and the log says for what.
	if got := results(t, e.ask(t, userAll, 0, &protocol.StartMirrorTopicsRequest{MirrorName: mirror, Topics: []string{"auth-b"}})); got["auth-b"] != 0 {
		t.Fatalf("start: %v", got)
	}
	eventually(t, "the log says what is missing", func(context.Context) error {
		for _, c := range e.dst.Sidecars {
			log, err := os.ReadFile(c.LogFile())
			if err != nil {
				return err
			}
			if strings.Contains(string(log), "lacks CREATE on topic auth-b") {
				return nil
			}
		}
		return errors.New("no word of it")
	})
	e.allow(t, e.dst.Cluster, some[2:])
	e.awaitMirrored(t, "auth-b")
	if !harness.Full() {
		return
	}
	t.Run("each", func(t *testing.T) { e.takenEach(t) })
	t.Run("at the source", func(t *testing.T) { e.takenAtSource(t) })
}

// included are rights that others include: to take them away takes nothing away.
func included(a acl, op kmsg.ACLOperation) bool {
	switch op {
	case kmsg.ACLOperationDescribe:
		return true // in ALTER, READ, WRITE
	case kmsg.ACLOperationDescribeConfigs:
		return a.kind == kmsg.ACLResourceTypeTopic // in ALTER_CONFIGS
	case kmsg.ACLOperationCreate:
		return true // of topics that are there: see testTaken
	}
	return false
}

// awaitMirrored returns when a topic mirrors.
func (e *env) awaitMirrored(t *testing.T, topic string) {
	t.Helper()
	eventually(t, topic+" mirrors", func(context.Context) error {
		req := protocol.NewDescribeClusterMirrorsRequest()
		r := e.ask(t, userAll, 0, &req).(*protocol.DescribeClusterMirrorsResponse)
		for _, m := range r.Mirrors {
			for _, dt := range m.Topics {
				for _, p := range dt.Partitions {
					if dt.TopicName == topic && p.State == 2 {
						return nil
					}
				}
			}
		}
		return fmt.Errorf("%+v", r)
	})
}

// takenEach takes each right away, alone, while a topic is mirrored.
func (e *env) takenEach(t *testing.T) {
	if got := results(t, e.ask(t, userAll, 0, &protocol.StartMirrorTopicsRequest{MirrorName: mirror, Topics: []string{"auth-a"}, AllowTruncate: true})); got["auth-a"] != 0 {
		t.Fatalf("start: %v", got)
	}
	e.awaitMirrored(t, "auth-a")
	for _, a := range sidecarACLs() {
		for _, op := range a.allowed {
			if included(a, op) {
				continue
			}
			t.Run(fmt.Sprint(a.kind, " ", a.name, " ", op), func(t *testing.T) {
				one := []acl{single(a, op)}
				e.take(t, e.dst.Cluster, one)
				want := op.String() + " on "
				switch {
				case a.kind == kmsg.ACLResourceTypeCluster:
					want += "the cluster"
				case a.kind == kmsg.ACLResourceTypeTopic && a.name == anyName:
					want += "topic auth-a"
				case a.kind == kmsg.ACLResourceTypeTopic:
					want += "topic " + a.name
				case a.kind == kmsg.ACLResourceTypeGroup:
					want += "group *"
				default:
					want += "transactional id " + protocol.StateTransactions
				}
				e.says(t, true, want, "--allow-principal User:"+userSidecar)
				e.allow(t, e.dst.Cluster, one)
				e.says(t, false, "lacks")
			})
		}
	}
	e.awaitMirrored(t, "auth-a")
}

// takenAtSource takes each right of the mirror's user away: what is described names it.
func (e *env) takenAtSource(t *testing.T) {
	for _, a := range sourceACLs() {
		for _, op := range a.allowed {
			t.Run(op.String(), func(t *testing.T) {
				one := []acl{single(a, op)}
				e.take(t, e.src, one)
				want := fmt.Sprintf("the mirror's user at the source lacks %s on topic auth-", op)
				eventually(t, "it is told", func(ctx context.Context) error {
					resp := e.ask(t, userAll, 0, &protocol.StartMirrorTopicsRequest{MirrorName: mirror, Topics: []string{"auth-c"}, ValidateOnly: true})
					if r := resp.(*protocol.StartMirrorTopicsResponse); len(r.Topics) == 1 && strings.Contains(text(r.Topics[0].ErrorMessage), want) {
						return nil
					}
					out, err := e.describe(ctx, t)
					if err == nil && strings.Contains(out, want) {
						return nil
					}
					_, message := codeOf(t, resp)
					return fmt.Errorf("%+v %s\n%s", resp, message, out)
				})
				e.allow(t, e.src, one)
			})
		}
	}
	e.awaitMirrored(t, "auth-a")
}

// describe is all that is told of the mirror.
func (e *env) describe(_ context.Context, t *testing.T) (string, error) {
	req := protocol.NewDescribeClusterMirrorsRequest()
	r := e.ask(t, userAll, 0, &req).(*protocol.DescribeClusterMirrorsResponse)
	var b strings.Builder
	for _, m := range r.Mirrors {
		for _, dt := range m.Topics {
			for _, p := range dt.Partitions {
				fmt.Fprintf(&b, "%s-%d state %d: %s %s\n", dt.TopicName, p.PartitionIndex, p.State, text(p.Detail), text(p.ErrorMessage))
			}
		}
		for _, p := range m.Policies {
			fmt.Fprintf(&b, "%s: %s %v\n", p.Kind, text(p.LastError), p.Skipped)
		}
	}
	return b.String(), nil
}

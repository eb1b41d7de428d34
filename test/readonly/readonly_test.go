package readonly

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// TestReadOnly has one stack for all: starting it takes longer than the tests.
func TestReadOnly(t *testing.T) {
	e := start(t, nil)
	steps := []struct {
		name string
		run  func(*testing.T, *env)
	}{
		{"the state topic is not created by asking for it", stateTopicNotCreated},
		{"what brokers serve among themselves is not offered", insideNotOffered},
		{"apis", func(t *testing.T, e *env) { e.mirror(t); apis(t, e) }},
		{"producers", func(t *testing.T, e *env) { produced(t, e, func(p producer) wording { return p.usual }) }},
	}
	for _, s := range steps {
		if !t.Run(s.name, func(t *testing.T) { s.run(t, e) }) {
			return
		}
	}
}

// TestReadOnlyError: producers go on after the KIP's own error, too, which they do not know.
func TestReadOnlyError(t *testing.T) {
	if !harness.Full() {
		t.Skip("with MIRROR_FULL=1")
	}
	e := start(t, map[string]string{"read.only.error": "read-only-topic"})
	e.mirror(t)
	produced(t, e, func(p producer) wording { return p.own })
}

func newClient(t *testing.T, seeds []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second), kgo.DisableClientMetrics(),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// stateTopicNotCreated runs before there is a mirror. Brokers create what a client asks for.
func stateTopicNotCreated(t *testing.T, e *env) {
	topics := []string{"asked-for", protocol.StateTopic}
	for _, c := range e.dst.Sidecars {
		for _, addr := range []string{c.Proxy, c.Virtual} {
			k := apiVersions(t, addr)[int16(kmsg.Metadata)]
			for version := k.MinVersion; version <= k.MaxVersion; version++ {
				req := kmsg.NewPtrMetadataRequest()
				req.Version, req.AllowAutoTopicCreation = version, true
				for _, name := range topics {
					req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &name})
				}
				var got []string
				for _, rt := range ask[*kmsg.MetadataResponse](t, addr, req).Topics {
					got = append(got, text(rt.Topic))
					if text(rt.Topic) == protocol.StateTopic && rt.ErrorCode != kerr.UnknownTopicOrPartition.Code {
						t.Errorf("v%d: the state topic: %s", version, name(rt.ErrorCode))
					}
				}
				slices.Sort(got)
				if !slices.Equal(got, []string{protocol.StateTopic, "asked-for"}) {
					t.Errorf("v%d: an answer for %q", version, got)
				}
			}
		}
	}
	// The other topic is there, and so the state topic would be.
	harness.AwaitT(t, patience, "a topic that was asked for", func(ctx context.Context) error {
		all, err := e.admin.ListTopics(ctx)
		if err != nil {
			return err
		}
		if !all.Has("asked-for") {
			return errors.New("it is not there")
		}
		if all.Has(protocol.StateTopic) {
			t.Error("the state topic is there")
		}
		return nil
	})
}

// insideNotOffered: a proxy offers what its broker does, and relays what is not in the table, so that
// what would change partitions behind the table's back must be what brokers do not serve to clients.
func insideNotOffered(t *testing.T, e *env) {
	for _, c := range e.dst.Sidecars {
		for _, addr := range []string{c.Proxy, c.Virtual} {
			offered := apiVersions(t, addr)
			for _, key := range []kmsg.Key{
				kmsg.LeaderAndISR, kmsg.StopReplica, kmsg.UpdateMetadata, kmsg.ControlledShutdown, kmsg.Vote, kmsg.BeginQuorumEpoch,
				kmsg.EndQuorumEpoch, kmsg.FetchSnapshot, kmsg.AlterPartition, kmsg.Envelope, kmsg.BrokerRegistration, kmsg.BrokerHeartbeat,
				kmsg.AllocateProducerIDs, kmsg.ControllerRegistration, kmsg.AssignReplicasToDirs,
			} {
				if _, ok := offered[int16(key)]; ok {
					t.Error(fmt.Sprint(key.Name(), " is offered"))
				}
			}
		}
	}
}

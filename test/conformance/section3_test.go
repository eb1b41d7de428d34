package conformance

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// section3 provokes every error. INVALID_CLUSTER_MIRROR_NAME is with C1.25,
// READ_ONLY_TOPIC and the authorization error with §8.
func section3() []row {
	return []row{
		{proves: "C3.3 name in use", run: func(t *testing.T, e *env) {
			m := e.mirror(t, "c3-3")
			r := ask[*protocol.CreateClusterMirrorResponse](t, e, 1, createRequest(m, e.sourceConfig()))
			refused(t, protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage), protocol.ClusterMirrorAlreadyExists, m)
		}},
		{proves: "C3.4 C3.15 no such mirror", run: errorUnknownMirror},
		{proves: "C3.5 A2.8 another mirror's topic", run: errorAnotherMirror},
		{proves: "C3.6 A2.4 not in the mirror, stop twice", run: errorNotInMirror},
		{proves: "C3.7 C3.8 C3.13 A2.2 paused", run: errorPaused},
		{proves: "C3.9 A2.5 A2.6 stopped", run: errorStopped},
		{proves: "C3.10 C4.32 not empty", run: errorNotEmpty},
		{proves: "C3.12 A2.1 A2.6 A2.7 nothing to recover, start twice", run: errorStates},
		{proves: "C3.14 Kafka's own", run: errorKafka},
	}
}

func verbs() []verb { return []verb{vStart, vStop, vPause, vResume, vRecover} }

func errorUnknownMirror(t *testing.T, e *env) {
	const none = "c3-4.none"
	e.mirror(t, "c3-4") // so that there is a state topic
	for i := range e.dst.Sidecars {
		for _, v := range verbs() {
			code, message, _ := answer(t, ask[kmsg.Response](t, e, i, v.request(none, "t")))
			refused(t, fmt.Errorf("%s: %w", v, protocol.ErrorForCode(code, message)), protocol.UnknownClusterMirror, none)
		}
		del := protocol.NewDeleteClusterMirrorRequest()
		del.MirrorName = none
		r := ask[*protocol.DeleteClusterMirrorResponse](t, e, i, &del)
		refused(t, protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage), protocol.UnknownClusterMirror, none)
		_, err := describe(t.Context(), apiClient(t, e.dst.Sidecars[i].Proxy), none)
		refused(t, err, protocol.UnknownClusterMirror, none)
		refused(t, alterConfigs(t, e.dst.Sidecars[i].Proxy, mirrorResource, none, "mirror.topics.include", "x"), protocol.UnknownClusterMirror, none)
	}
}

func errorAnotherMirror(t *testing.T, e *env) {
	one := e.mirrored(t, "c3-5", 1, 2)
	other := e.mirror(t, "c3-5.other")
	refused(t, e.send(t, vStart, other, one), protocol.TopicAlreadyInClusterMirror, one)
	for _, v := range verbs()[1:] {
		refused(t, e.send(t, v, other, one), protocol.TopicNotInClusterMirror, one)
	}
	e.ended(t, one, one)
	req := protocol.NewStartMirrorTopicsRequest()
	req.MirrorName, req.Topics, req.AllowTruncate = other, []string{one}, true
	if err := sendAt(t, e.dst.Sidecars[0].Proxy, &req, one); err != nil {
		t.Errorf("start of a topic that is STOPPED in its mirror: %v", err)
	}
	e.waitState(t, other, mirroring, one)
}

func errorNotInMirror(t *testing.T, e *env) {
	m := e.mirrored(t, "c3-6", 1, 2)
	const none = "c3-6.none"
	for _, v := range verbs()[1:] {
		refused(t, e.send(t, v, m, none), protocol.TopicNotInClusterMirror, none)
	}
	for range 2 { // STOPPING or STOPPED, then STOPPED
		if err := e.send(t, vStop, m, m); err != nil {
			t.Errorf("stop again: %v", err)
		}
	}
	e.waitState(t, m, stopped, m)
	if err := e.send(t, vStop, m, m); err != nil {
		t.Errorf("stop of a STOPPED topic: %v", err)
	}
}

func errorPaused(t *testing.T, e *env) {
	m := e.mirrored(t, "c3-7", 1, 2)
	refused(t, e.send(t, vResume, m, m), protocol.MirrorTopicNotPaused, m)
	e.do(t, vPause, m, m)
	refused(t, e.send(t, vPause, m, m), protocol.MirrorTopicAlreadyPaused, m) // PAUSING or PAUSED
	refused(t, e.send(t, vStart, m, m), protocol.MirrorTopicNotStopped, m)
	e.waitState(t, m, paused, m)
	refused(t, e.send(t, vPause, m, m), protocol.MirrorTopicAlreadyPaused, m)
	refused(t, e.send(t, vStart, m, m), protocol.MirrorTopicNotStopped, m)
	e.do(t, vResume, m, m)
	e.waitState(t, m, mirroring, m)
}

func errorStopped(t *testing.T, e *env) {
	m := e.mirrored(t, "c3-9", 1, 2)
	e.do(t, vStop, m, m)
	// As long as it is STOPPING, which on a quick machine may be over; the row of the dead
	// broker has one that stays STOPPING.
	if err := e.send(t, vStart, m, m); err != nil {
		refused(t, err, protocol.MirrorTopicBeingStopped, m)
	} else {
		t.Log("the topic was STOPPED before it could be started again")
	}
	e.do(t, vStop, m, m)
	for _, v := range []verb{vPause, vResume} {
		refused(t, e.send(t, v, m, m), protocol.MirrorTopicBeingStopped, m)
	}
	e.waitState(t, m, stopped, m)
	for _, v := range []verb{vPause, vResume} {
		refused(t, e.send(t, v, m, m), protocol.MirrorTopicBeingStopped, m)
	}
}

func errorNotEmpty(t *testing.T, e *env) {
	m := e.mirrored(t, "c3-10", 1, 2)
	del := func() error {
		req := protocol.NewDeleteClusterMirrorRequest()
		req.MirrorName = m
		r := ask[*protocol.DeleteClusterMirrorResponse](t, e, 0, &req)
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	}
	refused(t, del(), protocol.ClusterMirrorNotEmpty, m)
	e.do(t, vPause, m, m)
	e.waitState(t, m, paused, m)
	refused(t, del(), protocol.ClusterMirrorNotEmpty, m)
	e.ended(t, m, m)
	if err := del(); err != nil {
		t.Errorf("delete when all is STOPPED: %v", err)
	}
}

func errorStates(t *testing.T, e *env) {
	m := e.mirrored(t, "c3-12", 1, 2)
	refused(t, e.send(t, vRecover, m, m), protocol.InvalidClusterMirrorStates, m)
	if err := e.send(t, vStart, m, m); err != nil {
		t.Errorf("start of a MIRRORING topic: %v", err)
	}
	// FAILED: pause and resume have no meaning.
	const bad = "c3-12.bad"
	e.inTheWay(t, m, bad, 4, 1)
	e.do(t, vStart, m, bad)
	e.waitFailed(t, m, bad)
	refused(t, e.send(t, vPause, m, bad), protocol.InvalidClusterMirrorStates, bad)
	refused(t, e.send(t, vResume, m, bad), protocol.MirrorTopicNotPaused, bad)
}

func errorKafka(t *testing.T, e *env) {
	m := e.mirror(t, "c3-14")
	create := func(props map[string]string) error {
		r := ask[*protocol.CreateClusterMirrorResponse](t, e, 0, createRequest("c3-14.new", props))
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	}
	itself := map[string]string{"bootstrap.servers": e.dst.Direct()[0]}
	refused(t, create(itself), kerr.InvalidRequest.Code, "c3-14.new", e.dst.Cluster.ID())
	refused(t, create(e.sourceConfig("mirror.fetch.max.byte", "1")), kerr.InvalidConfig.Code, "mirror.fetch.max.byte", "mirror.fetch.max.bytes")
	refused(t, create(e.sourceConfig("mirror.fetch.max.bytes", "x")), kerr.InvalidConfig.Code, "mirror.fetch.max.bytes")
	refused(t, create(map[string]string{}), kerr.InvalidConfig.Code, "bootstrap.servers")
	refused(t, e.send(t, vStart, m, "c3-14.none"), kerr.UnknownTopicOrPartition.Code, "c3-14.none")
	refused(t, e.send(t, vStart, m, protocol.StateTopic), kerr.InvalidTopicException.Code, protocol.StateTopic)
	// Fewer partitions than the source has.
	const topic = "c3-14"
	e.topic(t, topic, 2, 2)
	createTopic(t, e.dstClient, 3, 2, topic)
	if err := e.send(t, vStart, m, topic); !errors.Is(err, kerr.InvalidPartitions) {
		t.Errorf("a topic with another number of partitions: %v", err)
	}
	// An address of this cluster's in place of the source's.
	refused(t, alterConfigs(t, e.dst.Sidecars[0].Proxy, mirrorResource, m, "bootstrap.servers", e.dst.Cluster.Bootstrap(harness.ListenerInternal)[0]),
		kerr.InvalidRequest.Code, e.dst.Cluster.ID())
}

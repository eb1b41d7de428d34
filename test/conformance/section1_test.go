package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// section1 tests the mirror APIs.
func section1() []row {
	return []row{
		{proves: "C1.1 listed in ApiVersions of every sidecar", run: apisListed},
		{proves: "C1.2 own numbers, and stock clients do not mind", run: apisOwnNumbers},
		{proves: "C1.3 heads of answers", run: apisHeads},
		{proves: "C1.4 A5.1 create", run: apiCreate},
		{proves: "C1.5 A5.1 start", run: apiStart},
		{proves: "C1.6 A5.1 stop", run: apiStop},
		{proves: "C1.7 list", run: apiList},
		{proves: "C1.8 A5.3 describe", run: apiDescribe},
		{proves: "C1.9 C1.10 C1.11 lookups, states read and written", run: apiStates},
		{proves: "C1.12 C1.13 A5.1 pause and resume", run: apiPauseResume},
		{proves: "C1.14 A5.1 delete", run: apiDelete},
		{proves: "C1.15 A5.1 A5.2 recover", run: apiRecover},
		{proves: "C1.16 C1.17 any sidecar", run: apiAnySidecar},
		{proves: "C1.18 A1.1 coordinator of a mirror", run: apiFindCoordinator},
		{proves: "C1.19 C6.8 configs of a mirror", run: apiDescribeConfigs},
		{proves: "C1.21 configs changed", run: apiAlterConfigs},
		{proves: "C1.22 C1.23 mirror.name of a topic", run: apiMirrorName},
		{proves: "C1.24 topics are looked up by the sidecar", run: apiSourceTopics},
		{proves: "C1.25 C3.2 names of mirrors", run: apiNames},
	}
}

func mirrorKeys() []int16 {
	return []int16{12794, 12795, 12796, 12798, 12799, 12800, 12801, 12802, 12803, 12804, 12806}
}

func apiVersions(t *testing.T, addr string) map[int16]kmsg.ApiVersionsResponseApiKey {
	t.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "conformance", "1"
	r := askAt[*kmsg.ApiVersionsResponse](t, addr, req)
	out := map[int16]kmsg.ApiVersionsResponseApiKey{}
	for _, k := range r.ApiKeys {
		out[k.ApiKey] = k
	}
	return out
}

func apisListed(t *testing.T, e *env) {
	for _, c := range e.dst.Sidecars {
		listed := apiVersions(t, c.Proxy)
		for _, key := range mirrorKeys() {
			k, ok := listed[key]
			if !ok || k.MinVersion != 0 || k.MaxVersion != 0 {
				t.Errorf("sidecar %d: %s is listed as %+v (%t), want version 0 only", c.Broker, protocol.Name(key), k, ok)
			}
			if !protocol.RequestForKey(key).IsFlexible() {
				t.Errorf("%s is not flexible", protocol.Name(key))
			}
		}
	}
}

func apisOwnNumbers(t *testing.T, e *env) {
	for key := range apiVersions(t, e.dst.Direct()[0]) {
		if key >= 12700 || slices.Contains(mirrorKeys(), key) {
			t.Errorf("the broker itself has an API %d", key)
		}
	}
	// The prototype's numbers are these less 12700.
	for key, name := range map[int16]string{
		12794: "CreateClusterMirror", 12795: "StartMirrorTopics", 12796: "StopMirrorTopics", 12798: "ListClusterMirrors",
		12799: "DescribeClusterMirrors", 12800: "ReadMirrorStates", 12801: "WriteMirrorStates", 12802: "PauseMirrorTopics",
		12803: "ResumeMirrorTopics", 12804: "DeleteClusterMirror", 12806: "RecoverMirrorTopics",
	} {
		if got := protocol.Name(key); got != name {
			t.Errorf("key %d is %s, want %s", key, got, name)
		}
	}
	for i, name := range []string{
		"READ_ONLY_TOPIC", "INVALID_CLUSTER_MIRROR_NAME", "CLUSTER_MIRROR_ALREADY_EXISTS", "UNKNOWN_CLUSTER_MIRROR",
		"TOPIC_ALREADY_IN_CLUSTER_MIRROR", "TOPIC_NOT_IN_CLUSTER_MIRROR", "MIRROR_TOPIC_ALREADY_PAUSED", "MIRROR_TOPIC_NOT_PAUSED",
		"MIRROR_TOPIC_BEING_STOPPED", "CLUSTER_MIRROR_NOT_EMPTY", "CLUSTER_MIRROR_AUTHORIZATION_FAILED", "INVALID_CLUSTER_MIRROR_STATES",
		"MIRROR_TOPIC_NOT_STOPPED",
	} {
		code := 12834 + int16(i)
		if got := protocol.CodeName(code); got != name {
			t.Errorf("code %d is %s, want %s", code, got, name)
		}
		if stock := kerr.TypedErrorForCode(code); stock != nil && stock.Code == code {
			t.Errorf("code %d is Kafka's %s", code, stock.Message)
		}
	}
	// One as it is on the wire, past this project's own decoder.
	del := protocol.NewDeleteClusterMirrorRequest()
	del.MirrorName = "c1-2.none"
	if _, code, message, err := head(raw(t, e.dst.Sidecars[0].Proxy, &del)); err != nil || code != 12837 {
		t.Errorf("delete of a mirror that is not there: code %d, %q, %v; want 12837", code, message, err)
	}
	// A stock Java client at the proxy, which sees the keys it does not know.
	const topic = "c1-2"
	createTopic(t, e.dstClient, 1, 2, topic)
	in := e.dst.Cluster.Installation()
	produced, err := in.Produce(t.Context(), harness.JavaProduce{
		Bootstrap: e.dst.Proxies(), Topic: topic, Records: []harness.JavaRecord{{Partition: 0, Value: []byte("hello")}},
	})
	if err != nil || len(produced) != 1 || produced[0].Err != nil {
		t.Errorf("a stock Java producer at the proxy: %v %+v", err, produced)
	}
}

func apisHeads(t *testing.T, e *env) {
	for _, key := range mirrorKeys() {
		req := protocol.RequestForKey(key)
		body := raw(t, e.dst.Sidecars[0].Proxy, req)
		throttle, code, message, err := head(body)
		if err != nil || throttle != 0 {
			t.Errorf("%s: throttle %d, %v", protocol.Name(key), throttle, err)
			continue
		}
		// An empty request names no mirror, which only those that ask for all may do.
		switch key {
		case 12798, 12799, 12800, 12801:
			if code != 0 {
				t.Errorf("%s: code %d, %q", protocol.Name(key), code, message)
			}
		default:
			if code == 0 || message == "" {
				t.Errorf("%s without a mirror: code %d, message %q", protocol.Name(key), code, message)
			}
		}
	}
}

func apiCreate(t *testing.T, e *env) {
	const name = "c1-4"
	create := func(validate bool) error {
		req := createRequest(name, e.sourceConfig("mirror.fetch.max.bytes", "65536"))
		req.ValidateOnly = validate
		r := ask[*protocol.CreateClusterMirrorResponse](t, e, 0, req)
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	}
	if err := create(true); err != nil {
		t.Errorf("validate only: %v", err)
	}
	if _, err := describe(t.Context(), apiClient(t, e.dst.Sidecars[0].Proxy), name); err == nil {
		t.Error("validate only has created the mirror")
	}
	if err := create(false); err != nil {
		t.Fatal(err)
	}
	if d := e.describe(t, name); d.SourceClusterID != e.src.ID() || d.SourceBootstrap != e.sourceConfig()["bootstrap.servers"] {
		t.Errorf("the mirror is of cluster %s at %s", d.SourceClusterID, d.SourceBootstrap)
	}
	if err := create(true); err == nil {
		t.Error("validate only does not see that the mirror exists")
	}
	// A source that does not answer.
	r := ask[*protocol.CreateClusterMirrorResponse](t, e, 0, createRequest("c1-4.dead", map[string]string{"bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": "1000"}))
	refused(t, protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage), kerr.InvalidRequest.Code, "127.0.0.1:1")
}

func apiStart(t *testing.T, e *env) {
	m := e.mirror(t, "c1-5")
	for _, n := range []string{"c1-5.a", "c1-5.b", "c1-5.x1", "c1-5.x2"} {
		e.topic(t, n, 1, 3)
	}
	req := protocol.NewStartMirrorTopicsRequest()
	req.MirrorName, req.Topics, req.IncludePatterns, req.ExcludePatterns = m, []string{"c1-5.a", "c1-5.none"}, []string{`c1-5\.x.*`}, []string{`.*x2`}
	req.ValidateOnly = true
	want := map[string]int16{"c1-5.a": 0, "c1-5.none": kerr.UnknownTopicOrPartition.Code, "c1-5.x1": 0}
	for _, validate := range []bool{true, false} {
		req.ValidateOnly = validate
		code, message, topics := answer(t, ask[*protocol.StartMirrorTopicsResponse](t, e, 0, &req))
		if err := protocol.ErrorForCode(code, message); err != nil {
			t.Fatal(err)
		}
		got := map[string]int16{}
		var skipped []string
		for _, r := range topics {
			if r.Skipped {
				skipped = append(skipped, r.Name+": "+text(r.ErrorMessage))
				continue
			}
			got[r.Name] = r.ErrorCode
			if r.ErrorCode != 0 && !strings.Contains(text(r.ErrorMessage), r.Name) {
				t.Errorf("the message for %s is %q", r.Name, text(r.ErrorMessage))
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("validate %t: answer %v, want %v", validate, got, want)
		}
		if told := strings.Join(skipped, ", "); validate && !strings.HasPrefix(told, "c1-5.x2: ") || !validate && told != "" || len(skipped) > 1 {
			t.Errorf("validate %t: left out %q, want c1-5.x2 with the reason, and only when it is asked before", validate, told)
		}
		if validate && len(e.describe(t, m).Topics) > 0 {
			t.Error("validate only has started topics")
		}
	}
	e.waitState(t, m, mirroring, "c1-5.a", "c1-5.x1")
	e.copied(t, "c1-5.a", "c1-5.x1")
	if d := e.describe(t, m); len(d.Topics) != 2 {
		t.Errorf("the mirror has %d topics, want 2", len(d.Topics))
	}
}

func apiStop(t *testing.T, e *env) {
	m := e.mirror(t, "c1-6")
	names := []string{e.topic(t, "c1-6.a", 1, 3), e.topic(t, "c1-6.b1", 1, 3), e.topic(t, "c1-6.b2", 1, 3), e.topic(t, "c1-6.c", 1, 3)}
	e.do(t, vStart, m, names...)
	e.waitState(t, m, mirroring, names...)
	req := protocol.NewStopMirrorTopicsRequest()
	req.MirrorName, req.Topics, req.Patterns = m, []string{"c1-6.a", "c1-6.none"}, []string{`c1-6\.b.*`}
	want := map[string]int16{"c1-6.a": 0, "c1-6.b1": 0, "c1-6.b2": 0, "c1-6.none": protocol.TopicNotInClusterMirror}
	for _, validate := range []bool{true, false} {
		req.ValidateOnly = validate
		code, message, topics := answer(t, ask[*protocol.StopMirrorTopicsResponse](t, e, 0, &req))
		if err := protocol.ErrorForCode(code, message); err != nil {
			t.Fatal(err)
		}
		got := map[string]int16{}
		for _, r := range topics {
			got[r.Name] = r.ErrorCode
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("validate %t: answer %v, want %v", validate, got, want)
		}
		if p := e.partition(t, m, "c1-6.a", 0); validate && p.State != mirroring {
			t.Errorf("validate only has stopped: state %d", p.State)
		}
	}
	e.waitState(t, m, stopped, "c1-6.a", "c1-6.b1", "c1-6.b2")
	if p := e.partition(t, m, "c1-6.c", 0); p.State != mirroring {
		t.Errorf("a topic that was not named is in state %d", p.State)
	}
}

func listed(t *testing.T, e *env, name string, topics bool) (protocol.ListedMirror, bool) {
	t.Helper()
	req := protocol.NewListClusterMirrorsRequest()
	req.IncludeTopicNames = topics
	r := ask[*protocol.ListClusterMirrorsResponse](t, e, 1, &req)
	if err := protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage); err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Mirrors {
		if m.MirrorName == name {
			return m, true
		}
	}
	return protocol.ListedMirror{}, false
}

func apiList(t *testing.T, e *env) {
	m := e.mirror(t, "c1-7")
	names := []string{e.topic(t, "c1-7.a", 1, 1), e.topic(t, "c1-7.b", 1, 1), e.topic(t, "c1-7.c", 1, 1)}
	e.started(t, m, names...)
	e.ended(t, m, "c1-7.b")
	e.do(t, vPause, m, "c1-7.c")
	e.waitState(t, m, paused, "c1-7.c")
	l, ok := listed(t, e, m, true)
	if !ok || l.SourceBootstrap != e.sourceConfig()["bootstrap.servers"] || l.SourceClusterID != e.src.ID() {
		t.Errorf("listed as %+v (%t)", l, ok)
	}
	if l.TopicCount != 1 || !slices.Equal(l.TopicNames, []string{"c1-7.a"}) {
		t.Errorf("%d topics, %v; want one, which is neither paused nor stopped", l.TopicCount, l.TopicNames)
	}
	if l, _ := listed(t, e, m, false); len(l.TopicNames) != 0 {
		t.Errorf("names %v, which were not asked for", l.TopicNames)
	}
}

func apiDescribe(t *testing.T, e *env) {
	m := e.mirror(t, "c1-8")
	topic := e.topic(t, "c1-8", 2, 10)
	e.started(t, m, topic)
	e.copied(t, topic)
	there, err := detail(t.Context(), e.srcAdmin, topic)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "offsets are described", func(context.Context) error {
		dt := e.describe(t, m).topic(topic)
		if dt.TopicID != ids.UUID(e.here(t, topic).ID) || dt.SourceTopicID != ids.UUID(there.ID) {
			return fmt.Errorf("topic ids %v and %v", dt.TopicID, dt.SourceTopicID)
		}
		for _, p := range dt.Partitions {
			if p.State != mirroring || p.StateSince <= 0 || p.SourceOffset != 5 || p.DestinationOffset != 5 || p.SourceLogStart != 0 ||
				p.LagMs < 0 || p.RetryAttempt != 0 || p.ErrorMessage != nil || !virtual(p.LeaderID) || p.PendingReassignment {
				return fmt.Errorf("partition %+v", p)
			}
		}
		if len(dt.Partitions) != 2 {
			return fmt.Errorf("%d partitions", len(dt.Partitions))
		}
		return nil
	})
	req := protocol.NewDescribeClusterMirrorsRequest()
	all := ask[*protocol.DescribeClusterMirrorsResponse](t, e, 0, &req)
	if !slices.ContainsFunc(all.Mirrors, func(d protocol.DescribedMirror) bool { return d.MirrorName == m }) {
		t.Error("the mirror is not among all of them")
	}
	req.MirrorNames, req.IncludeAuthorizedOperations = []string{m, "c1-8.none"}, true
	two := ask[*protocol.DescribeClusterMirrorsResponse](t, e, 0, &req)
	if len(two.Mirrors) != 2 || two.Mirrors[1].ErrorCode != protocol.UnknownClusterMirror {
		t.Fatalf("described %+v", two.Mirrors)
	}
	if ops := two.Mirrors[0].AuthorizedOperations; ops == -2147483648 {
		t.Error("authorized operations were asked for and are missing")
	}
}

func apiStates(t *testing.T, e *env) {
	m := e.mirror(t, "c1-9")
	topic := e.topic(t, "c1-9", 1, 12)
	e.started(t, m, topic)
	e.copied(t, topic)
	e.ended(t, m, topic)
	dt := e.describe(t, m).topic(topic)
	last := dt.Partitions[0]
	if last.LastMirrorOffset != 12 || last.LastMirrorEpoch < 0 {
		t.Errorf("last mirror epoch %d and offset %d, want offset 12", last.LastMirrorEpoch, last.LastMirrorOffset)
	}

	// What the other cluster asks before it fails back, by its own topic id.
	look := protocol.NewDescribeClusterMirrorsRequest()
	id := e.src.ID()
	look.MirrorNames, look.ClusterID = []string{}, &id
	l := protocol.NewLastMirrorEpochLookup()
	l.TopicID, l.Partitions = dt.SourceTopicID, []int32{0}
	look.LastMirrorEpochLookups = append(look.LastMirrorEpochLookups, l)
	found := ask[*protocol.DescribeClusterMirrorsResponse](t, e, 1, &look)
	if len(found.LookupResults) != 1 || found.LookupResults[0].TopicID != dt.SourceTopicID || len(found.LookupResults[0].Partitions) != 1 {
		t.Fatalf("lookup: %+v", found.LookupResults)
	}
	if p := found.LookupResults[0].Partitions[0]; p.LastMirrorEpoch != last.LastMirrorEpoch || p.LastMirrorOffset != last.LastMirrorOffset || p.DestinationEpoch < 0 || len(p.History) == 0 {
		t.Errorf("lookup: %+v", p)
	}

	read := protocol.NewReadMirrorStatesRequest()
	read.MirrorName = m
	rt := protocol.NewReadStateTopic()
	rt.TopicID, rt.Partitions = dt.TopicID, []int32{0}
	read.Topics = append(read.Topics, rt)
	var state *protocol.ReadStatePartition
	coordinator := -1
	for i := range e.dst.Sidecars {
		r := ask[*protocol.ReadMirrorStatesResponse](t, e, i, &read)
		p := &r.Topics[0].Partitions[0]
		if p.ErrorCode == 0 {
			state, coordinator = p, i
		} else if p.ErrorCode != kerr.NotCoordinator.Code {
			t.Errorf("read at sidecar %d: code %d %s", i, p.ErrorCode, text(p.Reason))
		}
	}
	if state == nil {
		t.Fatal("no sidecar coordinates the partition")
	}
	if state.State != stopped || state.LeaderEpoch < 0 || state.StateEpoch <= 0 || !state.HasLineage || state.LastMirrorOffset != 12 {
		t.Errorf("read: %+v", state)
	}

	write := func(leader, epoch int32) int16 {
		req := protocol.NewWriteMirrorStatesRequest()
		req.MirrorName = m
		wt := protocol.NewWriteStateTopic()
		wt.TopicID = dt.TopicID
		wp := protocol.NewWriteStatePartition()
		wp.State, wp.LeaderEpoch, wp.StateEpoch = stopped, leader, epoch
		wt.Partitions = append(wt.Partitions, wp)
		req.Topics = append(req.Topics, wt)
		r := ask[*protocol.WriteMirrorStatesResponse](t, e, coordinator, &req)
		if r.ErrorCode != 0 {
			return r.ErrorCode
		}
		return r.Topics[0].Partitions[0].ErrorCode
	}
	const fencedStateEpoch = 124
	if code := write(state.LeaderEpoch-1, state.StateEpoch); code != kerr.FencedLeaderEpoch.Code {
		t.Errorf("a writer with an older leader epoch gets %d", code)
	}
	if code := write(state.LeaderEpoch, state.StateEpoch-1); code != fencedStateEpoch {
		t.Errorf("a writer that read an older state gets %d", code)
	}
	if code := write(state.LeaderEpoch, state.StateEpoch); code != 0 {
		t.Errorf("a writer that is up to date gets %d", code)
	}
}

func apiPauseResume(t *testing.T, e *env) {
	m := e.mirror(t, "c1-12")
	topic := e.topic(t, "c1-12", 1, 3)
	e.started(t, m, topic)
	validate := protocol.NewPauseMirrorTopicsRequest()
	validate.MirrorName, validate.Topics, validate.ValidateOnly = m, []string{topic}, true
	if err := sendAt(t, e.dst.Sidecars[0].Proxy, &validate, topic); err != nil {
		t.Errorf("pause, validate only: %v", err)
	}
	if p := e.partition(t, m, topic, 0); p.State != mirroring {
		t.Errorf("validate only has paused: state %d", p.State)
	}
	e.do(t, vPause, m, topic)
	e.waitState(t, m, paused, topic)
	again := protocol.NewResumeMirrorTopicsRequest()
	again.MirrorName, again.Topics, again.ValidateOnly = m, []string{topic}, true
	if err := sendAt(t, e.dst.Sidecars[0].Proxy, &again, topic); err != nil {
		t.Errorf("resume, validate only: %v", err)
	}
	if p := e.partition(t, m, topic, 0); p.State != paused {
		t.Errorf("validate only has resumed: state %d", p.State)
	}
	e.do(t, vResume, m, topic)
	e.waitState(t, m, mirroring, topic)
}

func apiDelete(t *testing.T, e *env) {
	m := e.mirror(t, "c1-14")
	req := protocol.NewDeleteClusterMirrorRequest()
	req.MirrorName = m
	for _, validate := range []bool{true, false} {
		req.ValidateOnly = validate
		r := ask[*protocol.DeleteClusterMirrorResponse](t, e, 0, &req)
		if err := protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage); err != nil {
			t.Fatal(err)
		}
		if _, there := listed(t, e, m, false); there != validate {
			t.Errorf("validate only %t: the mirror is listed: %t", validate, there)
		}
	}
}

// inTheWay mirrors a topic, stops it, and writes records here that the source lacks; the
// source goes on as well.
func (e *env) inTheWay(t *testing.T, mirror, topic string, foreign, records int) {
	t.Helper()
	e.topic(t, topic, 1, 2)
	e.started(t, mirror, topic)
	e.copied(t, topic)
	e.ended(t, mirror, topic)
	if err := produce(t.Context(), writer(t, e.dst.Direct()), topic, 1, foreign, "foreign"); err != nil {
		t.Fatal(err)
	}
	e.write(t, topic, 1, records)
}

// waitFailed waits until a partition is FAILED with a message that has the words.
func (e *env) waitFailed(t *testing.T, mirror, topic string, words ...string) protocol.DescribedPartition {
	t.Helper()
	var out protocol.DescribedPartition
	cl := apiClient(t, e.dst.Sidecars[0].Proxy)
	eventually(t, topic+" is FAILED", func(ctx context.Context) error {
		d, err := describe(ctx, cl, mirror)
		if err != nil {
			return err
		}
		parts := d.topic(topic).Partitions
		if len(parts) == 0 {
			return errors.New("not described")
		}
		for _, p := range parts {
			if p.State != failed {
				return fmt.Errorf("partition %d is in state %d (%s %s)", p.PartitionIndex, p.State, text(p.Detail), text(p.ErrorMessage))
			}
			for _, w := range words {
				if !strings.Contains(text(p.ErrorMessage), w) {
					return fmt.Errorf("FAILED says %q, without %q", text(p.ErrorMessage), w)
				}
			}
		}
		out = parts[0]
		return nil
	})
	return out
}

func apiRecover(t *testing.T, e *env) {
	m := e.mirror(t, "c1-15")
	const topic = "c1-15"
	e.inTheWay(t, m, topic, 5, 3)
	e.do(t, vStart, m, topic)
	e.waitFailed(t, m, topic, "5")
	req := protocol.NewRecoverMirrorTopicsRequest()
	req.MirrorName, req.Topics, req.AllowTruncate, req.ValidateOnly = m, []string{topic}, true, true
	if err := sendAt(t, e.dst.Sidecars[0].Proxy, &req, topic); err != nil {
		t.Errorf("validate only: %v", err)
	}
	if p := e.partition(t, m, topic, 0); p.State != failed {
		t.Errorf("validate only has recovered: state %d", p.State)
	}
	req.ValidateOnly = false
	if err := sendAt(t, e.dst.Sidecars[0].Proxy, &req, topic); err != nil {
		t.Fatal(err)
	}
	e.waitState(t, m, mirroring, topic)
	e.copied(t, topic)
	e.equal(t, topic)
}

func apiAnySidecar(t *testing.T, e *env) {
	// Names enough for both sidecars to coordinate some.
	for i := range 4 {
		name := fmt.Sprintf("c1-16.%d", i)
		mirrorAt(t, e.dst, name, e.sourceConfig())
		for k := range e.dst.Sidecars {
			if _, err := describe(t.Context(), apiClient(t, e.dst.Sidecars[k].Proxy), name); err != nil {
				t.Errorf("mirror %s at sidecar %d right after it was created: %v", name, k, err)
			}
		}
	}
	const topic = "c1-16"
	e.topic(t, topic, 4, 8)
	for i := range e.dst.Sidecars {
		addr := e.dst.Sidecars[i].Proxy
		verbs := []verb{vStart, vPause, vResume, vStop}
		states := []int8{mirroring, paused, mirroring, stopped}
		for k, v := range verbs {
			if err := sendAt(t, addr, v.request("c1-16.0", topic), topic); err != nil {
				t.Fatalf("%s at sidecar %d: %v", v, i, err)
			}
			e.waitState(t, "c1-16.0", states[k], topic)
			if v != vStart {
				continue
			}
			e.copied(t, topic)
			// Leaders are spread over the sidecars; each knows the offsets of its own.
			for j := range e.dst.Sidecars {
				eventually(t, "describe is merged", func(ctx context.Context) error {
					d, err := describe(ctx, apiClient(t, e.dst.Sidecars[j].Proxy), "c1-16.0")
					if err != nil {
						return err
					}
					for _, p := range d.topic(topic).Partitions {
						if p.SourceOffset != 2 || p.DestinationOffset != 2 {
							return fmt.Errorf("sidecar %d: partition %d, led by %d: source offset %d, destination offset %d", j, p.PartitionIndex, p.LeaderID, p.SourceOffset, p.DestinationOffset)
						}
					}
					return nil
				})
			}
		}
	}
	for i := range e.dst.Sidecars {
		req := protocol.NewDeleteClusterMirrorRequest()
		req.MirrorName = fmt.Sprintf("c1-16.%d", i+1)
		r := ask[*protocol.DeleteClusterMirrorResponse](t, e, i, &req)
		if err := protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage); err != nil {
			t.Errorf("delete at sidecar %d: %v", i, err)
		}
	}
}

// findCoordinator asks where a mirror is coordinated.
func findCoordinator(t *testing.T, addr, mirror string) kmsg.FindCoordinatorResponseCoordinator {
	t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = 3, []string{mirror}
	r := askAt[*kmsg.FindCoordinatorResponse](t, addr, req)
	if len(r.Coordinators) != 1 {
		t.Fatalf("answer %+v", r)
	}
	return r.Coordinators[0]
}

func apiFindCoordinator(t *testing.T, e *env) {
	m := e.mirror(t, "c1-18")
	want, err := stateLeader(t.Context(), e, m)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range e.dst.Sidecars {
		got := findCoordinator(t, c.Proxy, m)
		if got.ErrorCode != 0 || got.NodeID != want || fmt.Sprintf("%s:%d", got.Host, got.Port) != e.dst.Sidecar(want).Proxy {
			t.Errorf("sidecar %d: coordinator %+v, want broker %d at %s", c.Broker, got, want, e.dst.Sidecar(want).Proxy)
		}
	}
}

// stateLeader is the broker that leads the state partition of a mirror's name.
func stateLeader(ctx context.Context, e *env, mirror string) (int32, error) {
	d, err := detail(ctx, e.dstAdmin, protocol.StateTopic)
	if err != nil {
		return 0, err
	}
	return d.Partitions[javaPartition(mirror, int32(len(d.Partitions)))].Leader, nil
}

// javaPartition is abs(String.hashCode) mod n, as the contract's §5 says.
func javaPartition(key string, n int32) int32 {
	h := int32(0)
	for _, c := range []byte(key) { // names are ASCII
		h = 31*h + int32(c)
	}
	if h == -1<<31 {
		h = 0
	}
	if h < 0 {
		h = -h
	}
	return h % n
}

// mirrorResource is the type of mirrors as config resources.
const mirrorResource kmsg.ConfigResourceType = 64

// describeConfigs describes one resource at a proxy.
func describeConfigs(t *testing.T, addr string, kind kmsg.ConfigResourceType, name string) map[string]kmsg.DescribeConfigsResponseResourceConfig {
	t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kind, name
	req.Resources = append(req.Resources, res)
	r := askAt[*kmsg.DescribeConfigsResponse](t, addr, req)
	if len(r.Resources) != 1 {
		t.Fatalf("answer %+v", r)
	}
	if err := protocol.ErrorForCode(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage); err != nil {
		t.Fatalf("configs of %s: %v", name, err)
	}
	out := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
	for _, c := range r.Resources[0].Configs {
		out[c.Name] = c
	}
	return out
}

// alterConfigs changes one resource at a proxy; more are key, value, ….
func alterConfigs(t *testing.T, addr string, kind kmsg.ConfigResourceType, name string, more ...string) error {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kind, name
	for i := 0; i+1 < len(more); i += 2 {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = more[i], &more[i+1]
		res.Configs = append(res.Configs, c)
	}
	req.Resources = append(req.Resources, res)
	r := askAt[*kmsg.IncrementalAlterConfigsResponse](t, addr, req)
	if len(r.Resources) != 1 {
		t.Fatalf("answer %+v", r)
	}
	return protocol.ErrorForCode(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage)
}

func apiDescribeConfigs(t *testing.T, e *env) {
	m := e.mirror(t, "c1-19", "mirror.fetch.max.bytes", "65536")
	for _, c := range e.dst.Sidecars {
		got := describeConfigs(t, c.Proxy, mirrorResource, m)
		for key, want := range map[string]string{
			"bootstrap.servers": e.sourceConfig()["bootstrap.servers"], "mirror.fetch.max.bytes": "65536", "request.timeout.ms": "5000",
			// Defaults.
			"mirror.fetch.wait.max.ms": "1000", "mirror.fetch.backoff.ms": "1000", "mirror.fetch.min.bytes": "1",
			"mirror.fetch.response.max.bytes": "10485760", "mirror.topics.exclude": "__.*", "mirror.groups.include": ".*",
			"mirror.topics.include": "", "mirror.groups.exclude": "", "mirror.acls.include": "", "mirror.acls.exclude": "", "mirror.quotas.include": "", "security.protocol": "PLAINTEXT",
			"mirror.topic.properties.include": ".*", "mirror.topic.properties.always": "", "mirror.policy.topics": "built-in", "mirror.policy.configs": "built-in",
			"mirror.policy.acls": "built-in", "mirror.policy.groups": "built-in", "mirror.policy.quotas": "", "mirror.policy.events": "",
		} {
			c, ok := got[key]
			if !ok || text(c.Value) != want {
				t.Errorf("%s is %q (there: %t), want %q", key, text(c.Value), ok, want)
			}
		}
		if c := got["mirror.topic.properties.exclude"]; !strings.Contains(text(c.Value), "min.insync.replicas") {
			t.Errorf("mirror.topic.properties.exclude is %q", text(c.Value))
		}
	}
}

func apiAlterConfigs(t *testing.T, e *env) {
	m := e.mirror(t, "c1-21")
	topic := e.topic(t, "c1-21.a", 1, 3)
	e.started(t, m, topic)
	pids := [2]int{e.dst.Sidecars[0].Process().PID(), e.dst.Sidecars[1].Process().PID()}
	addr := e.dst.Sidecars[1].Proxy
	if err := alterConfigs(t, addr, mirrorResource, m, "no.such.key", "1"); err == nil {
		t.Error("an unknown key was taken")
	}
	if err := alterConfigs(t, addr, mirrorResource, m, "mirror.topics.include", `c1-21\.b.*`); err != nil {
		t.Fatal(err)
	}
	e.topic(t, "c1-21.b1", 1, 3)
	e.waitState(t, m, mirroring, "c1-21.b1")
	e.copied(t, "c1-21.b1")

	// Another address of the same cluster: this mirror connects anew and goes on.
	f := newForwarder(t, e.src.Bootstrap(harness.ListenerInternal)[0])
	if err := alterConfigs(t, addr, mirrorResource, m, "bootstrap.servers", f.addr()); err != nil {
		t.Fatal(err)
	}
	if d := e.describe(t, m); d.SourceBootstrap != f.addr() {
		t.Errorf("the source is at %s, want %s", d.SourceBootstrap, f.addr())
	}
	e.write(t, topic, 1, 5)
	e.copied(t, topic)
	e.waitState(t, m, mirroring, topic, "c1-21.b1")
	for i, c := range e.dst.Sidecars {
		if c.Process().PID() != pids[i] {
			t.Errorf("sidecar %d was restarted", c.Broker)
		}
	}
}

func apiMirrorName(t *testing.T, e *env) {
	m := e.mirror(t, "c1-22")
	topic := e.topic(t, "c1-22", 1, 3)
	e.started(t, m, topic)
	shows := func(want string) {
		t.Helper()
		for _, c := range e.dst.Sidecars {
			eventually(t, "mirror.name", func(context.Context) error {
				got, ok := describeConfigs(t, c.Proxy, kmsg.ConfigResourceTypeTopic, topic)["mirror.name"]
				if !ok || text(got.Value) != want || !got.ReadOnly {
					return fmt.Errorf("sidecar %d shows %q (there: %t, read only: %t), want %q", c.Broker, text(got.Value), ok, got.ReadOnly, want)
				}
				return nil
			})
		}
	}
	shows(m)
	if err := alterConfigs(t, e.dst.Sidecars[0].Proxy, kmsg.ConfigResourceTypeTopic, topic, "mirror.name", "other"); err == nil {
		t.Error("mirror.name could be set")
	} else if !strings.Contains(err.Error(), "mirror.name") {
		t.Errorf("mirror.name is refused with %v", err)
	}
	name := "mine"
	if r, err := kadm.NewClient(newClient(t, e.dst.Proxies())).CreateTopic(t.Context(), 1, 1, map[string]*string{"mirror.name": &name}, "c1-22.new"); err == nil && r.Err == nil {
		t.Error("a topic could be created with mirror.name")
	}
	e.do(t, vPause, m, topic)
	e.waitState(t, m, paused, topic)
	shows(m + ".paused")
	e.do(t, vStop, m, topic)
	e.waitState(t, m, stopped, topic)
	shows(m + ".stopped")
	if err := alterConfigs(t, e.dst.Sidecars[0].Proxy, kmsg.ConfigResourceTypeTopic, topic, "mirror.name", "other"); err == nil {
		t.Error("mirror.name of a stopped topic could be set")
	}
}

func apiSourceTopics(t *testing.T, e *env) {
	m := e.mirror(t, "c1-24")
	topic := e.topic(t, "c1-24", 3, 3)
	e.started(t, m, topic) // the request has nothing but the name
	there, err := detail(t.Context(), e.srcAdmin, topic)
	if err != nil {
		t.Fatal(err)
	}
	if d := e.describe(t, m).topic(topic); d.SourceTopicID != ids.UUID(there.ID) || len(d.Partitions) != 3 {
		t.Errorf("source topic %v with %d partitions", d.SourceTopicID, len(d.Partitions))
	}
}

func apiNames(t *testing.T, e *env) {
	create := func(name string) error {
		req := createRequest(name, e.sourceConfig())
		req.ValidateOnly = true
		r := ask[*protocol.CreateClusterMirrorResponse](t, e, 0, req)
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	}
	for _, name := range []string{"a", "A.b_c-9", "x.stopped.y", strings.Repeat("n", 249)} {
		if err := create(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "a b", "a/b", "ä", strings.Repeat("n", 250), "x.removed", "x.stopped", "x.paused"} {
		refused(t, create(name), protocol.InvalidClusterMirrorName)
	}
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// section8 tests what needs users, passwords and an authorizer.
func section8() []row {
	return []row{
		{proves: "C8.1 C3.11 create", run: rightsCreate},
		{proves: "C8.2 C8.3 C8.8 verbs", run: rightsVerbs},
		{proves: "C8.4 delete", run: rightsDelete},
		{proves: "C8.5 list and describe", run: rightsLook},
		{proves: "C8.5 quotas", run: rightsQuotas},
		{proves: "C8.6 configs", run: rightsConfigs},
		{proves: "C8.7 states", run: rightsStates},
		{proves: "C2.10 reading the state topic", run: rightsStateTopic},
		{proves: "C2.13 C3.1 READ_ONLY_TOPIC", run: readOnlyError},
		{proves: "C6.1 C6.3 C6.4 C1.20 secrets", run: secrets},
		{proves: "C4.5 C4.6 tries again", run: triesAgain},
		{proves: "A3.4 tiered destination topic", run: tieredHere},
	}
}

// mirrorAs creates a mirror at the secured cluster.
func (s *secured) mirrorAs(t *testing.T, e *env, user, name string) error {
	t.Helper()
	r := askAt[*protocol.CreateClusterMirrorResponse](t, s.addr(), createRequest(name, e.sourceConfig()), login(user))
	return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
}

func (s *secured) mustMirror(t *testing.T, e *env, name string) string {
	t.Helper()
	return s.mirrorWith(t, name, e.sourceConfig())
}

func (s *secured) mirrorWith(t *testing.T, name string, config map[string]string) string {
	t.Helper()
	r := askAt[*protocol.CreateClusterMirrorResponse](t, s.addr(), createRequest(name, config), login(userAdmin))
	if err := protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, _ = s.stack.CLI(ctx, "--command-config", commandConfig(t, userAdmin), "--stop", "--mirror", name, "--topics", ".+")
	})
	return name
}

// send is a verb under a user.
func (s *secured) send(t *testing.T, user string, v verb, mirror, topic string) error {
	t.Helper()
	return sendAt(t, s.addr(), v.request(mirror, topic), topic, login(user))
}

func (s *secured) waitState(t *testing.T, mirror string, state int8, topic string) {
	t.Helper()
	cl := apiClient(t, s.addr(), login(userAdmin))
	eventually(t, fmt.Sprintf("%s in state %d", topic, state), func(ctx context.Context) error {
		d, err := describe(ctx, cl, mirror)
		if err != nil {
			return err
		}
		parts := d.topic(topic).Partitions
		if len(parts) == 0 {
			return errors.New("not described")
		}
		for _, p := range parts {
			if p.State != state {
				return fmt.Errorf("state %d (%s %s)", p.State, text(p.Detail), text(p.ErrorMessage))
			}
		}
		return nil
	})
}

func rightsCreate(t *testing.T, e *env) {
	s := e.secured(t)
	refused(t, s.mirrorAs(t, e, "creator", "c8-1"), protocol.ClusterMirrorAuthorizationFailed)
	s.allow(t, "creator", kadm.OpCreate)
	refused(t, s.mirrorAs(t, e, "creator", "c8-1"), protocol.ClusterMirrorAuthorizationFailed, "ALTER")
	s.allow(t, "creator", kadm.OpAlter, kadm.OpDescribe)
	if err := s.mirrorAs(t, e, "creator", "c8-1"); err != nil {
		t.Errorf("with CREATE and ALTER: %v", err)
	}
}

func rightsVerbs(t *testing.T, e *env) {
	s := e.secured(t)
	m := s.mustMirror(t, e, "c8-2")
	mine, other := e.topic(t, "c8-2.mine", 1, 3), e.topic(t, "c8-2.other", 1, 3)
	for _, v := range verbs() {
		refused(t, s.send(t, "operator", v, m, mine), protocol.ClusterMirrorAuthorizationFailed)
	}
	s.allow(t, "operator", kadm.OpAlter, kadm.OpDescribe)
	// Neither topic exists here yet.
	refused(t, s.send(t, "operator", vStart, m, mine), kerr.TopicAuthorizationFailed.Code, mine)
	s.allowTopics(t, "operator", mine, kadm.OpAlterConfigs)
	req := protocol.NewStartMirrorTopicsRequest()
	req.MirrorName, req.Topics = m, []string{mine, other}
	code, message, topics := answer(t, askAt[*protocol.StartMirrorTopicsResponse](t, s.addr(), &req, login("operator")))
	if err := protocol.ErrorForCode(code, message); err != nil {
		t.Fatal(err)
	}
	got := map[string]int16{}
	for _, r := range topics {
		got[r.Name] = r.ErrorCode
	}
	if got[mine] != 0 || got[other] != kerr.TopicAuthorizationFailed.Code {
		t.Errorf("start of both: %v", got)
	}
	s.waitState(t, m, mirroring, mine)
	for _, step := range []struct {
		v     verb
		state int8
	}{{vPause, paused}, {vResume, mirroring}, {vStop, stopped}} {
		refused(t, s.send(t, "operator", step.v, m, other), kerr.TopicAuthorizationFailed.Code, other)
		if err := s.send(t, "operator", step.v, m, mine); err != nil {
			t.Errorf("%s: %v", step.v, err)
		}
		s.waitState(t, m, step.state, mine)
	}
	refused(t, s.send(t, "operator", vRecover, m, mine), protocol.InvalidClusterMirrorStates, mine)
	refused(t, s.send(t, "operator", vRecover, m, other), kerr.TopicAuthorizationFailed.Code, other)
}

func rightsDelete(t *testing.T, e *env) {
	s := e.secured(t)
	m := s.mustMirror(t, e, "c8-4")
	del := func(user string) error {
		req := protocol.NewDeleteClusterMirrorRequest()
		req.MirrorName = m
		r := askAt[*protocol.DeleteClusterMirrorResponse](t, s.addr(), &req, login(user))
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	}
	refused(t, del("nobody"), protocol.ClusterMirrorAuthorizationFailed)
	s.allow(t, "viewer", kadm.OpDescribe)
	refused(t, del("viewer"), protocol.ClusterMirrorAuthorizationFailed, "ALTER")
	s.allow(t, "configurer", kadm.OpAlter)
	if err := del("configurer"); err != nil {
		t.Errorf("with ALTER: %v", err)
	}
}

func rightsLook(t *testing.T, e *env) {
	s := e.secured(t)
	m := s.mustMirror(t, e, "c8-5")
	look := func(user string) (int16, error) {
		req := protocol.NewListClusterMirrorsRequest()
		r := askAt[*protocol.ListClusterMirrorsResponse](t, s.addr(), &req, login(user))
		_, err := describe(t.Context(), apiClient(t, s.addr(), login(user)), m)
		return r.ErrorCode, err
	}
	code, err := look("nobody")
	if code != protocol.ClusterMirrorAuthorizationFailed {
		t.Errorf("list gets %d", code)
	}
	refused(t, err, protocol.ClusterMirrorAuthorizationFailed)
	s.allow(t, "viewer", kadm.OpDescribe)
	if code, err := look("viewer"); code != 0 || err != nil {
		t.Errorf("with DESCRIBE: %d, %v", code, err)
	}
}

func configsAs(t *testing.T, s *secured, user, mirror string) (describeErr, alterErr error) {
	t.Helper()
	d := kmsg.NewPtrDescribeConfigsRequest()
	dr := kmsg.NewDescribeConfigsRequestResource()
	dr.ResourceType, dr.ResourceName = mirrorResource, mirror
	d.Resources = append(d.Resources, dr)
	r := askAt[*kmsg.DescribeConfigsResponse](t, s.addr(), d, login(user))
	describeErr = protocol.ErrorForCode(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage)

	a := kmsg.NewPtrIncrementalAlterConfigsRequest()
	ar := kmsg.NewIncrementalAlterConfigsRequestResource()
	ar.ResourceType, ar.ResourceName = mirrorResource, mirror
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = "mirror.fetch.backoff.ms", kmsg.StringPtr("900")
	ar.Configs = append(ar.Configs, c)
	a.Resources = append(a.Resources, ar)
	ra := askAt[*kmsg.IncrementalAlterConfigsResponse](t, s.addr(), a, login(user))
	alterErr = protocol.ErrorForCode(ra.Resources[0].ErrorCode, ra.Resources[0].ErrorMessage)
	return describeErr, alterErr
}

func rightsConfigs(t *testing.T, e *env) {
	s := e.secured(t)
	m := s.mustMirror(t, e, "c8-6")
	d, a := configsAs(t, s, "nobody", m)
	refused(t, d, protocol.ClusterMirrorAuthorizationFailed)
	refused(t, a, protocol.ClusterMirrorAuthorizationFailed)
	s.allow(t, "reader", kadm.OpDescribeConfigs)
	d, a = configsAs(t, s, "reader", m)
	if d != nil {
		t.Errorf("with DESCRIBE_CONFIGS: %v", d)
	}
	refused(t, a, protocol.ClusterMirrorAuthorizationFailed, "ALTER_CONFIGS")
	s.allow(t, "reader", kadm.OpAlterConfigs)
	if _, a = configsAs(t, s, "reader", m); a != nil {
		t.Errorf("with ALTER_CONFIGS: %v", a)
	}
}

func rightsStates(t *testing.T, e *env) {
	s := e.secured(t)
	ask := func(user string) (int16, int16) {
		read, write := protocol.NewReadMirrorStatesRequest(), protocol.NewWriteMirrorStatesRequest()
		r := askAt[*protocol.ReadMirrorStatesResponse](t, s.addr(), &read, login(user))
		w := askAt[*protocol.WriteMirrorStatesResponse](t, s.addr(), &write, login(user))
		return r.ErrorCode, w.ErrorCode
	}
	for _, user := range []string{"nobody", "peer"} {
		if user == "peer" {
			s.allow(t, user, kadm.OpAlter, kadm.OpDescribe)
		}
		if r, w := ask(user); r != protocol.ClusterMirrorAuthorizationFailed || w != protocol.ClusterMirrorAuthorizationFailed {
			t.Errorf("%s: read gets %d, write %d", user, r, w)
		}
	}
	s.allow(t, "peer", kadm.OpClusterAction)
	if r, w := ask("peer"); r != 0 || w != 0 {
		t.Errorf("with CLUSTER_ACTION: read gets %d, write %d", r, w)
	}
}

func rightsStateTopic(t *testing.T, e *env) {
	s := e.secured(t)
	s.mustMirror(t, e, "c2-10")
	s.allowTopics(t, "tail", "__cluster_mirror", kadm.OpRead, kadm.OpDescribe)
	s.allowTopics(t, "tail", "c2-10", kadm.OpRead, kadm.OpDescribe)
	const ordinary = "c2-10.ordinary"
	createTopic(t, s.client(t, userAdmin), 1, 1, ordinary)
	other, err := detail(t.Context(), s.admin(t), ordinary)
	if err != nil {
		t.Fatal(err)
	}
	d, err := detail(t.Context(), s.admin(t), protocol.StateTopic)
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(session, epoch int32, topics ...kadm.TopicDetail) (r *kmsg.FetchResponse, read int, err error) {
		req := kmsg.NewPtrFetchRequest()
		req.MaxWaitMillis, req.MaxBytes, req.MinBytes, req.SessionID, req.SessionEpoch = 100, 1<<20, 0, session, epoch
		for _, d := range topics {
			ft := kmsg.NewFetchRequestTopic()
			ft.Topic, ft.TopicID = d.Topic, d.ID
			for p := range d.Partitions {
				fp := kmsg.NewFetchRequestTopicPartition()
				fp.Partition, fp.PartitionMaxBytes, fp.CurrentLeaderEpoch = p, 1<<20, -1
				ft.Partitions = append(ft.Partitions, fp)
			}
			req.Topics = append(req.Topics, ft)
		}
		r = askAt[*kmsg.FetchResponse](t, s.addr(), req, login("tail"))
		err = kerr.ErrorForCode(r.ErrorCode)
		for _, rt := range r.Topics {
			for _, p := range rt.Partitions {
				if rt.TopicID == d.ID || rt.Topic == protocol.StateTopic {
					read += len(p.RecordBatches)
				}
				if p.ErrorCode != 0 {
					err = kerr.ErrorForCode(p.ErrorCode)
				}
			}
		}
		return r, read, err
	}
	// Each of these tells of the records, or where they are.
	listOffsets := func() error {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = protocol.StateTopic
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.CurrentLeaderEpoch, rp.Timestamp = -1, -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		r := askAt[*kmsg.ListOffsetsResponse](t, s.addr(), req, login("tail"))
		return kerr.ErrorForCode(r.Topics[0].Partitions[0].ErrorCode)
	}
	epochEnd := func() error {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = -1
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = protocol.StateTopic
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.CurrentLeaderEpoch = -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		r := askAt[*kmsg.OffsetForLeaderEpochResponse](t, s.addr(), req, login("tail"))
		return kerr.ErrorForCode(r.Topics[0].Partitions[0].ErrorCode)
	}
	whole := func() (int, error) { _, n, err := fetch(0, -1, d); return n, err }
	if n, err := whole(); err == nil || n > 0 {
		t.Errorf("%d bytes of it can be read without DESCRIBE on the cluster: %v", n, err)
	}
	// A session that is made with another topic, to which it is added.
	made, _, err := fetch(0, 0, other)
	if err != nil {
		t.Fatalf("fetch of another topic: %v", err)
	}
	if made.SessionID == 0 {
		t.Error("no fetch session was made")
	}
	if _, n, err := fetch(made.SessionID, 1, d); err == nil || n > 0 {
		t.Errorf("added to a fetch session, %d bytes of it can be read without DESCRIBE on the cluster: %v", n, err)
	}
	if _, n, _ := fetch(made.SessionID, 2); n > 0 {
		t.Errorf("the fetch session goes on with %d bytes of it", n)
	}
	for what, ask := range map[string]func() error{"ListOffsets": listOffsets, "OffsetForLeaderEpoch": epochEnd} {
		if err := ask(); !errors.Is(err, kerr.TopicAuthorizationFailed) {
			t.Errorf("%s without DESCRIBE on the cluster: %v", what, err)
		}
	}
	s.allow(t, "tail", kadm.OpDescribe)
	eventually(t, "it can be read with DESCRIBE on the cluster", func(context.Context) error {
		n, err := whole()
		if err == nil && n == 0 {
			err = errors.New("nothing is read")
		}
		return errors.Join(err, listOffsets(), epochEnd())
	})
}

func readOnlyError(t *testing.T, e *env) {
	s := e.secured(t)
	m := s.mustMirror(t, e, "c2-13")
	e.topic(t, m, 1, 3)
	if err := s.send(t, userAdmin, vStart, m, m); err != nil {
		t.Fatal(err)
	}
	s.waitState(t, m, mirroring, m)
	d, err := detail(t.Context(), s.admin(t), m)
	if err != nil {
		t.Fatal(err)
	}
	r := askAt[*kmsg.ProduceResponse](t, s.addr(), produceRequest(-1, nil, d), login(userAdmin))
	if p := r.Topics[0].Partitions[0]; p.ErrorCode != protocol.ReadOnlyTopic || !strings.Contains(text(p.ErrorMessage), m) {
		t.Errorf("code %d, %q", p.ErrorCode, text(p.ErrorMessage))
	}
}

// secrets mirrors from the secured cluster with a password from a file, and looks for it
// everywhere.
func secrets(t *testing.T, e *env) {
	s := e.secured(t)
	const topic = "c6-3"
	createTopic(t, s.client(t, userAdmin), 1, 1, topic)
	if err := produce(t.Context(), s.client(t, userAdmin), topic, 1, 5, "secured"); err != nil {
		t.Fatal(err)
	}
	create := func(name, login string) error {
		r := ask[*protocol.CreateClusterMirrorResponse](t, e, 0, createRequest(name, e.sourceSecured(t, login)))
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	}
	module := `org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="`
	// Nothing expands that is not allowed.
	outside := t.TempDir()
	secretFile(t, outside, "outside.properties", "password="+userAdmin+passwordTail+"\n")
	for name, ref := range map[string]string{"file": "${file:" + outside + "/outside.properties:password}", "env": "${env:PATH}"} {
		err := create("c6-4."+name, module+ref+`";`)
		if err == nil {
			t.Errorf("%s was expanded", ref)
		} else if !strings.Contains(err.Error(), "allowed") {
			t.Errorf("%s is refused with %v", ref, err)
		}
	}
	secretFile(t, e.secrets, "source.properties", "password="+userAdmin+passwordTail+"\n")
	if err := create("c6-3", module+"${file:"+e.secrets+`/source.properties:password}";`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopAll(e.dst, "c6-3") })
	e.started(t, "c6-3", topic)
	sameEnds(t, s.admin(t), e.dstAdmin, topic)

	// One with the password as it is.
	if err := create("c1-20", jaas(userAdmin)); err != nil {
		t.Fatal(err)
	}
	shown := ""
	for i := range e.dst.Sidecars {
		c := describeConfigs(t, e.dst.Sidecars[i].Proxy, mirrorResource, "c1-20")["sasl.jaas.config"]
		if c.Value != nil || !c.IsSensitive {
			t.Errorf("sasl.jaas.config is shown as %q, sensitive: %t", text(c.Value), c.IsSensitive)
		}
		log, err := os.ReadFile(e.dst.Sidecars[i].LogFile())
		if err != nil {
			t.Fatal(err)
		}
		shown += string(log)
	}
	for _, args := range [][]string{
		{"--list"}, {"--list", "--json"}, {"--describe", "--mirror", "c1-20"}, {"--describe", "--mirror", "c1-20", "--json"}, {"--explain", "--topic", topic},
	} {
		o := e.tryCLI(t, args...)
		shown += o.stdout + o.stderr
	}
	if strings.Contains(shown, passwordTail) {
		t.Errorf("a password is shown: %s", shown[max(0, strings.Index(shown, passwordTail)-300):][:400])
	}
	// The command line takes Kafka's own keys.
	cfg := commandConfig(t, userAdmin)
	if o := cliAt(t, s.addr(), "--list", "--command-config", cfg); o.code != 0 {
		t.Errorf("--command-config: exit %d: %s", o.code, o.stderr)
	}
	if o := cliAt(t, s.addr(), "--list", "--command-config", commandConfig(t, "nobody")); o.code == 0 {
		t.Error("a user without rights could list")
	}
}

// triesAgain mirrors a topic that may not be read for a while.
func triesAgain(t *testing.T, e *env) {
	s := e.secured(t)
	const topic = "c4-5"
	createTopic(t, s.client(t, userAdmin), 1, 1, topic)
	if err := produce(t.Context(), s.client(t, userAdmin), topic, 1, 5, "secured"); err != nil {
		t.Fatal(err)
	}
	s.allow(t, "source", kadm.OpDescribe)
	s.allowTopics(t, "source", topic, kadm.OpDescribe, kadm.OpDescribeConfigs)
	mirrorAt(t, e.dst, topic, e.sourceSecured(t, jaas("source")))
	e.do(t, vStart, topic, topic)
	// Each try is recorded. The first wait is what the stack's sidecars are told, and each is
	// twice the one before, give or take a fifth.
	const tries = 6
	type sight struct {
		before time.Time // it was not there yet
		first  time.Time
		last   time.Time // it was still the newest
	}
	seen := map[int16]sight{}
	previous := time.Now()
	cl := apiClient(t, e.dst.Sidecars[0].Proxy)
	look := func(ctx context.Context) (protocol.DescribedPartition, error) {
		d, err := describe(ctx, cl, topic)
		if err != nil {
			return protocol.DescribedPartition{}, err
		}
		parts := d.topic(topic).Partitions
		if len(parts) == 0 {
			return protocol.DescribedPartition{}, errors.New("not described")
		}
		return parts[0], nil
	}
	eventually(t, "it is tried again", func(ctx context.Context) error {
		asked := time.Now()
		p, err := look(ctx)
		if err != nil {
			return err
		}
		if p.State == failed {
			s, again := seen[p.RetryAttempt]
			if !again {
				s.before, s.first = previous, time.Now()
			}
			s.last = asked
			seen[p.RetryAttempt] = s
		}
		previous = asked
		if p.State != failed || p.RetryAttempt < tries {
			return fmt.Errorf("state %d, attempt %d: %s", p.State, p.RetryAttempt, text(p.ErrorMessage))
		}
		return nil
	})
	wait := func(attempt int16) time.Duration {
		return min(stack.RetryInitialBackoff<<(attempt-1), stack.RetryMaxBackoff)
	}
	compared := 0
	for n := int16(3); n < tries; n++ { // those before are too short to be compared
		this, ok := seen[n]
		next, follows := seen[n+1]
		if !ok || !follows {
			continue // it was over before it was looked at
		}
		compared++
		// The slack is what a slow machine may take to try, and to record it.
		least, most, want := this.last.Sub(this.first), next.first.Sub(this.before), wait(n)
		if most < want*4/5-time.Second || least > want*6/5+10*time.Second {
			t.Errorf("attempt %d failed %s to %s after attempt %d, want about %s", n+1, least, most, n, want)
		}
	}
	if compared < 2 {
		t.Errorf("too few attempts were seen: %v", seen)
	}
	// The next try by itself is four seconds away at least.
	s.allowTopics(t, "source", topic, kadm.OpRead)
	if err := e.send(t, vRecover, topic, topic); err != nil {
		t.Errorf("recover: %v", err)
	}
	e.waitState(t, topic, mirroring, topic)
	if took := time.Since(seen[tries].first); took >= wait(tries)*4/5 {
		t.Errorf("it mirrors %s after it failed: recover was not at once", took)
	}
	sameEnds(t, s.admin(t), e.dstAdmin, topic)
}

// tieredHere starts a topic that exists with tiered storage at the secured cluster, whose
// broker allows that.
func tieredHere(t *testing.T, e *env) {
	s := e.secured(t)
	m := s.mustMirror(t, e, "a3-4")
	e.topic(t, m, 1, 1)
	createTopic(t, s.client(t, userAdmin), 1, 1, m, "remote.storage.enable", "true")
	refused(t, s.send(t, userAdmin, vStart, m, m), kerr.InvalidConfig.Code, m, "remote.storage.enable")
}

package auth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

const (
	mirror                                 = "east"
	mirrorResource kmsg.ConfigResourceType = 64
	secret                                 = "never-shown"
	peerClientID                           = "mirror-peer-10001"
	authFailed                             = protocol.ClusterMirrorAuthorizationFailed
	topicDenied                            = int16(29)
)

// TestAuthorization is one test so that the clusters are started once.
func TestAuthorization(t *testing.T) {
	e := start(t)
	adm := kadm.NewClient(e.src.ClientT(t))
	for _, topic := range []string{"auth-a", "auth-b", "auth-c"} {
		if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	// auth-c exists at the destination too; the others do not.
	if _, err := kadm.NewClient(e.dst.Cluster.ClientT(t)).CreateTopic(t.Context(), 1, 2, nil, "auth-c"); err != nil {
		t.Fatal(err)
	}
	e.create(t)
	t.Run("cluster", func(t *testing.T) { e.testCluster(t) })
	t.Run("topics", func(t *testing.T) { e.testTopics(t) })
	t.Run("peers", func(t *testing.T) { e.testPeers(t) })
	t.Run("coordinators", func(t *testing.T) { e.testCoordinators(t) })
	t.Run("mirror configs", func(t *testing.T) { e.testMirrorConfigs(t) })
	t.Run("start", func(t *testing.T) { e.testStart(t) })
	t.Run("offsets", func(t *testing.T) { e.testOffsets(t) })
	t.Run("topic configs", func(t *testing.T) { e.testTopicConfigs(t) })
	t.Run("state topic", func(t *testing.T) { e.testState(t) })
	t.Run("transactional ids", func(t *testing.T) { e.testTransactionalIDs(t) })
	t.Run("strangers", func(t *testing.T) { e.testStrangers(t) })
	t.Run("forged records", func(t *testing.T) { e.testForged(t) })
	t.Run("fence", func(t *testing.T) { e.testFence(t) })
	t.Run("to the end", func(t *testing.T) { e.testEnd(t) })
	t.Run("rights that are taken away", func(t *testing.T) { e.testTaken(t) })
}

func (e *env) create(t *testing.T) {
	t.Helper()
	req := protocol.NewCreateClusterMirrorRequest()
	req.MirrorName = mirror
	for k, v := range map[string]string{
		"bootstrap.servers": strings.Join(e.src.Bootstrap(harness.ListenerClient), ","),
		"security.protocol": "SASL_PLAINTEXT",
		"sasl.jaas.config":  fmt.Sprintf(`org.apache.kafka.common.security.plain.PlainLoginModule required username="east" password=%q;`, secret),
	} {
		c := protocol.NewMirrorConfig()
		c.Name, c.Value = k, &v
		req.Configs = append(req.Configs, c)
	}
	if code, message := codeOf(t, e.ask(t, userAll, 0, &req)); code != 0 {
		t.Fatalf("create: %d %s", code, message)
	}
	// Every sidecar has to have read it before it is asked about it.
	for n := range e.dst.Proxies() {
		eventually(t, "the mirror is known", func(context.Context) error {
			req := protocol.NewListClusterMirrorsRequest()
			if r := e.ask(t, userAll, n, &req).(*protocol.ListClusterMirrorsResponse); len(r.Mirrors) != 1 {
				return fmt.Errorf("%d mirrors, error %d %s", len(r.Mirrors), r.ErrorCode, text(r.ErrorMessage))
			}
			return nil
		})
	}
}

// codeOf reads the error that every mirror API's answer has.
func codeOf(t *testing.T, resp kmsg.Response) (int16, string) {
	t.Helper()
	v := reflect.ValueOf(resp).Elem()
	code, ok := v.FieldByName("ErrorCode").Interface().(int16)
	if !ok {
		t.Fatalf("%T has no error code", resp)
	}
	message, _ := v.FieldByName("ErrorMessage").Interface().(*string)
	return code, text(message)
}

// clusterRights is one row of contract.md §8: an API, who may use it, and who lacks what.
type clusterRights struct {
	req   func() kmsg.Request
	users []string          // who may
	lacks map[string]string // user to the right that he lacks
}

func table() map[string]clusterRights {
	lacksAlter := map[string]string{userNoAlter: "ALTER", userDescribes: "ALTER", userReads: "ALTER", userIsBroker: "ALTER"}
	lacksDescribe := map[string]string{userNoDescribe: "DESCRIBE", userReads: "DESCRIBE", userSeesConfig: "DESCRIBE"}
	lacksAction := map[string]string{userAll: "CLUSTER_ACTION", userReads: "CLUSTER_ACTION", userNoAlter: "CLUSTER_ACTION"}
	topics := []string{"auth-a"}
	return map[string]clusterRights{
		"create": {
			func() kmsg.Request {
				r := protocol.NewCreateClusterMirrorRequest()
				r.MirrorName, r.ValidateOnly = "west", true
				return &r
			},
			[]string{userAll},
			map[string]string{userNoCreate: "CREATE", userNoAlter: "ALTER", userDescribes: "CREATE and ALTER", userReads: "CREATE and ALTER"},
		},
		"start": {func() kmsg.Request {
			r := protocol.NewStartMirrorTopicsRequest()
			r.MirrorName, r.Topics, r.ValidateOnly = mirror, topics, true
			return &r
		}, []string{userAll, userNoCreate, userFewTopics}, lacksAlter},
		"stop": {func() kmsg.Request {
			r := protocol.NewStopMirrorTopicsRequest()
			r.MirrorName, r.Topics, r.ValidateOnly = mirror, topics, true
			return &r
		}, []string{userAll, userNoCreate, userFewTopics}, lacksAlter},
		"pause": {func() kmsg.Request {
			r := protocol.NewPauseMirrorTopicsRequest()
			r.MirrorName, r.Topics, r.ValidateOnly = mirror, topics, true
			return &r
		}, []string{userAll, userNoCreate, userFewTopics}, lacksAlter},
		"resume": {func() kmsg.Request {
			r := protocol.NewResumeMirrorTopicsRequest()
			r.MirrorName, r.Topics, r.ValidateOnly = mirror, topics, true
			return &r
		}, []string{userAll, userNoCreate, userFewTopics}, lacksAlter},
		"recover": {func() kmsg.Request {
			r := protocol.NewRecoverMirrorTopicsRequest()
			r.MirrorName, r.Topics, r.ValidateOnly = mirror, topics, true
			return &r
		}, []string{userAll, userNoCreate, userFewTopics}, lacksAlter},
		"delete": {func() kmsg.Request {
			r := protocol.NewDeleteClusterMirrorRequest()
			r.MirrorName, r.ValidateOnly = mirror, true
			return &r
		}, []string{userAll, userNoCreate}, lacksAlter},
		"fence": {func() kmsg.Request {
			r := protocol.NewFenceTopicWritesRequest()
			r.Topics = topics
			return &r
		}, []string{userAll, userNoCreate, userFewTopics}, lacksAlter},
		"list": {func() kmsg.Request {
			r := protocol.NewListClusterMirrorsRequest()
			return &r
		}, []string{userAll, userDescribes, userNoAlter}, lacksDescribe},
		"describe": {func() kmsg.Request {
			r := protocol.NewDescribeClusterMirrorsRequest()
			return &r
		}, []string{userAll, userDescribes, userNoAlter}, lacksDescribe},
		"explain": {func() kmsg.Request {
			r := protocol.NewExplainClusterMirrorRequest()
			r.Kind, r.Name = "topic", "auth-a"
			return &r
		}, []string{userAll, userDescribes, userNoAlter}, lacksDescribe},
		"read states": {func() kmsg.Request {
			r := protocol.NewReadMirrorStatesRequest()
			r.MirrorName = mirror
			return &r
		}, []string{userIsBroker}, lacksAction},
		"write states": {func() kmsg.Request {
			r := protocol.NewWriteMirrorStatesRequest()
			r.MirrorName = mirror
			return &r
		}, []string{userIsBroker}, lacksAction},
		"un-cordon": {func() kmsg.Request {
			r := protocol.NewUncordonVirtualBrokerRequest()
			return &r
		}, []string{userIsBroker}, lacksAction},
	}
}

func (e *env) testCluster(t *testing.T) {
	for name, row := range table() {
		t.Run(name, func(t *testing.T) {
			for _, user := range row.users {
				if code, message := codeOf(t, e.ask(t, user, 0, row.req())); code == authFailed {
					t.Errorf("%s: %s", user, message)
				}
			}
			for user, lacks := range row.lacks {
				// A client that calls itself a sidecar is not asked for less.
				for _, opts := range [][]kgo.Opt{nil, {kgo.ClientID(peerClientID)}} {
					if user == userIsBroker && opts != nil {
						continue // that one is as good as a sidecar
					}
					code, message := codeOf(t, e.ask(t, user, 1, row.req(), opts...))
					if code != authFailed || !strings.Contains(message, "lacks "+lacks+" on the cluster") {
						t.Errorf("%s: code %d, %s; want that he lacks %s", user, code, message, lacks)
					}
				}
			}
		})
	}
	t.Run("authorized operations", func(t *testing.T) {
		req := protocol.NewDescribeClusterMirrorsRequest()
		req.IncludeAuthorizedOperations = true
		for user, want := range map[string]int32{
			userAll:       1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11,
			userDescribes: 1 << 8,
			userNoAlter:   1<<5 | 1<<8 | 1<<10 | 1<<11,
		} {
			r := e.ask(t, user, 0, &req).(*protocol.DescribeClusterMirrorsResponse)
			if len(r.Mirrors) != 1 || r.Mirrors[0].AuthorizedOperations != want {
				t.Errorf("%s: %+v, want %b", user, r.Mirrors, want)
			}
		}
	})
}

func results(t *testing.T, resp kmsg.Response) map[string]int16 {
	t.Helper()
	if code, message := codeOf(t, resp); code != 0 {
		t.Fatalf("%T: code %d: %s", resp, code, message)
	}
	out := map[string]int16{}
	for _, r := range reflect.ValueOf(resp).Elem().FieldByName("Topics").Interface().([]protocol.TopicResult) {
		out[r.Name] = r.ErrorCode
		if r.ErrorCode == topicDenied && !strings.Contains(text(r.ErrorMessage), "ALTER_CONFIGS on topic "+r.Name) {
			t.Errorf("%s: %s", r.Name, text(r.ErrorMessage))
		}
	}
	return out
}

// testTopics asks as a user who has ALTER_CONFIGS on auth-a only: auth-b does not exist here,
// auth-c does.
func (e *env) testTopics(t *testing.T) {
	names := []string{"auth-a", "auth-b", "auth-c"}
	for name, req := range map[string]kmsg.Request{
		"start":   &protocol.StartMirrorTopicsRequest{MirrorName: mirror, Topics: names, ValidateOnly: true},
		"pattern": &protocol.StartMirrorTopicsRequest{MirrorName: mirror, IncludePatterns: []string{"auth-[abc]"}, ValidateOnly: true},
		"stop":    &protocol.StopMirrorTopicsRequest{MirrorName: mirror, Topics: names, ValidateOnly: true},
		"pause":   &protocol.PauseMirrorTopicsRequest{MirrorName: mirror, Topics: names, ValidateOnly: true},
		"resume":  &protocol.ResumeMirrorTopicsRequest{MirrorName: mirror, Topics: names, ValidateOnly: true},
		"recover": &protocol.RecoverMirrorTopicsRequest{MirrorName: mirror, Topics: names, ValidateOnly: true},
		"fence":   &protocol.FenceTopicWritesRequest{Topics: names},
	} {
		t.Run(name, func(t *testing.T) {
			for n, opts := range [][]kgo.Opt{nil, {kgo.ClientID(peerClientID)}} {
				got := results(t, e.ask(t, userFewTopics, n, req, opts...))
				if len(got) != 3 || got["auth-a"] == topicDenied || got["auth-b"] != topicDenied || got["auth-c"] != topicDenied {
					t.Errorf("got %v", got)
				}
			}
		})
	}
}

// testPeers calls itself a sidecar. Who lacks CLUSTER_ACTION is served as a client: a sidecar
// would be told to look for the coordinator himself by one of the two.
func (e *env) testPeers(t *testing.T) {
	notCoordinator := map[string]int{}
	for _, user := range []string{userAll, userIsBroker, userActs} {
		for n := range e.dst.Proxies() {
			req := protocol.NewDeleteClusterMirrorRequest()
			req.MirrorName, req.ValidateOnly = mirror, true
			switch code, message := codeOf(t, e.ask(t, user, n, &req, kgo.ClientID(peerClientID))); {
			case code == kerr.NotCoordinator.Code:
				notCoordinator[user]++
			case code == authFailed && user == userActs:
			case code != 0:
				t.Errorf("%s at sidecar %d: code %d %s", user, n, code, message)
			}
		}
	}
	if notCoordinator[userAll] != 0 || notCoordinator[userIsBroker] != 1 {
		t.Errorf("told to look elsewhere: %v", notCoordinator)
	}
}

func (e *env) testCoordinators(t *testing.T) {
	find := func(user string, version int16, key string) (node int32, host string, code int16) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = 3, key, []string{key}
		req.Version = version
		cl := e.client(t, user, kgo.SeedBrokers(e.dst.Proxies()[0]), kgo.MaxVersions(findVersion(version)))
		resp, err := cl.SeedBrokers()[0].Request(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		r := resp.(*kmsg.FindCoordinatorResponse)
		if version >= 4 {
			co := r.Coordinators[0]
			return co.NodeID, fmt.Sprintf("%s:%d", co.Host, co.Port), co.ErrorCode
		}
		return r.NodeID, fmt.Sprintf("%s:%d", r.Host, r.Port), r.ErrorCode
	}
	for version := int16(1); version <= 6; version++ {
		node, addr, code := find(userDescribes, version, mirror)
		if c := e.dst.Sidecar(node); code != 0 || c == nil || c.Proxy != addr {
			t.Errorf("v%d: broker %d at %s, code %d", version, node, addr, code)
		}
		if _, _, code := find(userDescribes, version, "none"); code != protocol.UnknownClusterMirror {
			t.Errorf("v%d, unknown mirror: code %d", version, code)
		}
		if _, _, code := find(userReads, version, mirror); code != authFailed {
			t.Errorf("v%d, not allowed: code %d", version, code)
		}
	}
}

func (e *env) testMirrorConfigs(t *testing.T) {
	describe := func(user string, n int) kmsg.DescribeConfigsResponseResource {
		req := kmsg.NewPtrDescribeConfigsRequest()
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName = mirrorResource, mirror
		req.Resources = append(req.Resources, res)
		return e.ask(t, user, n, req).(*kmsg.DescribeConfigsResponse).Resources[0]
	}
	alter := func(user string, n int, value string, opts ...kgo.Opt) (int16, string) {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = mirrorResource, mirror
		res.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "mirror.fetch.backoff.ms", Value: &value}}
		req.Resources = append(req.Resources, res)
		r := e.ask(t, user, n, req, opts...).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
		return r.ErrorCode, text(r.ErrorMessage)
	}
	value := func(n int) string {
		for _, c := range describe(userSeesConfig, n).Configs {
			if c.Name == "mirror.fetch.backoff.ms" {
				return text(c.Value)
			}
		}
		return ""
	}
	seen := false
	for _, c := range describe(userSeesConfig, 0).Configs {
		if strings.Contains(text(c.Value), secret) {
			t.Errorf("%s shows its secret", c.Name)
		}
		seen = seen || c.Name == "sasl.jaas.config" && c.IsSensitive && c.Value == nil
	}
	if !seen {
		t.Error("sasl.jaas.config is not shown as a secret")
	}
	// One of the two passes it on to the other.
	for n := range e.dst.Proxies() {
		want := fmt.Sprint(500 + n)
		if code, message := alter(userSetsConfig, n, want); code != 0 {
			t.Fatalf("alter at sidecar %d: code %d %s", n, code, message)
		}
		if got := value(n); got != want {
			t.Errorf("sidecar %d: %s, want %s", n, got, want)
		}
	}
	for user, lacks := range map[string]string{userDescribes: "DESCRIBE_CONFIGS", userReads: "DESCRIBE_CONFIGS", userNoDescribe: "DESCRIBE_CONFIGS"} {
		if r := describe(user, 0); r.ErrorCode != authFailed || !strings.Contains(text(r.ErrorMessage), "lacks "+lacks) || len(r.Configs) > 0 {
			t.Errorf("%s: %+v", user, r)
		}
	}
	for user, lacks := range map[string]string{userSeesConfig: "ALTER_CONFIGS", userReads: "ALTER_CONFIGS", userFewTopics: "ALTER_CONFIGS"} {
		for _, opts := range [][]kgo.Opt{nil, {kgo.ClientID(peerClientID)}} {
			if code, message := alter(user, 0, "1", opts...); code != authFailed || !strings.Contains(message, "lacks "+lacks) {
				t.Errorf("%s: code %d %s", user, code, message)
			}
		}
	}
	legacy := kmsg.NewPtrAlterConfigsRequest()
	legacy.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: mirrorResource, ResourceName: mirror}}
	if r := e.ask(t, userAll, 0, legacy).(*kmsg.AlterConfigsResponse).Resources[0]; r.ErrorCode != kerr.InvalidRequest.Code || !strings.Contains(text(r.ErrorMessage), "IncrementalAlterConfigs") {
		t.Errorf("AlterConfigs: code %d %s", r.ErrorCode, text(r.ErrorMessage))
	}
}

// testStart starts by a pattern what the user may, and sees that the sidecars, with no more
// rights than they need, mirror it.
func (e *env) testStart(t *testing.T) {
	got := results(t, e.ask(t, userFewTopics, 1, &protocol.StartMirrorTopicsRequest{MirrorName: mirror, IncludePatterns: []string{"auth-[ab]"}}))
	if len(got) != 2 || got["auth-a"] != 0 || got["auth-b"] != topicDenied {
		t.Fatalf("got %v", got)
	}
	src := e.src.ClientT(t, kgo.DefaultProduceTopic("auth-a"))
	for i := range 100 {
		src.Produce(t.Context(), kgo.StringRecord(fmt.Sprint(i)), nil)
	}
	if err := src.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(e.dst.Cluster.ClientT(t))
	eventually(t, "auth-a is mirrored", func(ctx context.Context) error {
		ends, err := adm.ListEndOffsets(ctx, "auth-a")
		if err == nil {
			err = ends.Error()
		}
		if err != nil {
			return err
		}
		if o, _ := ends.Lookup("auth-a", 0); o.Offset != 100 {
			req := protocol.NewDescribeClusterMirrorsRequest()
			return fmt.Errorf("end %d of 100; %+v", o.Offset, e.ask(t, userAll, 0, &req).(*protocol.DescribeClusterMirrorsResponse).Mirrors)
		}
		return nil
	})
	// The pattern would have spoken for auth-b.
	topics, err := adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if topics.Has("auth-b") {
		t.Error("auth-b was started")
	}
}

// testOffsets: as at any broker it takes DESCRIBE to be told of a mirror topic's offsets, and not READ.
func (e *env) testOffsets(t *testing.T) {
	for user, want := range map[string]error{userSees: nil, userReads: nil, userActs: kerr.TopicAuthorizationFailed} {
		adm := kadm.NewClient(e.client(t, user))
		for what, list := range map[string]func() (kadm.ListedOffsets, error){
			"latest":    func() (kadm.ListedOffsets, error) { return adm.ListEndOffsets(t.Context(), "auth-a") },
			"committed": func() (kadm.ListedOffsets, error) { return adm.ListCommittedOffsets(t.Context(), "auth-a") },
		} {
			l, err := list()
			if err == nil {
				err = l.Error()
			}
			o, _ := l.Lookup("auth-a", 0)
			if want == nil && (err != nil || o.Offset != 100) || want != nil && err == nil {
				t.Errorf("%s: %s: offset %d, %v; want %v", user, what, o.Offset, err, want)
			}
		}
	}
}

// testTopicConfigs shows the mirror topic to stock tools.
func (e *env) testTopicConfigs(t *testing.T) {
	file := filepath.Join(e.dst.Dir(), "client.properties")
	jaas := fmt.Sprintf(`org.apache.kafka.common.security.plain.PlainLoginModule required username="%s" password="%s";`, userAll, password(userAll))
	if err := os.WriteFile(file, []byte("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="+jaas+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in := e.dst.Cluster.Installation()
	tool := func(args []string, names ...string) (harness.ToolResult, error) {
		class, err := in.FindClass(names...)
		if err != nil {
			t.Fatal(err)
		}
		return in.Tool(t.Context(), harness.ToolRun{Class: class, Args: append([]string{"--bootstrap-server", e.dst.Proxies()[0], "--command-config", file}, args...)})
	}
	res, err := tool([]string{"--describe", "--topic", "auth-a"}, "org.apache.kafka.tools.TopicCommand", "kafka.admin.TopicCommand")
	if err != nil || !strings.Contains(res.Stdout, "mirror.name="+mirror) || strings.Contains(res.Stdout, "max.message.bytes=0") {
		t.Errorf("kafka-topics: %v\n%s", err, res.Stdout)
	}
	res, err = tool([]string{"--describe", "--all", "--entity-type", "topics", "--entity-name", "auth-a"}, "org.apache.kafka.tools.ConfigCommand", "kafka.admin.ConfigCommand")
	if err != nil || !strings.Contains(res.Stdout, "mirror.name="+mirror) || !strings.Contains(res.Stdout, "max.message.bytes=1048588") {
		t.Errorf("kafka-configs --describe: %v\n%s", err, res.Stdout)
	}
	for _, change := range []string{"mirror.name=west", "min.insync.replicas=1"} {
		res, err = tool([]string{"--alter", "--entity-type", "topics", "--entity-name", "auth-a", "--add-config", change}, "org.apache.kafka.tools.ConfigCommand", "kafka.admin.ConfigCommand")
		if err == nil || !strings.Contains(res.Stdout+res.Stderr, "mirror") {
			t.Errorf("kafka-configs --alter %s: %v\n%s%s", change, err, res.Stdout, res.Stderr)
		}
	}
	configs, err := kadm.NewClient(e.client(t, userAll)).DescribeTopicConfigs(t.Context(), "auth-a", "auth-c")
	if err != nil {
		t.Fatal(err)
	}
	for _, rc := range configs {
		i := slices.IndexFunc(rc.Configs, func(c kadm.Config) bool { return c.Key == "mirror.name" })
		if rc.Err != nil || (i >= 0) != (rc.Name == "auth-a") || i >= 0 && rc.Configs[i].MaybeValue() != mirror {
			t.Errorf("kadm: %s: %v %+v", rc.Name, rc.Err, rc.Configs)
		}
	}
}

// testState reads the state topic as users who may read topics: only with DESCRIBE on the
// cluster there is anything to see.
func (e *env) testState(t *testing.T) {
	read := func(user string) (int, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		offsets := map[int32]kgo.Offset{}
		for p := range int32(4) {
			offsets[p] = kgo.NewOffset().At(0)
		}
		cl := e.client(t, user, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{protocol.StateTopic: offsets}))
		for {
			fetches := cl.PollFetches(ctx)
			if err := fetches.Err(); err != nil || fetches.NumRecords() > 0 {
				return fetches.NumRecords(), err
			}
		}
	}
	if n, err := read(userDescribes); err != nil || n == 0 {
		t.Errorf("%s: %d records, %v", userDescribes, n, err)
	}
	if n, err := read(userReads); n > 0 || !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("%s: %d records, %v", userReads, n, err)
	}
	ends := func(user string) error {
		l, err := kadm.NewClient(e.client(t, user)).ListEndOffsets(t.Context(), protocol.StateTopic)
		if err == nil {
			err = l.Error()
		}
		return err
	}
	if err := ends(userDescribes); err != nil {
		t.Errorf("%s: %v", userDescribes, err)
	}
	if err := ends(userReads); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("%s: offsets: %v", userReads, err)
	}
	cl := e.client(t, userAll, kgo.DefaultProduceTopic(protocol.StateTopic))
	if err := cl.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("produce: %v", err)
	}
	// The Java consumer, whose session goes on after the refusal.
	file := filepath.Join(e.dst.Dir(), "reads.properties")
	jaas := fmt.Sprintf(`org.apache.kafka.common.security.plain.PlainLoginModule required username="%s" password="%s";`, userReads, password(userReads))
	if err := os.WriteFile(file, []byte("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="+jaas+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in := e.dst.Cluster.Installation()
	class, err := in.FindClass("org.apache.kafka.tools.consumer.ConsoleConsumer", "kafka.tools.ConsoleConsumer")
	if err != nil {
		t.Fatal(err)
	}
	res, err := in.Tool(t.Context(), harness.ToolRun{Class: class, Args: []string{
		"--bootstrap-server", e.dst.Proxies()[0], "--command-config", file, "--topic", protocol.StateTopic, "--from-beginning", "--timeout-ms", "20000", "--group", "g",
	}})
	if !strings.Contains(res.Stderr, "Not authorized to access topics") || !strings.Contains(res.Stderr, "Processed a total of 0 messages") {
		t.Errorf("console consumer: %v\n%s\n%s", err, res.Stdout, res.Stderr)
	}
}

// testTransactionalIDs takes the state topic's writers' ids through the proxies: a right on all
// transactional ids is not enough.
func (e *env) testTransactionalIDs(t *testing.T) {
	const mine, free = "orders", protocol.StateTransactions + "999"
	for _, c := range []struct {
		user, id string
		want     int16
	}{
		{userAll, mine, 0}, {userAll, free, kerr.TransactionalIDAuthorizationFailed.Code}, {userSidecar, free, 0},
	} {
		cl := e.client(t, c.user)
		eventually(t, c.id+" of "+c.user, func(ctx context.Context) error {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID, req.TransactionTimeoutMillis = &c.id, 10000
			resp, err := req.RequestWith(ctx, cl)
			if err == nil && resp.ErrorCode != c.want {
				err = fmt.Errorf("code %d, want %d", resp.ErrorCode, c.want)
			}
			return err
		})
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID = free, 1
	if resp, err := end.RequestWith(t.Context(), e.client(t, userAll)); err != nil || resp.ErrorCode != kerr.TransactionalIDAuthorizationFailed.Code {
		t.Errorf("EndTxn: %+v, %v", resp, err)
	}
}

// testFence fences a topic at one sidecar and writes at the other: the producer waits, and
// goes on when the fence is gone.
func (e *env) testFence(t *testing.T) {
	fence := func(lease time.Duration) string {
		t.Helper()
		req := protocol.NewFenceTopicWritesRequest()
		req.Topics, req.LeaseMs = []string{"auth-c"}, int32(lease.Milliseconds())
		resp := e.ask(t, userAll, 0, &req)
		if got := results(t, resp); got["auth-c"] != 0 {
			t.Fatalf("fence: %v", got)
		}
		return text(resp.(*protocol.FenceTopicWritesResponse).Topics[0].ErrorMessage)
	}
	fence(2 * time.Minute)
	if anew := fence(2 * time.Minute); anew != "" {
		t.Errorf("renewed: %s", anew)
	}
	// A sidecar that starts anew has it again when it is renewed, which says so.
	second := e.dst.Sidecars[1]
	if err := second.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := second.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if anew := fence(2 * time.Minute); !strings.Contains(anew, fmt.Sprint(second.VirtualID())) {
		t.Errorf("renewed after a restart: %q", anew)
	}
	for n := range e.dst.Proxies() {
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 1000
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic = "auth-c"
		rt.Partitions = []kmsg.ProduceRequestTopicPartition{{}}
		req.Topics = append(req.Topics, rt)
		cl := e.client(t, userAll, kgo.SeedBrokers(e.dst.Proxies()[n]), kgo.MaxVersions(produceVersion(9)))
		resp, err := cl.SeedBrokers()[0].Request(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != kerr.NotEnoughReplicas.Code || !strings.Contains(text(p.ErrorMessage), "fence") {
			t.Errorf("sidecar %d: code %d %s", n, p.ErrorCode, text(p.ErrorMessage))
		}
	}
	cl := e.client(t, userAll, kgo.DefaultProduceTopic("auth-c"))
	done := make(chan error, 1)
	cl.Produce(t.Context(), kgo.StringRecord("held back"), func(_ *kgo.Record, err error) { done <- err })
	select {
	case err := <-done:
		t.Fatalf("written through the fence: %v", err)
	case <-time.After(2 * time.Second):
	}
	fence(0)
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("after the fence: %v", err)
		}
	case <-time.After(patience):
		t.Error("the producer does not go on")
	}
	// A fence that nobody renews ends by itself.
	fence(time.Second)
	if err := cl.ProduceSync(t.Context(), kgo.StringRecord("a second later")).FirstErr(); err != nil {
		t.Errorf("after the lease: %v", err)
	}
}

// testEnd takes the mirror through the rest of its life: the sidecars' rights are enough for
// it.
func (e *env) testEnd(t *testing.T) {
	state := func(ctx context.Context, want int8) error {
		req := protocol.NewDescribeClusterMirrorsRequest()
		r := e.ask(t, userAll, 0, &req).(*protocol.DescribeClusterMirrorsResponse)
		for _, m := range r.Mirrors {
			for _, dt := range m.Topics {
				for _, p := range dt.Partitions {
					if p.State != want {
						return fmt.Errorf("%s-%d is in state %d (%s %s)", dt.TopicName, p.PartitionIndex, p.State, text(p.Detail), text(p.ErrorMessage))
					}
				}
			}
		}
		return ctx.Err()
	}
	const mirroring, paused, stopped int8 = 2, 4, 6
	topics := []string{"auth-a"}
	for _, step := range []struct {
		req  kmsg.Request
		want int8
	}{
		{&protocol.PauseMirrorTopicsRequest{MirrorName: mirror, Topics: topics}, paused},
		{&protocol.ResumeMirrorTopicsRequest{MirrorName: mirror, Topics: topics}, mirroring},
		{&protocol.StopMirrorTopicsRequest{MirrorName: mirror, Topics: topics}, stopped},
	} {
		if got := results(t, e.ask(t, userAll, 0, step.req)); got["auth-a"] != 0 {
			t.Fatalf("%T: %v", step.req, got)
		}
		eventually(t, fmt.Sprintf("state after %T", step.req), func(ctx context.Context) error { return state(ctx, step.want) })
	}
	cl := e.client(t, userAll, kgo.DefaultProduceTopic("auth-a"))
	if err := cl.ProduceSync(t.Context(), kgo.StringRecord("writable")).FirstErr(); err != nil {
		t.Errorf("after the stop: %v", err)
	}
	configs, err := kadm.NewClient(e.client(t, userAll)).DescribeTopicConfigs(t.Context(), "auth-a")
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(configs[0].Configs, func(c kadm.Config) bool { return c.Key == "mirror.name" }); i < 0 || configs[0].Configs[i].MaybeValue() != mirror+".stopped" {
		t.Errorf("after the stop: %+v", configs[0].Configs)
	}
	req := protocol.NewDeleteClusterMirrorRequest()
	req.MirrorName = mirror
	if code, message := codeOf(t, e.ask(t, userAll, 1, &req)); code != 0 {
		t.Errorf("delete: code %d %s", code, message)
	}
	for _, c := range e.dst.Sidecars {
		log, err := os.ReadFile(c.LogFile())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(log)) {
			if upper := strings.ToUpper(line); strings.Contains(upper, "AUTHORIZATION_FAILED") || strings.Contains(upper, "NOT AUTHORIZED") {
				t.Errorf("sidecar %d lacks a right: %s", c.Broker, line)
			}
		}
	}
}

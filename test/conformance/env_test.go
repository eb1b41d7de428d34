package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
	"github.com/cluster-mirroring/mirror-sidecar/verify"
)

// patience bounds every wait for something that takes seconds: CI's machines are slow.
const patience = 60 * time.Second

// The states of contract §4.
const (
	unknown       int8 = -1
	logTruncation int8 = 0
	mirroring     int8 = 2
	pausing       int8 = 3
	paused        int8 = 4
	stopping      int8 = 5
	stopped       int8 = 6
	failed        int8 = 7
)

// statePartitions is what the sidecars are told for mirror.topic.num.partitions.
const statePartitions = 4

// env is what the rows of one pair share: a source, a destination of two brokers with
// sidecars, and clients of both that go around the proxies.
type env struct {
	pair pair
	src  *harness.Cluster
	back *stack.Stack // the source with its sidecar, nil where its version cannot have one
	dst  *stack.Stack

	srcClient, dstClient *kgo.Client
	srcAdmin, dstAdmin   *kadm.Client
	producer             *kgo.Client // writes to the source, partitions as given

	secrets string // a folder that ${file:} may read
	wills   string // a folder where plugins look for what is wanted of them

	sec    *secured // for what needs users; nil with secErr if it did not start
	secErr error
}

func fullVersion(t *testing.T, line string) string {
	t.Helper()
	v, ok := map[string]string{"3.9": harness.Version39, "4.3": harness.Version43, "4.4": harness.Version44}[line]
	if !ok {
		t.Fatalf("no version of Kafka for %q", line)
	}
	return v
}

func start(t *testing.T, p pair) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	e := &env{pair: p, secrets: t.TempDir(), wills: t.TempDir()}
	bin := stack.Binaries()
	sidecar := map[string]string{
		"mirror.topic.num.partitions":         fmt.Sprint(statePartitions),
		"mirror.metadata.refresh.interval.ms": "2000",
		"mirror.stop.replica.wait.ms":         "5000", // stops with a dead broker wait this long for it
		"config.providers.allowed.paths":      e.secrets,
		"config.providers.allowed.env":        "CONFORMANCE_ALLOWED",
	}
	plugins := pluginKeys(t, bin)
	maps.Copy(plugins, wilfulKeys(t, e.wills))
	maps.Copy(sidecar, plugins)
	source := harness.Config{
		Name: "source", Version: fullVersion(t, p.source), Brokers: 1, Log: log,
		Properties: map[string]string{ // for the ACLs that it keeps: everybody may do everything
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS",
		},
	}
	destination := harness.Config{
		Name: "destination", Version: fullVersion(t, p.destination), Brokers: 2, FirstID: 11, Log: log,
		Controllers: 1, // a broker may die without the quorum
		Properties: map[string]string{
			"default.replication.factor": "2",
			// Retention must have run before a row says that it deletes nothing.
			"log.retention.check.interval.ms": "1000",
			"log.initial.task.delay.ms":       "1000",
		},
	}
	var group errgroup.Group
	group.Go(func() (err error) {
		if p.source == "3.9" {
			e.src, err = harness.Start(ctx, source)
			return err
		}
		if e.back, err = stack.Start(ctx, stack.Config{Kafka: source, Bin: bin, Log: log, Sidecar: sidecar}); err == nil {
			e.src = e.back.Cluster
		}
		return err
	})
	group.Go(func() (err error) {
		e.dst, err = stack.Start(ctx, stack.Config{Kafka: destination, Bin: bin, Log: log, Sidecar: sidecar})
		return err
	})
	group.Go(func() error {
		// Its rows alone fail without it.
		e.sec, e.secErr = startSecured(ctx, fullVersion(t, p.destination), bin, plugins, log)
		return nil
	})
	err := group.Wait()
	t.Cleanup(func() { e.stop(t) })
	if err != nil {
		t.Fatal(err)
	}
	e.srcClient, e.dstClient = e.src.ClientT(t, quick()...), e.dst.Cluster.ClientT(t, quick()...)
	e.srcAdmin, e.dstAdmin = kadm.NewClient(e.srcClient), kadm.NewClient(e.dstClient)
	internalTopics(t, e.srcClient)
	internalTopics(t, e.dstClient)
	e.producer = e.src.ClientT(t, append(quick(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1))...)
	return e
}

// internalTopics lets a cluster make its internal topics before the first mirror is started:
// the controller may place what is created meanwhile on a virtual broker, where nobody can
// write (to move it off is step 3's).
func internalTopics(t *testing.T, cl *kgo.Client) {
	t.Helper()
	for kind := range int8(2) { // groups, transactions
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = kind, "conformance", []string{"conformance"}
		eventually(t, "internal topics", func(ctx context.Context) error {
			resp, err := cl.SeedBrokers()[0].Request(ctx, req)
			if err != nil {
				return err
			}
			r := resp.(*kmsg.FindCoordinatorResponse)
			if len(r.Coordinators) != 1 {
				return fmt.Errorf("answer %+v", r)
			}
			return kerr.ErrorForCode(r.Coordinators[0].ErrorCode)
		})
	}
}

// showMisplaced logs which topics are on virtual brokers although nobody mirrors them.
func (e *env) showMisplaced(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	topics, err := e.dstAdmin.ListTopicsWithInternal(ctx)
	if err != nil {
		return
	}
	shown := map[string]bool{}
	req := protocol.NewListClusterMirrorsRequest()
	req.IncludeTopicNames = true
	cl, err := kgo.NewClient(kgo.SeedBrokers(e.dst.Sidecars[0].Proxy), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())))
	if err != nil {
		return
	}
	defer cl.Close()
	resp, err := cl.SeedBrokers()[0].Request(ctx, &req)
	if err != nil {
		return
	}
	for _, m := range resp.(*protocol.ListClusterMirrorsResponse).Mirrors {
		for _, name := range m.TopicNames {
			shown[name] = true
		}
	}
	for name, d := range topics {
		for _, p := range d.Partitions {
			if !shown[name] && slices.ContainsFunc(p.Replicas, virtual) {
				t.Logf("%s-%d is not mirrored and on virtual brokers: %v", name, p.Partition, p.Replicas)
			}
		}
	}
}

func (e *env) stop(t *testing.T) {
	if e.dstAdmin != nil {
		e.showMisplaced(t)
	}
	stacks := map[string]*stack.Stack{"destination": e.dst, "source": e.back}
	if e.sec != nil {
		stacks["secured"] = e.sec.stack
	}
	for name, s := range stacks {
		if s == nil {
			continue
		}
		for _, c := range s.Sidecars {
			checkLog(t, name, c)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	if e.back == nil && e.src != nil {
		if err := e.src.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// checkLog fails the test if a sidecar has crashed: a restart hides that from everybody else.
func checkLog(t *testing.T, name string, c *stack.Sidecar) {
	text, err := os.ReadFile(c.LogFile())
	if err != nil {
		return // it never ran
	}
	for _, mark := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
		if i := strings.Index(string(text), mark); i >= 0 {
			t.Errorf("the log of %s sidecar %d:\n%s", name, c.Broker, text[i:min(len(text), i+4000)])
		}
	}
	if dir := os.Getenv(envLogs); dir != "" {
		file := strings.NewReplacer("/", "-", ",", "-").Replace(t.Name()) + "-" + name + "-" + filepath.Base(c.LogFile())
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
			t.Error(err)
		}
	}
}

// quick makes clients follow leader changes fast.
func quick() []kgo.Opt {
	return []kgo.Opt{
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}
}

func newClient(t *testing.T, seeds []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(append(quick(), kgo.SeedBrokers(seeds...)), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// apiClient can send the mirror APIs to one sidecar.
func apiClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	// A sidecar may take its time: what is asked for may be somebody else's turn first.
	return newClient(t, []string{addr}, append(opts, kgo.RequestTimeoutOverhead(patience), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())))...)
}

// ask sends a request to a sidecar of the destination; i counts them.
func ask[R kmsg.Response](t *testing.T, e *env, i int, req kmsg.Request) R {
	t.Helper()
	return askAt[R](t, e.dst.Sidecars[i].Proxy, req)
}

func askAt[R kmsg.Response](t *testing.T, addr string, req kmsg.Request, opts ...kgo.Opt) R {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := apiClient(t, addr, opts...).SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		t.Fatalf("%s: %v", protocol.Name(req.Key()), err)
	}
	r, ok := resp.(R)
	if !ok {
		t.Fatalf("%s: answer %T", protocol.Name(req.Key()), resp)
	}
	return r
}

func eventually(t *testing.T, what string, cond func(ctx context.Context) error) {
	t.Helper()
	harness.AwaitT(t, patience, what, cond)
}

// outcome is what became of a command line.
type outcome struct {
	stdout, stderr string
	code           int
}

// tryCLI runs kafka-cluster-mirrors at the destination.
func (e *env) tryCLI(t *testing.T, args ...string) outcome {
	t.Helper()
	return cliAt(t, e.dst.Sidecars[0].Proxy, args...)
}

func cliAt(t *testing.T, addr string, args ...string) outcome {
	t.Helper()
	return tryLine(t, append([]string{"--bootstrap-server", addr}, args...)...)
}

// tryLine runs kafka-cluster-mirrors with exactly these arguments.
func tryLine(t *testing.T, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program("kafka-cluster-mirrors"), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// line is tryLine and fails the row if that fails.
func line(t *testing.T, args ...string) string {
	t.Helper()
	o := tryLine(t, args...)
	if o.code != 0 {
		t.Fatalf("kafka-cluster-mirrors %s: exit %d: %s%s", strings.Join(args, " "), o.code, o.stdout, o.stderr)
	}
	return o.stdout
}

// cli is tryCLI and fails the row if that fails.
func (e *env) cli(t *testing.T, args ...string) string {
	t.Helper()
	o := e.tryCLI(t, args...)
	if o.code != 0 {
		t.Fatalf("kafka-cluster-mirrors %s: exit %d: %s%s", strings.Join(args, " "), o.code, o.stdout, o.stderr)
	}
	return o.stdout
}

// sourceConfig is what a mirror needs to reach the source; more are key, value, ….
func (e *env) sourceConfig(more ...string) map[string]string {
	return clusterConfig(e.src, more...)
}

func clusterConfig(c *harness.Cluster, more ...string) map[string]string {
	p := map[string]string{
		"bootstrap.servers":  strings.Join(c.Bootstrap(harness.ListenerInternal), ","),
		"request.timeout.ms": "5000", // a dead source is noticed sooner
	}
	for i := 0; i+1 < len(more); i += 2 {
		p[more[i]] = more[i+1]
	}
	return p
}

func propertiesFile(t *testing.T, props map[string]string) string {
	t.Helper()
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(props)) {
		fmt.Fprintf(&text, "%s=%s\n", k, strings.ReplaceAll(props[k], `\`, `\\`))
	}
	file := filepath.Join(t.TempDir(), "mirror.properties")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func createRequest(name string, props map[string]string) *protocol.CreateClusterMirrorRequest {
	req := protocol.NewCreateClusterMirrorRequest()
	req.MirrorName = name
	for _, k := range slices.Sorted(maps.Keys(props)) {
		c := protocol.NewMirrorConfig()
		v := props[k]
		c.Name, c.Value = k, &v
		req.Configs = append(req.Configs, c)
	}
	return &req
}

// mirror creates a mirror of the source and stops its topics at the row's end, so that
// rows do not pile up work for each other.
func (e *env) mirror(t *testing.T, name string, more ...string) string {
	t.Helper()
	mirrorAt(t, e.dst, name, e.sourceConfig(more...))
	return name
}

func mirrorAt(t *testing.T, s *stack.Stack, name string, props map[string]string) {
	t.Helper()
	addr := s.Sidecars[0].Proxy
	r := askAt[*protocol.CreateClusterMirrorResponse](t, addr, createRequest(name, props))
	if err := protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage); err != nil {
		t.Fatalf("create mirror %s: %v", name, err)
	}
	t.Cleanup(func() { stopAll(s, name) })
}

// stopAll asks for a stop of whatever is left, and does not wait for it.
func stopAll(s *stack.Stack, mirror string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, _ = s.CLI(ctx, "--stop", "--mirror", mirror, "--topics", ".+")
}

// verb is one of the requests about topics.
type verb string

const (
	vStart   verb = "start"
	vStop    verb = "stop"
	vPause   verb = "pause"
	vResume  verb = "resume"
	vRecover verb = "recover"
)

// request makes the request of a verb for literal topics.
func (v verb) request(mirror string, topics ...string) kmsg.Request {
	switch v {
	case vStart:
		r := protocol.NewStartMirrorTopicsRequest()
		r.MirrorName, r.Topics = mirror, topics
		return &r
	case vStop:
		r := protocol.NewStopMirrorTopicsRequest()
		r.MirrorName, r.Topics = mirror, topics
		return &r
	case vPause:
		r := protocol.NewPauseMirrorTopicsRequest()
		r.MirrorName, r.Topics = mirror, topics
		return &r
	case vResume:
		r := protocol.NewResumeMirrorTopicsRequest()
		r.MirrorName, r.Topics = mirror, topics
		return &r
	}
	r := protocol.NewRecoverMirrorTopicsRequest()
	r.MirrorName, r.Topics = mirror, topics
	return &r
}

// answer takes what the answers of all verbs have in common.
func answer(t *testing.T, resp kmsg.Response) (int16, *string, []protocol.TopicResult) {
	t.Helper()
	switch r := resp.(type) {
	case *protocol.StartMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage, r.Topics
	case *protocol.StopMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage, r.Topics
	case *protocol.PauseMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage, r.Topics
	case *protocol.ResumeMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage, r.Topics
	case *protocol.RecoverMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage, r.Topics
	case *protocol.CreateClusterMirrorResponse:
		return r.ErrorCode, r.ErrorMessage, nil
	case *protocol.DeleteClusterMirrorResponse:
		return r.ErrorCode, r.ErrorMessage, nil
	}
	t.Fatalf("answer %T", resp)
	return 0, nil, nil
}

// send asks for a verb at the first sidecar; the error is the request's or the topic's.
func (e *env) send(t *testing.T, v verb, mirror, topic string) error {
	t.Helper()
	return sendAt(t, e.dst.Sidecars[0].Proxy, v.request(mirror, topic), topic)
}

func sendAt(t *testing.T, addr string, req kmsg.Request, topic string, opts ...kgo.Opt) error {
	t.Helper()
	code, message, topics := answer(t, askAt[kmsg.Response](t, addr, req, opts...))
	if err := protocol.ErrorForCode(code, message); err != nil {
		return err
	}
	for _, r := range topics {
		if r.Name == topic {
			return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
		}
	}
	return fmt.Errorf("topic %s is not in the answer", topic)
}

// do is send, and fails the row if it is refused.
func (e *env) do(t *testing.T, v verb, mirror string, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		if err := e.send(t, v, mirror, topic); err != nil {
			t.Fatalf("%s %s in mirror %s: %v", v, topic, mirror, err)
		}
	}
}

// refused fails the row unless err has the code and a message that names every word.
func refused(t *testing.T, err error, code int16, words ...string) {
	t.Helper()
	var own *protocol.Error
	if !errors.As(err, &own) || own.Code != code {
		t.Errorf("got %v, want %s", err, protocol.CodeName(code))
		return
	}
	if own.Message == "" {
		t.Errorf("%s comes without a message", protocol.CodeName(code))
	}
	for _, w := range words {
		if !strings.Contains(own.Message, w) {
			t.Errorf("%s: %q does not name %q", protocol.CodeName(code), own.Message, w)
		}
	}
}

// started starts topics and returns when all their partitions are MIRRORING.
func (e *env) started(t *testing.T, mirror string, topics ...string) {
	t.Helper()
	e.do(t, vStart, mirror, topics...)
	e.waitState(t, mirror, mirroring, topics...)
}

// ended stops topics and returns when all their partitions are STOPPED.
func (e *env) ended(t *testing.T, mirror string, topics ...string) {
	t.Helper()
	e.do(t, vStop, mirror, topics...)
	e.waitState(t, mirror, stopped, topics...)
}

func (e *env) waitState(t *testing.T, mirror string, state int8, topics ...string) {
	t.Helper()
	waitStateAt(t, e.dst, mirror, state, topics...)
}

func waitStateAt(t *testing.T, s *stack.Stack, mirror string, state int8, topics ...string) {
	t.Helper()
	cl := apiClient(t, s.Sidecars[0].Proxy)
	eventually(t, fmt.Sprintf("mirror %s: %v in state %d", mirror, topics, state), func(ctx context.Context) error {
		d, err := describe(ctx, cl, mirror)
		if err != nil {
			return err
		}
		for _, name := range topics {
			parts := d.topic(name).Partitions
			if len(parts) == 0 {
				return fmt.Errorf("%s is not described", name)
			}
			for _, p := range parts {
				if p.State != state {
					return fmt.Errorf("%s-%d is in state %d (%s %s)", name, p.PartitionIndex, p.State, text(p.Detail), text(p.ErrorMessage))
				}
			}
		}
		return nil
	})
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// described is one mirror.
type described struct{ protocol.DescribedMirror }

func (d described) topic(name string) protocol.DescribedTopic {
	for _, t := range d.Topics {
		if t.TopicName == name {
			return t
		}
	}
	return protocol.DescribedTopic{}
}

func describe(ctx context.Context, cl *kgo.Client, mirror string) (described, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req := protocol.NewDescribeClusterMirrorsRequest()
	req.MirrorNames = []string{mirror}
	resp, err := cl.SeedBrokers()[0].Request(ctx, &req)
	if err != nil {
		return described{}, err
	}
	r, ok := resp.(*protocol.DescribeClusterMirrorsResponse)
	if !ok || len(r.Mirrors) > 1 {
		return described{}, fmt.Errorf("an odd answer to describe: %T", resp)
	}
	if err := protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage); err != nil {
		return described{}, err
	}
	if len(r.Mirrors) == 0 {
		return described{}, errors.New("describe answers with no mirror")
	}
	m := r.Mirrors[0]
	return described{m}, protocol.ErrorForCode(m.ErrorCode, m.ErrorMessage)
}

func (e *env) describe(t *testing.T, mirror string) described {
	t.Helper()
	d, err := describe(t.Context(), apiClient(t, e.dst.Sidecars[0].Proxy), mirror)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// partition describes one partition.
func (e *env) partition(t *testing.T, mirror, topic string, p int32) protocol.DescribedPartition {
	t.Helper()
	for _, x := range e.describe(t, mirror).topic(topic).Partitions {
		if x.PartitionIndex == p {
			return x
		}
	}
	t.Fatalf("%s-%d is not described", topic, p)
	return protocol.DescribedPartition{}
}

// topic creates a topic at the source and writes n records to it; configs are key, value, ….
func (e *env) topic(t *testing.T, name string, partitions int32, n int, configs ...string) string {
	t.Helper()
	createTopic(t, e.srcClient, partitions, 1, name, append([]string{"retention.ms", "-1"}, configs...)...)
	e.write(t, name, partitions, n)
	return name
}

// createTopic creates a topic on real brokers, which it names: while a mirror is started the
// controller may place what others create on a virtual one.
func createTopic(t *testing.T, cl *kgo.Client, partitions int32, rf int16, topic string, configs ...string) {
	t.Helper()
	adm := kadm.NewClient(cl)
	brokers, err := adm.ListBrokers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var real []int32
	for _, id := range brokers.NodeIDs() {
		if !virtual(id) {
			real = append(real, id)
		}
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = topic, -1, -1
	for p := range partitions {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition = p
		for i := range int(rf) {
			a.Replicas = append(a.Replicas, real[(int(p)+i)%len(real)])
		}
		ct.ReplicaAssignment = append(ct.ReplicaAssignment, a)
	}
	for i := 0; i+1 < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		ct.Configs = append(ct.Configs, c)
	}
	req.Topics = append(req.Topics, ct)
	eventually(t, "create topic "+topic, func(ctx context.Context) error {
		r, err := req.RequestWith(ctx, cl)
		if err == nil {
			err = protocol.ErrorForCode(r.Topics[0].ErrorCode, r.Topics[0].ErrorMessage)
		}
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil
		}
		return err
	})
	if err := harness.AwaitTopic(t.Context(), cl, topic); err != nil {
		t.Fatal(err)
	}
}

// write produces n records to the source, to the partitions in turn.
func (e *env) write(t *testing.T, topic string, partitions int32, n int) {
	t.Helper()
	// A client of its own: others remember topics that were deleted, and few partitions.
	cl := e.writer(t)
	defer cl.Close()
	if err := produce(t.Context(), cl, topic, partitions, n, "source"); err != nil {
		t.Fatalf("write to %s at the source: %v", topic, err)
	}
}

func produce(ctx context.Context, cl *kgo.Client, topic string, partitions int32, n int, value string) error {
	if n == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{
			Topic: topic, Partition: int32(i) % partitions, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "%s-%d", value, i),
		})
	}
	return cl.ProduceSync(ctx, records...).FirstErr()
}

// writer makes a producer for the source.
func (e *env) writer(t *testing.T) *kgo.Client {
	t.Helper()
	return writer(t, e.src.Bootstrap(harness.ListenerInternal))
}

// writer makes a producer for [produce].
func writer(t *testing.T, seeds []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return newClient(t, seeds, append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1)}, opts...)...)
}

// once makes a producer that does not try again.
func once(t *testing.T, seeds []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return writer(t, seeds, append([]kgo.Opt{kgo.DisableIdempotentWrite(), kgo.RecordRetries(1), kgo.RecordDeliveryTimeout(10 * time.Second)}, opts...)...)
}

// ends gives the high watermarks of a topic.
func ends(ctx context.Context, adm *kadm.Client, topic string) (map[int32]int64, error) {
	listed, err := adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, err
	}
	out := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { out[o.Partition] = o.Offset })
	return out, nil
}

func endsT(t *testing.T, adm *kadm.Client, topic string) map[int32]int64 {
	t.Helper()
	out, err := ends(t.Context(), adm, topic)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// copied waits until the destination has all that the source has now.
func (e *env) copied(t *testing.T, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		sameEnds(t, e.srcAdmin, e.dstAdmin, topic)
	}
}

func sameEnds(t *testing.T, from, to *kadm.Client, topic string) {
	t.Helper()
	eventually(t, "mirrored "+topic, func(ctx context.Context) error {
		want, err := ends(ctx, from, topic)
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		got, err := ends(ctx, to, topic)
		if err != nil {
			return fmt.Errorf("destination: %w", err)
		}
		for p, end := range want {
			if got[p] != end {
				return fmt.Errorf("partition %d: end %d at the source, %d at the destination", p, end, got[p])
			}
		}
		return nil
	})
}

// equal fails the row unless the topics are the same batch by batch on both sides, up to
// the source's end.
func (e *env) equal(t *testing.T, topics ...string) {
	t.Helper()
	equal(t, e.srcClient, e.dstClient, topics...)
}

func equal(t *testing.T, from, to *kgo.Client, topics ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	report, err := verify.Compare(ctx, from, to, topics, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Partitions {
		if p.Difference != nil || p.Error != "" {
			t.Errorf("%s-%d differs from the source: %+v %s", p.Topic, p.Partition, p.Difference, p.Error)
		}
	}
}

// here describes a destination topic as the brokers themselves see it.
func (e *env) here(t *testing.T, name string) kadm.TopicDetail {
	t.Helper()
	d, err := detail(t.Context(), e.dstAdmin, name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// realLeader gives the real broker that leads a partition of a topic here, once the broker
// that is asked knows of it: its metadata may be older than what a stop has reported.
func (e *env) realLeader(t *testing.T, topic string, partition int32) int32 {
	t.Helper()
	var leader int32
	eventually(t, "a real broker leads "+topic, func(ctx context.Context) error {
		d, err := detail(ctx, e.dstAdmin, topic)
		if err != nil {
			return err
		}
		p, ok := d.Partitions[partition]
		if leader = p.Leader; !ok || leader < 0 || virtual(leader) {
			return fmt.Errorf("partition %d is led by %d", partition, leader)
		}
		return nil
	})
	return leader
}

func detail(ctx context.Context, adm *kadm.Client, name string) (kadm.TopicDetail, error) {
	topics, err := adm.ListTopics(ctx, name)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	return topics[name], topics[name].Err
}

// configs gives the configs that were set for a destination topic, as the first real
// broker has them: virtual ones answer with what is wanted.
func (e *env) configs(t *testing.T, topic string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, c := range describeConfigs(t, e.dst.Direct()[0], kmsg.ConfigResourceTypeTopic, topic) {
		if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
			out[name] = text(c.Value)
		}
	}
	return out
}

// program is one of our programs.
func program(name string) string { return filepath.Join(stack.Binaries(), name) }

func lockKeys() []string {
	return []string{"max.message.bytes", "min.insync.replicas", "unclean.leader.election.enable", "remote.storage.enable"}
}

// virtual tells whether an id is a virtual broker's.
func virtual(id int32) bool { return id >= stack.VirtualOffset }

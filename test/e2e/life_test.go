package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// mirrorResource is the type of a mirror as a config resource.
const mirrorResource kmsg.ConfigResourceType = 64

// TestLife goes through what happens to a mirror while it runs: pauses, topics that appear,
// grow, are deleted and created anew at the source, and changes of its configuration.
func TestLife(t *testing.T) {
	dst := destination("", 2)
	dst.Sidecar["mirror.metadata.refresh.interval.ms"] = "1000"
	e := start(t, dst)
	e.createMirror(t, "life")
	l := &life{env: e, at: e.writer(t, e.src.Bootstrap(harness.ListenerInternal))}
	t.Run("pause and resume", l.testPause)
	t.Run("discovery", l.testDiscovery)
	t.Run("growth and configs", l.testGrowth)
	t.Run("deleted and created anew", l.testAnew)
	t.Run("configuration", l.testConfiguration)
	t.Run("the coordinator dies", l.testCoordinatorDies)
}

type life struct {
	*env
	at *kgo.Client // writes to the source
}

// ask sends a mirror request to any sidecar: whoever coordinates answers.
func ask[R kmsg.Response](t *testing.T, e *env, req kmsg.Request) R {
	t.Helper()
	return askAt[R](t, e, int(time.Now().UnixMilli()), req)
}

// askAt is ask at one sidecar of several.
func askAt[R kmsg.Response](t *testing.T, e *env, at int, req kmsg.Request) R {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	seeds := e.api.SeedBrokers()
	resp, err := seeds[at%len(seeds)].Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	r, ok := resp.(R)
	if !ok {
		t.Fatalf("answer is %T", resp)
	}
	return r
}

// results words the results by topic, "" for success; the request itself must succeed.
func results(t *testing.T, code int16, message *string, topics []protocol.TopicResult) map[string]string {
	t.Helper()
	if err := protocol.ErrorForCode(code, message); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, r := range topics {
		out[r.Name] = ""
		if err := protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage); err != nil {
			out[r.Name] = err.Error()
		}
	}
	return out
}

func (l *life) pause(t *testing.T, topics ...string) map[string]string {
	t.Helper()
	req := protocol.NewPauseMirrorTopicsRequest()
	req.MirrorName, req.Topics = "life", topics
	r := ask[*protocol.PauseMirrorTopicsResponse](t, l.env, &req)
	return results(t, r.ErrorCode, r.ErrorMessage, r.Topics)
}

func (l *life) resume(t *testing.T, topics ...string) map[string]string {
	t.Helper()
	req := protocol.NewResumeMirrorTopicsRequest()
	req.MirrorName, req.Topics = "life", topics
	r := ask[*protocol.ResumeMirrorTopicsResponse](t, l.env, &req)
	return results(t, r.ErrorCode, r.ErrorMessage, r.Topics)
}

func (l *life) startWith(t *testing.T, edit func(*protocol.StartMirrorTopicsRequest)) map[string]string {
	t.Helper()
	req := protocol.NewStartMirrorTopicsRequest()
	req.MirrorName = "life"
	edit(&req)
	r := ask[*protocol.StartMirrorTopicsResponse](t, l.env, &req)
	return results(t, r.ErrorCode, r.ErrorMessage, r.Topics)
}

func (l *life) stopWith(t *testing.T, edit func(*protocol.StopMirrorTopicsRequest)) map[string]string {
	t.Helper()
	req := protocol.NewStopMirrorTopicsRequest()
	req.MirrorName = "life"
	edit(&req)
	r := ask[*protocol.StopMirrorTopicsResponse](t, l.env, &req)
	return results(t, r.ErrorCode, r.ErrorMessage, r.Topics)
}

// expect compares results; what is wanted is the beginning of an error, "" for success.
func expect(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	ok := len(got) == len(want)
	for k, w := range want {
		g, there := got[k]
		ok = ok && there && strings.HasPrefix(g, w) && (g == "") == (w == "")
	}
	if !ok {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// refused fails the test if a topic can be written to.
func (l *life) refused(t *testing.T, topic string) {
	t.Helper()
	if err := tryWrite(t.Context(), l.writer(t, l.dst.Proxies()), topic, 1, 1, "no"); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("a write to %s: %v, want POLICY_VIOLATION", topic, err)
	}
}

func (l *life) testPause(t *testing.T) {
	l.createSource(t, 2, "life-pause")
	l.createSource(t, 1, "life-run")
	write(t, l.at, "life-pause", 2, 20, "before")
	l.mirrorTopics(t, "life", "life-pause", "life-run")
	l.waitMirrored(t, "life-pause")
	epoch := epochs(l.topicT(t, "life-pause"))

	expect(t, "resume of what runs", l.resume(t, "life-pause"), map[string]string{"life-pause": "MIRROR_TOPIC_NOT_PAUSED"})
	expect(t, "pause", l.pause(t, "life-pause", "nothing"), map[string]string{"life-pause": "", "nothing": "TOPIC_NOT_IN_CLUSTER_MIRROR"})
	l.waitState(t, "life", statePaused, "life-pause")
	held, err := ends(t.Context(), l.dstAdmin, "life-pause")
	if err != nil {
		t.Fatal(err)
	}
	write(t, l.at, "life-pause", 2, 20, "during")
	write(t, l.at, "life-run", 1, 20, "during")
	l.waitMirrored(t, "life-run")
	if now, err := ends(t.Context(), l.dstAdmin, "life-pause"); err != nil || !maps.Equal(now, held) {
		t.Errorf("a paused topic ends at %v, was paused at %v (%v)", now, held, err)
	}
	l.refused(t, "life-pause")
	expect(t, "pause again, by a pattern", l.pause(t, "life-p.*"), map[string]string{"life-pause": "MIRROR_TOPIC_ALREADY_PAUSED"})
	expect(t, "start of what is paused", l.startWith(t, func(r *protocol.StartMirrorTopicsRequest) { r.Topics = []string{"life-pause"} }),
		map[string]string{"life-pause": "MIRROR_TOPIC_NOT_STOPPED"})
	expect(t, "resume", l.resume(t, "life-pause"), map[string]string{"life-pause": ""})
	l.waitState(t, "life", stateMirroring, "life-pause")
	l.waitMirrored(t, "life-pause")
	if now := epochs(l.topicT(t, "life-pause")); !maps.Equal(now, epoch) {
		t.Errorf("leader epochs %v, before the pause %v: a resume needs no new leader", now, epoch)
	}
	// A paused topic can be stopped.
	l.pause(t, "life-pause")
	l.waitState(t, "life", statePaused, "life-pause")
	l.stopTopics(t, "life", "life-pause")
	l.checkOrdinary(t, "life-pause", epoch, nil)
	expect(t, "pause of what is stopped", l.pause(t, "life-pause"), map[string]string{"life-pause": "MIRROR_TOPIC_BEING_STOPPED"})
}

func (l *life) testDiscovery(t *testing.T) {
	expect(t, "patterns that match nothing yet", l.startWith(t, func(r *protocol.StartMirrorTopicsRequest) {
		r.IncludePatterns, r.ExcludePatterns = []string{"disc-.*"}, []string{"disc-no.*"}
	}), map[string]string{})
	l.createSource(t, 2, "disc-a", "retention.ms", "123456789")
	l.createSource(t, 1, "disc-no-thanks")
	write(t, l.at, "disc-a", 2, 20, "source")
	l.waitState(t, "life", stateMirroring, "disc-a")
	l.waitMirrored(t, "disc-a")
	if got := topicConfigs(t, l.dstClient, "disc-a")["retention.ms"]; got != "123456789" {
		t.Errorf("retention.ms is %q here", got)
	}
	// A stop by its name keeps a topic from being found again.
	l.stopTopics(t, "life", "disc-a")
	l.createSource(t, 1, "disc-b")
	l.waitState(t, "life", stateMirroring, "disc-b")
	if l.exists(t, "disc-no-thanks") {
		t.Error("an excluded topic is mirrored")
	}
	l.waitState(t, "life", stateStopped, "disc-a")
	l.configured(t, "mirror.topics.exclude", "__.*,disc-no.*,disc-a")
	expect(t, "stop by the pattern", l.stopWith(t, func(r *protocol.StopMirrorTopicsRequest) { r.Patterns = []string{"disc-.*"} }),
		map[string]string{"disc-a": "", "disc-b": ""})
	l.waitState(t, "life", stateStopped, "disc-b")
	l.configured(t, "mirror.topics.include", "")
	l.configured(t, "mirror.topics.exclude", "__.*,disc-no.*,disc-a,disc-.*")
}

func (l *life) testGrowth(t *testing.T) {
	l.createSource(t, 1, "life-grow")
	write(t, l.at, "life-grow", 1, 20, "one")
	l.mirrorTopics(t, "life", "life-grow")
	if r, err := l.srcAdmin.UpdatePartitions(t.Context(), 3, "life-grow"); err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}
	values := []string{"987654321", "500000"}
	if r, err := l.srcAdmin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "retention.ms", Value: &values[0]}, {Op: kadm.SetConfig, Name: "max.message.bytes", Value: &values[1]},
	}, "life-grow"); err != nil || r[0].Err != nil {
		t.Fatal(err, r)
	}
	eventually(t, "three partitions here", func(ctx context.Context) error {
		d, err := l.topic(ctx, "life-grow")
		if err == nil && len(d.Partitions) != 3 {
			err = fmt.Errorf("%d partitions", len(d.Partitions))
		}
		return err
	})
	l.refused(t, "life-grow")
	write(t, l.writer(t, l.src.Bootstrap(harness.ListenerInternal)), "life-grow", 3, 30, "three")
	l.waitState(t, "life", stateMirroring, "life-grow")
	l.waitMirrored(t, "life-grow")
	l.sameReplicas(t, "life-grow")
	eventually(t, "retention.ms of the source", func(context.Context) error {
		if got := topicConfigs(t, l.dstClient, "life-grow"); got["retention.ms"] != values[0] || got["max.message.bytes"] != "0" {
			return fmt.Errorf("configs are %v", got)
		}
		return nil
	})
	before := epochs(l.topicT(t, "life-grow"))
	l.stopTopics(t, "life", "life-grow")
	l.checkOrdinary(t, "life-grow", before, map[string]string{"max.message.bytes": values[1]})
	write(t, l.writer(t, l.dst.Proxies()), "life-grow", 3, 6, "local")
}

func (l *life) testAnew(t *testing.T) {
	const topic = "life-anew"
	l.createSource(t, 1, topic)
	write(t, l.at, topic, 1, 30, "first")
	l.mirrorTopics(t, "life", topic)
	l.waitMirrored(t, topic)
	remove := func() {
		if r, err := l.srcAdmin.DeleteTopic(t.Context(), topic); err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
	}
	failed := func(words string) {
		eventually(t, "FAILED: "+words, func(ctx context.Context) error {
			d, err := l.describe(ctx, "life")
			if err != nil {
				return err
			}
			for _, p := range d[topic] {
				if p.State != stateFailed || !strings.Contains(text(p.ErrorMessage), words) {
					return fmt.Errorf("state %d, %s", p.State, text(p.ErrorMessage))
				}
			}
			return nil
		})
		l.refused(t, topic)
	}
	remove()
	failed("was deleted at the source")
	l.createSource(t, 1, topic)
	write(t, l.writer(t, l.src.Bootstrap(harness.ListenerInternal)), topic, 1, 7, "second")
	failed("was created anew at the source")
	again := func(truncate bool) map[string]string {
		return l.startWith(t, func(r *protocol.StartMirrorTopicsRequest) { r.Topics, r.AllowTruncate = []string{topic}, truncate })
	}
	expect(t, "start of a topic that is another one now", again(true), map[string]string{topic: "MIRROR_TOPIC_NOT_STOPPED"})
	l.stopTopics(t, "life", topic)
	// Nothing was lost here, whatever became of the source.
	if now, err := ends(t.Context(), l.dstAdmin, topic); err != nil || now[0] != 30 {
		t.Errorf("ends at %v (%v), want 30", now, err)
	}
	expect(t, "start without consent", again(false), map[string]string{topic: "INVALID_REQUEST"})
	expect(t, "start with consent", again(true), map[string]string{topic: ""})
	l.waitState(t, "life", stateMirroring, topic)
	l.waitMirrored(t, topic)
	l.sameReplicas(t, topic)
}

// configured waits until a sidecar, any of them, shows a key's value: those that were not
// asked to change it hear of it a moment later.
func (l *life) configured(t *testing.T, key, value string) {
	t.Helper()
	eventually(t, key+" is "+value, func(context.Context) error {
		for _, c := range l.describeConfigs(t) {
			if c.Name == key && text(c.Value) == value {
				return nil
			} else if c.Name == key {
				return fmt.Errorf("it is %q", text(c.Value))
			}
		}
		return errors.New("it is not shown")
	})
}

func (l *life) describeConfigs(t *testing.T) []kmsg.DescribeConfigsResponseResourceConfig {
	t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = mirrorResource, "life"
	req.Resources = append(req.Resources, res)
	r := ask[*kmsg.DescribeConfigsResponse](t, l.env, req)
	if len(r.Resources) != 1 {
		t.Fatalf("%d resources", len(r.Resources))
	}
	if err := protocol.ErrorForCode(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage); err != nil {
		t.Fatal(err)
	}
	return r.Resources[0].Configs
}

func (l *life) alter(t *testing.T, op kmsg.IncrementalAlterConfigOp, name, value string) error {
	t.Helper()
	return l.alterAt(t, int(time.Now().UnixMilli()), op, name, value)
}

func (l *life) alterAt(t *testing.T, at int, op kmsg.IncrementalAlterConfigOp, name, value string) error {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = mirrorResource, "life"
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op, c.Value = name, op, &value
	res.Configs = append(res.Configs, c)
	req.Resources = append(req.Resources, res)
	r := askAt[*kmsg.IncrementalAlterConfigsResponse](t, l.env, at, req)
	if len(r.Resources) != 1 {
		t.Fatalf("%d resources", len(r.Resources))
	}
	return protocol.ErrorForCode(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage)
}

func (l *life) testConfiguration(t *testing.T) {
	const set, add = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpAppend
	l.createSource(t, 2, "life-config")
	l.mirrorTopics(t, "life", "life-config")
	epoch := epochs(l.topicT(t, "life-config"))

	for at := range l.dst.Sidecars { // one coordinates, the others pass on
		err := l.alterAt(t, at, set, "mirror.fetch.max.byte", "5")
		if !errors.Is(err, kerr.InvalidConfig) || !strings.Contains(err.Error(), `"mirror.fetch.max.bytes"`) {
			t.Errorf("a key that is not known, at sidecar %d: %v", at, err)
		}
		value := fmt.Sprint(6000 + at)
		if err := l.alterAt(t, at, set, "request.timeout.ms", value); err != nil {
			t.Errorf("at sidecar %d: %v", at, err)
		}
		l.configured(t, "request.timeout.ms", value)
	}
	if err := l.alter(t, set, "bootstrap.servers", strings.Join(l.dst.Direct(), ",")); !errors.Is(err, kerr.InvalidRequest) {
		t.Errorf("another cluster: %v", err)
	}
	// Secrets go in and never come out.
	if err := l.alter(t, set, "ssl.keystore.key", "not to be shown"); err != nil {
		t.Fatal(err)
	}
	seen := false
	for _, c := range l.describeConfigs(t) {
		seen = seen || c.Name == "ssl.keystore.key" && c.IsSensitive
		if c.Value != nil && strings.Contains(*c.Value, "not to be shown") || c.IsSensitive && c.Value != nil {
			t.Errorf("%s is shown: %s", c.Name, *c.Value)
		}
	}
	if !seen {
		t.Error("ssl.keystore.key is not described as sensitive")
	}

	// The address changes under load: what is led goes on at the other one, without a new
	// leader.
	for i, addresses := range [][]string{l.src.Bootstrap(harness.ListenerClient), l.src.Bootstrap(harness.ListenerInternal)} {
		write(t, l.at, "life-config", 2, 50, fmt.Sprintf("before %d", i))
		if err := l.alter(t, set, "bootstrap.servers", strings.Join(addresses, ",")); err != nil {
			t.Fatal(err)
		}
		write(t, l.at, "life-config", 2, 50, fmt.Sprintf("after %d", i))
		l.waitMirrored(t, "life-config")
	}
	l.waitState(t, "life", stateMirroring, "life-config")
	if now := epochs(l.topicT(t, "life-config")); !maps.Equal(now, epoch) {
		t.Errorf("leader epochs %v, before the changes %v", now, epoch)
	}
	l.sameReplicas(t, "life-config")

	// Filters work at once.
	l.createSource(t, 1, "filter-me")
	if err := l.alter(t, add, "mirror.topics.include", "filter-.*"); err != nil {
		t.Fatal(err)
	}
	l.waitState(t, "life", stateMirroring, "filter-me")
}

// testCoordinatorDies: whoever coordinates next follows the source in its place.
func (l *life) testCoordinatorDies(t *testing.T) {
	l.configured(t, "mirror.topics.include", "filter-.*")
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = 3, "life", []string{"life"}
	found := ask[*kmsg.FindCoordinatorResponse](t, l.env, req)
	if len(found.Coordinators) != 1 || found.Coordinators[0].ErrorCode != 0 {
		t.Fatalf("the mirror's coordinator: %+v", found)
	}
	dead := l.dst.Sidecar(found.Coordinators[0].NodeID)
	if dead == nil {
		t.Fatalf("broker %d is said to coordinate", found.Coordinators[0].NodeID)
	}
	if err := dead.Kill(); err != nil {
		t.Fatal(err)
	}
	other := 0
	if l.dst.Sidecars[0] == dead {
		other = 1
	}
	l.createSource(t, 1, "filter-later")
	pause := protocol.NewPauseMirrorTopicsRequest()
	pause.MirrorName, pause.Topics = "life", []string{"filter-later"}
	eventually(t, "filter-later is found and can be paused", func(ctx context.Context) error {
		// Until the dead one's session ends the request waits for it, longer than this client does.
		resp, err := l.api.SeedBrokers()[other].Request(ctx, &pause)
		if err != nil {
			return err
		}
		r, ok := resp.(*protocol.PauseMirrorTopicsResponse)
		if !ok || r.ErrorCode != 0 || len(r.Topics) != 1 {
			return fmt.Errorf("%T: %+v", resp, resp)
		}
		if already := r.Topics[0].ErrorCode == protocol.MirrorTopicAlreadyPaused; already {
			return nil // by a request that was given up waiting for
		}
		return protocol.ErrorForCode(r.Topics[0].ErrorCode, r.Topics[0].ErrorMessage)
	})
	l.waitState(t, "life", statePaused, "filter-later")
	if err := dead.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

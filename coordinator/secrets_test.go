package coordinator

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
	"github.com/cluster-mirroring/mirror-sidecar/sealed"
)

const jaasKey = "sasl.jaas.config"

func loginWith(password string) string {
	return `org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="` + password + `";`
}

// writeKeys writes a key file; each key consists of one byte.
func writeKeys(t *testing.T, path string, bs ...byte) {
	t.Helper()
	var text strings.Builder
	for _, b := range bs {
		text.WriteString(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) + "\n")
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// secretive gives the rig keys.
func secretive(t *testing.T, r *rig, bs ...byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "keys")
	writeKeys(t, path, bs...)
	var err error
	if r.cfg.Keys, err = sealed.Open(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// keyedPeers answer with the keys that they have; nil are of a version without.
type keyedPeers struct{ keys []string }

func (p *keyedPeers) Request(_ context.Context, _ int32, req kmsg.Request) (kmsg.Response, error) {
	q, ok := req.(*protocol.DescribeClusterMirrorsRequest)
	if !ok || !q.LocalOnly || q.MirrorNames == nil {
		return nil, errors.New("not scripted")
	}
	resp := protocol.NewDescribeClusterMirrorsResponse()
	resp.SecretKeys = p.keys
	return &resp, nil
}

// written is everything that lies in the state topic.
func written(t *testing.T, r *rig) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.fake.ListenAddrs()...), kgo.ConsumeTopics(StateTopic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, StateTopic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(StateTopic, 0)
	var text strings.Builder
	for last := int64(-1); last < end.Offset-2; { // a transaction ends with a marker
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			last = rec.Offset
			text.Write(rec.Key)
			text.Write(rec.Value)
		})
	}
	return text.String()
}

func TestSecretsAreWrittenEncrypted(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	configs := config.Properties{"bootstrap.servers": "east:9092", "security.protocol": "SASL_SSL", jaasKey: loginWith("hush")}
	refused := func(what string, err error) {
		t.Helper()
		code, text := protocol.CodeOf(err)
		if code != kerr.InvalidConfig.Code || text == nil || !strings.Contains(*text, "state.encryption.key.file") || !strings.Contains(*text, "${dir:") || strings.Contains(*text, "hush") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, dry := range []bool{true, false} {
		refused("created without a key", r.createMirror(ctx, "n", configs, dry))
		refused("altered without a key", r.AlterConfigs(ctx, "test", "m", []ConfigOp{{"security.protocol", opSet, ptr("SASL_SSL")}, {jaasKey, opSet, ptr(loginWith("hush"))}}, dry))
	}
	if r.src.opened != 0 {
		t.Errorf("the source was asked %d times although nothing can come of it", r.src.opened)
	}
	referred := configs.Clone()
	referred[jaasKey] = loginWith("${env:HUSH}")
	if err := r.createMirror(ctx, "o", referred, false); err != nil {
		t.Errorf("with a reference: %v", err)
	}
	if m, _ := r.view.Mirror("o"); m.Configs[jaasKey] != referred[jaasKey] {
		t.Errorf("a reference is stored as %q", m.Configs[jaasKey])
	}
	secretive(t, r, 1)
	if err := r.createMirror(ctx, "n", configs, false); err != nil {
		t.Fatal(err)
	}
	if err := r.AlterConfigs(ctx, "test", "m", []ConfigOp{{"security.protocol", opSet, ptr("SASL_SSL")}, {jaasKey, opSet, ptr(loginWith("hush2"))}}, false); err != nil {
		t.Fatal(err)
	}
	for name, password := range map[string]string{"n": "hush", "m": "hush2"} {
		m, _ := r.view.Mirror(name)
		plain, err := config.OpenSecrets(r.cfg.Keys, name, m.Configs)
		if err != nil || plain[jaasKey] != loginWith(password) || !sealed.Is(m.Configs[jaasKey]) {
			t.Errorf("%s: %q, %v", name, m.Configs[jaasKey], err)
		}
		if _, err := config.OpenSecrets(r.cfg.Keys, "another", m.Configs); err == nil {
			t.Errorf("%s: another mirror can have its secrets", name)
		}
	}
	if text := written(t, r); strings.Contains(text, "hush") || !strings.Contains(text, "sealed:v1:") {
		t.Error("a secret lies in the state topic")
	}
	if err := r.Secrets(); err != nil {
		t.Error(err)
	}
	// Something else is changed by a sidecar without the key; what it cannot read stays.
	m, _ := r.view.Mirror("m")
	r.cfg.Keys = nil
	if err := r.AlterConfigs(ctx, "test", "m", []ConfigOp{{"mirror.topics.exclude", opSet, ptr("x.*")}}, false); err != nil {
		t.Error(err)
	}
	if now, _ := r.view.Mirror("m"); now.Configs[jaasKey] != m.Configs[jaasKey] || now.Configs["mirror.topics.exclude"] != "x.*" {
		t.Errorf("%v", now.Configs)
	}
	if err := r.Secrets(); err == nil || !strings.Contains(err.Error(), "mirror m cannot be read here: sasl.jaas.config") || !strings.Contains(err.Error(), "state.encryption.key.file is not set here") {
		t.Error(err)
	}
}

// TestStoredSecretsAreEncryptedAnew: what lies there in clear, or under another key, is written under the
// first one, once every sidecar that runs has it.
func TestStoredSecretsAreEncryptedAnew(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	peers := &keyedPeers{}
	r.deps.Peers = peers
	r.put(record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "source", Configs: config.Properties{"bootstrap.servers": "east:9092", jaasKey: loginWith("hush")}}})
	get := func() string { m, _ := r.view.Mirror("m"); return m.Configs[jaasKey] }
	reseal := func(what, want string) {
		t.Helper()
		if err := r.reseal(ctx, "m"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if id := sealed.KeyID(get()); id != want {
			t.Errorf("%s: encrypted with %q, want %q", what, id, want)
		}
	}
	reseal("without a key", "")
	if err := r.Secrets(); err == nil || !strings.Contains(err.Error(), "mirror m: sasl.jaas.config in clear") || !strings.Contains(err.Error(), "set state.encryption.key.file") || strings.Contains(err.Error(), "hush") {
		t.Error(err)
	}
	path := secretive(t, r, 1)
	one := r.cfg.Keys.IDs()[0]
	reseal("the other sidecar knows no keys", "")
	peers.keys = []string{"0123456789abcdef"}
	reseal("the other sidecar has another key", "")
	peers.keys = append(peers.keys, one)
	reseal("all have the key", one)
	if err := r.Secrets(); err != nil {
		t.Error(err)
	}
	was := get()
	reseal("nothing to do", one)
	if get() != was {
		t.Error("written again although nothing has changed")
	}
	writeKeys(t, path, 2, 1)
	two := r.cfg.Keys.IDs()[0]
	reseal("rotated here alone", one)
	peers.keys = r.cfg.Keys.IDs()
	reseal("rotated everywhere", two)
	writeKeys(t, path, 2)
	m, _ := r.view.Mirror("m")
	if plain, err := config.OpenSecrets(r.cfg.Keys, "m", m.Configs); err != nil || plain[jaasKey] != loginWith("hush") {
		t.Errorf("%v", err)
	}
	// The only key that can read it is gone: it stays as it is, and is told.
	writeKeys(t, path, 3)
	peers.keys = r.cfg.Keys.IDs()
	was = get()
	if err := r.reseal(ctx, "m"); err == nil || !strings.Contains(err.Error(), two) {
		t.Errorf("with a key that is gone: %v", err)
	}
	if get() != was {
		t.Error("what could not be read was written over")
	}
	if err := r.Secrets(); err == nil || !strings.Contains(err.Error(), two) {
		t.Error(err)
	}
}

// TestUnreadableSecretsAreDescribed: also where no virtual broker leads, as it does not follow without a source.
func TestUnreadableSecretsAreDescribed(t *testing.T) {
	r := newRig(t)
	r.mirrorTopic("led", Mirroring, Mirroring)
	r.mirrorTopic("paused", Paused, Paused)
	r.put(record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "source", Configs: config.Properties{"bootstrap.servers": "east:9092", jaasKey: "sealed:v1:0123456789abcdef:AAAA"}}})
	for _, leader := range []int32{10001, 1, 10002} {
		r.mu.Lock()
		for i, p := range r.parts {
			if p.Topic == "led" {
				n := *p
				n.Leader = leader
				r.parts[i] = &n
			}
		}
		r.showLocked()
		r.mu.Unlock()
		told := map[string]bool{}
		for _, topic := range r.describeMirror("m", nil, false).Topics {
			for _, p := range topic.Partitions {
				told[topic.TopicName] = p.ErrorMessage != nil && strings.Contains(*p.ErrorMessage, `key "0123456789abcdef"`)
			}
		}
		if told["led"] != (leader != 10002) || told["paused"] {
			t.Errorf("led by %d: told of %v", leader, told)
		}
	}
}

// TestUnreadableSecretsReachNoSource: a sidecar without the key connects to nobody for this mirror, and reads others.
func TestUnreadableSecretsReachNoSource(t *testing.T) {
	source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "hush"))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	logins := make(chan struct{}, 100)
	source.ControlKey(int16(kmsg.SASLAuthenticate), func(kmsg.Request) (kmsg.Response, error, bool) {
		source.KeepControl()
		logins <- struct{}{}
		return nil, nil, false
	})
	r := newRig(t)
	path := secretive(t, r, 1)
	configs := config.Properties{"bootstrap.servers": source.ListenAddrs()[0], "security.protocol": "SASL_PLAINTEXT", jaasKey: loginWith("hush")}
	stored, err := config.SealSecrets(r.cfg.Keys, "m", nil, configs)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, p config.Properties) {
		r.put(record{kind: kindMirror, mirror: name, value: Mirror{Name: name, SourceClusterID: "source", Configs: p}})
	}
	put("m", stored)
	put("n", stored) // moved there by somebody who writes to the topic
	put("plain", config.Properties{"bootstrap.servers": source.ListenAddrs()[0]})
	open := func(keys *sealed.Keys) *Sources {
		s := NewSources(SourcesConfig{HomeID: 1, ClusterID: "here", Fetchers: 1, Providers: config.Providers{Keys: keys}}, r.view, slog.New(slog.DiscardHandler))
		t.Cleanup(func() { stopWithin(t, s.Stop) })
		return s
	}
	with, without := open(r.cfg.Keys), open(nil)
	for name, c := range map[string]struct {
		sources *Sources
		mirror  string
		want    string
	}{
		"with the key":     {with, "m", ""},
		"another mirror's": {with, "n", "taken from elsewhere"},
		"without the key":  {without, "m", "state.encryption.key.file is not set here"},
		"another mirror":   {without, "plain", ""},
	} {
		_, err := c.sources.Source(c.mirror)
		if (err != nil) != (c.want != "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "mirror "+c.mirror)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg, err := Mirror{Name: "m", Configs: stored}.stored()
	if err != nil {
		t.Fatal(err)
	}
	src, err := KafkaSource(config.Providers{Keys: r.cfg.Keys}, 1)(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if _, err := src.ClusterID(t.Context()); err != nil {
		t.Errorf("with the key: %v", err)
	}
	if len(logins) == 0 {
		t.Error("nobody has logged in with the secret")
	}
	// A change that cannot be used here is told of what goes on as before.
	writeKeys(t, path, 2)
	again, err := config.SealSecrets(r.cfg.Keys, "m", stored, config.Properties{"bootstrap.servers": source.ListenAddrs()[0], "security.protocol": "SASL_PLAINTEXT", jaasKey: loginWith("hush2")})
	if err != nil {
		t.Fatal(err)
	}
	put("m", again)
	writeKeys(t, path, 1)
	if with.reconcile() {
		t.Error("a configuration that cannot be read is in use")
	}
	if got := with.Status([]replica.PartitionStatus{{Mirror: "m"}, {Mirror: "plain"}}); !strings.Contains(got[0].ErrorMessage, "the former one goes on") || got[1].ErrorMessage != "" {
		t.Errorf("%+v", got)
	}
	writeKeys(t, path, 1, 2)
	if !with.reconcile() {
		t.Error("the key came, and the configuration is not in use")
	}
	if got := with.Status([]replica.PartitionStatus{{Mirror: "m"}}); got[0].ErrorMessage != "" {
		t.Errorf("%+v", got)
	}
}

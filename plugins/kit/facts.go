package kit

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// names are such as one finds in clusters.
func names(i int) string {
	kinds := []string{"orders", "orders.eu", "payments-2024", "__consumer_offsets", "_schemas", "tmp.scratch", "team-a.events", "User_Clicks", "scratch.x", "mm2-offsets.west.internal"}
	return fmt.Sprintf("%s-%d", kinds[i%len(kinds)], i)
}

// odd are names that no code expects. Groups and principals may have every one of them.
func odd() []string {
	return []string{
		"a", ".", "..", "-", "_", " ", "*", "a b", "ünïcödé", "日本語", "🙂", "مرحبا", "e\u0301", "\u202egnp.exe",
		"a\nb", "a\tb", "a\x00b", "\x1b[31mred", `"quoted"`, "'quoted'", `back\slash`, "../../etc/passwd", "%s%n", "{}", "${env:HOME}", "$(id)", "`id`",
		"; DROP TABLE topics; --", "(", "[a-z", "a.*", "null", "None", "true", "0", "-1", "NaN", "a,b", "a=b", "a:b", "User:", "\ufeffbom",
		strings.Repeat("n", 249), strings.Repeat("ü", 120), strings.Repeat("(a*)*", 40) + "!",
	}
}

func topic(i int) *policyv1.TopicFacts {
	t := &policyv1.TopicFacts{
		Name: names(i), SourceId: "dG9waWMgaWQgb2YgMTYgYg", Partitions: int32(1 + i%50),
		Configs: map[string]string{"retention.ms": fmt.Sprint(i * 1000), "cleanup.policy": "compact"},
	}
	if i%3 == 0 {
		t.ExistsHere, t.PartitionsHere, t.MirrorHere, t.StateHere = true, t.Partitions, "east", []string{"MIRRORING", "PAUSED", "STOPPED", "FAILED"}[i%4]
	}
	return t
}

// configsEach is how many topicConfigs has.
const configsEach = 8

func topicConfigs(i int) *policyv1.TopicConfigFacts {
	t := &policyv1.TopicConfigFacts{Topic: names(i)}
	for j, c := range []string{"cleanup.policy", "compression.type", "follower.replication.throttled.replicas", "min.insync.replicas", "remote.storage.enable", "retention.bytes", "retention.ms", "segment.bytes"} {
		f := &policyv1.ConfigFacts{Name: c, SourceValue: fmt.Sprint(i + j), SourceSet: (i+j)%2 == 0, EffectiveHere: "1"}
		if (i+j)%3 == 0 {
			f.ValueHere = proto.String("2")
		}
		t.Configs = append(t.Configs, f)
	}
	return t
}

func acl(i int) *policyv1.AclFacts {
	b := &policyv1.AclBinding{
		ResourceType: []string{"TOPIC", "GROUP", "TRANSACTIONAL_ID"}[i%3], ResourceName: names(i), PatternType: []string{"LITERAL", "PREFIXED"}[i%2],
		Principal: []string{"User:alice", "User:CN=app,OU=team,O=example", "Group:ops", "User:*"}[i%4], Host: []string{"*", "10.0.0.7"}[i%2],
		Operation: []string{"READ", "WRITE", "DESCRIBE", "ALTER", "ALL", "DESCRIBE_CONFIGS"}[i%6], PermissionType: []string{"ALLOW", "ALLOW", "DENY"}[i%3],
	}
	if i%20 == 0 {
		b.ResourceType, b.ResourceName, b.PatternType = "CLUSTER", "kafka-cluster", "LITERAL"
	}
	return &policyv1.AclFacts{Acl: b, ExistsHere: i%5 == 0, Owned: i%10 == 0}
}

func group(i int) *policyv1.GroupFacts {
	g := &policyv1.GroupFacts{
		Group: names(i), Type: []string{"classic", "consumer", "share"}[i%3], SourceState: []string{"Stable", "Empty", "Dead", "PreparingRebalance"}[i%4],
		StateHere: []string{"", "Empty", "Stable"}[i%3], Owned: i%7 == 0,
	}
	for p := range int32(i % 4) {
		g.Offsets = append(g.Offsets, &policyv1.GroupOffset{Topic: names(i + 1), Partition: p, SourceOffset: int64(i) * 10, OffsetHere: int64(i) - 1, StartHere: 0, EndHere: int64(i) * 20})
	}
	return g
}

func quota(i int) *policyv1.QuotaFacts {
	entity := [][]*policyv1.QuotaEntity{
		{{Type: "user", Name: proto.String("alice")}},
		{{Type: "user"}},
		{{Type: "client-id", Name: proto.String(names(i))}},
		{{Type: "user", Name: proto.String("bob")}, {Type: "client-id"}},
		{{Type: "ip", Name: proto.String("10.0.0.7")}},
	}[i%5]
	q := &policyv1.QuotaFacts{
		Entity: entity, Key: []string{"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}[i%4],
		SourceValue: float64(i) + .5, Owned: i%6 == 0,
	}
	if i%2 == 0 {
		q.ValueHere = proto.Float64(float64(i) + 1)
	}
	return q
}

func event(i int) *policyv1.Event {
	return &policyv1.Event{
		AtMs: 1_790_000_000_000 + int64(i), Topic: names(i), Partition: int32(i % 5),
		FromState: []string{"", "PREPARING", "MIRRORING"}[i%3], ToState: []string{"PREPARING", "MIRRORING", "FAILED"}[i%3], Detail: "DETAIL", Error: []string{"", "the source does not answer"}[i%2],
	}
}

// many makes n items.
func many[F proto.Message](n int, one func(int) F) []proto.Message {
	out := make([]proto.Message, n)
	for i := range n {
		out[i] = one(i)
	}
	return out
}

// strange makes an item of each odd name.
func strange[F proto.Message](one func(int) F, rename func(F, string)) []proto.Message {
	var out []proto.Message
	for i, n := range odd() {
		f := one(i)
		rename(f, n)
		out = append(out, f)
	}
	return out
}

// later is a message as a later version of the protocol may send it: with a field that this one
// does not have.
func later(m proto.Message) {
	r := m.ProtoReflect()
	r.SetUnknown(protoreflect.RawFields{0xc2, 0x3e, 3, 'n', 'e', 'w'}) // field 1000, a string
}

package conformance

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

type contextT = context.Context

// section10 tests client ids and metrics.
func section10() []row {
	return []row{
		{proves: "C10.1 client ids at the source", run: clientIDs},
		{proves: "C10.2 A6.2 metrics and health", run: httpEndpoints},
	}
}

// additions tests what was added to the contract; the rows for verbs by state, fields and
// flags are with the sections that they belong to.
func additions() []row {
	return []row{
		{proves: "A1.2 A13.1 one sidecar stays dead", run: deadSidecar, alone: true},
		{proves: "A1.3 former writers are fenced", run: fencedWriter},
		{proves: "A3.1 old records survive retention", run: oldRecords},
		{proves: "A3.3 tiered keys of a source", run: tieredKeys},
		{proves: "A7.1 a deleted mirror's topics are free", run: freeTopics},
		{proves: "C2.19 share groups", run: shareGroups},
		{proves: "A7.3 at a virtual broker's listener", run: atVirtualBroker},
		{proves: "A8.1 A10.1 this run", run: thisRun},
		{proves: "A9.1 mutants", run: mutants},
		{proves: "A11.1 what counts as chaos", run: chaosCounts},
		{proves: "A6.9 the beginning of a plugin", run: scaffolds},
		{proves: "A6.5 evict", run: evicts, alone: true},
		{proves: "A12.1 sidecars that end, and that are replaced", run: replacedSidecar, alone: true},
		{proves: "A14.1 rules by the address of clients", run: hostRules, alone: true},
		{proves: "A12.2 a crashed sidecar", run: crashedSidecar, alone: true},
		// The last one: clients that meet another cluster do not find back.
		{proves: "C4.18 another cluster at the source's address", run: sourceChanged, alone: true},
	}
}

// clientIDs throttles a mirror by a quota of the source on its client ids.
func clientIDs(t *testing.T, e *env) {
	const records = 1200 // 12 MB
	m := e.mirror(t, "c10-1")
	createTopic(t, e.srcClient, 1, 1, m, "retention.ms", "-1")
	for i := range records {
		e.producer.Produce(t.Context(), &kgo.Record{Topic: m, Value: fmt.Appendf(nil, "%010000d", i)}, nil)
	}
	if err := e.producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	quota := func(remove bool) {
		t.Helper()
		var entries []kadm.AlterClientQuotaEntry
		for _, c := range e.dst.Sidecars {
			name := fmt.Sprintf("mirror-%s-broker-%d-fetcher-0", m, c.Broker)
			entries = append(entries, kadm.AlterClientQuotaEntry{
				Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}},
				Ops:    []kadm.AlterClientQuotaOp{{Key: "consumer_byte_rate", Value: 20_000, Remove: remove}},
			})
		}
		r, err := e.srcAdmin.AlterClientQuotas(t.Context(), entries)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range r {
			if x.Err != nil {
				t.Fatalf("quota of %v: %v %s", x.Entity, x.Err, x.ErrMessage)
			}
		}
	}
	quota(false)
	eventually(t, "the source knows the quotas", func(ctx context.Context) error {
		known, err := e.srcAdmin.DescribeClientQuotas(ctx, false, []kadm.DescribeClientQuotaComponent{{Type: "client-id", MatchType: kmsg.QuotasMatchTypeAny}})
		if err == nil && len(known) < len(e.dst.Sidecars) {
			err = fmt.Errorf("%d of them", len(known))
		}
		return err
	})
	e.started(t, m, m)
	// 12 MB at 20 kB a second take minutes; the first fetches overdraw by some megabytes.
	time.Sleep(6 * time.Second)
	got := endsT(t, e.dstAdmin, m)[0]
	t.Logf("%d of %d records are copied", got, records)
	if got >= records {
		t.Errorf("all is copied within seconds: the quota does not apply to the mirror's client ids")
	}
	quota(true)
	e.copied(t, m)
}

func httpEndpoints(t *testing.T, e *env) {
	for _, c := range e.dst.Sidecars {
		for _, path := range []string{"/livez", "/readyz"} {
			resp, err := http.Get("http://" + c.HTTP + path) //nolint:noctx // a local question with a short answer
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", path, resp.Status)
			}
		}
		own := 0
		for _, line := range metrics(t, c) {
			name, _, _ := strings.Cut(strings.TrimPrefix(line, "# TYPE "), " ")
			switch {
			case !strings.HasPrefix(line, "# TYPE "), strings.HasPrefix(name, "go_"), strings.HasPrefix(name, "process_"), strings.HasPrefix(name, "promhttp_"):
			case strings.HasPrefix(name, "kafka_mirror_"):
				own++
			default:
				t.Errorf("metric %s", name)
			}
		}
		if own == 0 {
			t.Errorf("sidecar %d has no metrics of its own", c.Broker)
		}
	}
}

func oldRecords(t *testing.T, e *env) {
	m := e.mirror(t, "a3-1")
	createTopic(t, e.srcClient, 1, 1, m, "retention.ms", "-1", "segment.bytes", "1048576", "compression.type", "producer", "cleanup.policy", "delete")
	old := time.Now().AddDate(0, 0, -30)
	value := strings.Repeat("x", 50_000)
	for i := range 60 { // three segments
		e.producer.Produce(t.Context(), &kgo.Record{Topic: m, Timestamp: old.Add(time.Duration(i) * time.Second), Value: []byte(value)}, nil)
	}
	if err := e.producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.started(t, m, m)
	e.copied(t, m)
	if c := e.configs(t, m); c["retention.ms"] != "-1" || c["segment.bytes"] != "1048576" || c["max.message.bytes"] != "0" {
		t.Errorf("configs %v", c)
	}
	time.Sleep(3 * time.Second) // retention runs every second
	starts, err := e.dstAdmin.ListStartOffsets(t.Context(), m)
	if err != nil || starts[m][0].Offset != 0 {
		t.Errorf("the log starts at %+v (%v)", starts[m][0], err)
	}
	e.equal(t, m)
}

func tieredKeys(t *testing.T, e *env) {
	m := e.mirror(t, "a3-3")
	e.topic(t, m, 1, 3, "local.retention.ms", "86400000")
	e.started(t, m, m)
	e.copied(t, m)
	for key, value := range e.configs(t, m) {
		if strings.HasPrefix(key, "local.retention.") || strings.HasPrefix(key, "remote.") && value != "false" {
			t.Errorf("%s is %q here", key, value)
		}
	}
}

func freeTopics(t *testing.T, e *env) {
	m := e.mirrored(t, "a7-1", 1, 3)
	e.ended(t, m, m)
	req := protocol.NewDeleteClusterMirrorRequest()
	req.MirrorName = m
	if r := ask[*protocol.DeleteClusterMirrorResponse](t, e, 0, &req); r.ErrorCode != 0 {
		t.Fatal(r.ErrorCode, text(r.ErrorMessage))
	}
	if err := produce(t.Context(), writer(t, e.dst.Proxies()), m, 1, 2, "mine"); err != nil {
		t.Errorf("produce: %v", err)
	}
	if err := alterConfigs(t, e.dst.Sidecars[0].Proxy, kmsg.ConfigResourceTypeTopic, m, "max.message.bytes", "2000000"); err != nil {
		t.Errorf("configs: %v", err)
	}
	// On a broker that is named, as in createTopic.
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.TimeoutMillis = 5000
	gt := kmsg.NewCreatePartitionsRequestTopic()
	gt.Topic, gt.Count = m, 2
	ga := kmsg.NewCreatePartitionsRequestTopicAssignment()
	for _, n := range e.dst.Cluster.Brokers() {
		ga.Replicas = append(ga.Replicas, n.ID())
	}
	gt.Assignment = append(gt.Assignment, ga)
	grow.Topics = append(grow.Topics, gt)
	if r := ask[*kmsg.CreatePartitionsResponse](t, e, 0, grow); r.Topics[0].ErrorCode != 0 {
		t.Errorf("partitions: %d %s", r.Topics[0].ErrorCode, text(r.Topics[0].ErrorMessage))
	}
	adm := kadm.NewClient(newClient(t, e.dst.Proxies()))
	if r, err := adm.DeleteTopic(t.Context(), m); err != nil || r.Err != nil {
		t.Errorf("delete: %v %v", err, r.Err)
	}
}

// thisRun: what TestIDs checks without Java holds, and a report can be written.
func thisRun(t *testing.T, e *env) {
	r, err := newReport(os.Getenv(envResults), true)
	if err != nil {
		t.Fatal(err)
	}
	if r.Commit == "" || len(r.Later) == 0 || len(r.Rows) == 0 {
		t.Errorf("the report is of commit %q, with %d ids and %d left to later steps", r.Commit, len(r.Rows), len(r.Later))
	}
	if err := r.write(filepath.Join(t.TempDir(), "reports", "conformance.json")); err != nil {
		t.Error(err)
	}
	var out strings.Builder
	r.print(&out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; last != fmt.Sprintf("%d passed, %d failed", r.Passed, r.Failed) {
		t.Errorf("the last line is %q", last)
	}
}

// mutants: every rule that is about leading one partition has at least one; R19 and R21
// are about reassignments, which the coordinator's tests are for.
func mutants(t *testing.T, e *env) {
	files, err := filepath.Glob("../../replica/leading/mutants/*.patch")
	if err != nil {
		t.Fatal(err)
	}
	for rule := range 21 {
		n := rule + 1
		if n == 18 || n == 19 || n == 21 {
			continue
		}
		found := false
		for _, f := range files {
			found = found || strings.Contains(filepath.Base(f), fmt.Sprintf("-R%d-", n))
		}
		if !found {
			t.Errorf("rule R%d has no mutant", n)
		}
	}
}

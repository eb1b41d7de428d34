package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// toolRun is one run of a command-line tool.
type toolRun struct {
	Tool, Step string
	Class      string
	Args       []string
	Stdin      string
	// Until is what the output must match at last: the tool is run again until it does.
	Until string
	// Tidy takes out of the output what cannot be equal.
	Tidy func(string) string
}

func toolsClients() []*client {
	prepare := func(ctx context.Context, c *client, _ *world) error {
		return prepareJava(ctx, c, harness.Version44, []string{"Tools.java"})
	}
	return []*client{
		{
			ID: "tools", Name: "command-line tools", Version: harness.Version44, Tools: true, prepare: prepare, Quick: true,
			run: runTools,
		},
	}
}

func runTools(ctx context.Context, c *client, w *world, l leg) (*transcript, error) {
	dir, err := os.MkdirTemp("", "mirror-clients-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	runs, err := toolRuns(dir, l, c)
	if err != nil {
		return nil, err
	}
	if w.opt.quick {
		runs = slices.DeleteFunc(runs, func(r toolRun) bool { return !slices.Contains(quickTools(), r.Tool) })
	}
	var lines strings.Builder
	tidy := map[string]func(string) string{}
	for _, r := range runs {
		fields := append([]string{r.Tool, r.Step, r.Class, r.Until, r.Stdin}, r.Args...)
		for i, f := range fields {
			fields[i] = base64.StdEncoding.EncodeToString([]byte(f))
		}
		lines.WriteString(strings.Join(fields, " ") + "\n")
		tidy[r.Tool+"/"+r.Step] = r.Tidy
	}
	file := filepath.Join(dir, "runs")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		return nil, err
	}
	t, err := runJava(ctx, c, "Tools", file)
	if t != nil {
		for _, p := range t.Parts {
			for i := range p.Seen {
				if f := tidy[p.Name+"/"+p.Seen[i].Step]; f != nil {
					p.Seen[i].Value = f(p.Seen[i].Value)
				}
			}
		}
	}
	return t, err
}

// quickTools are those of the short form.
func quickTools() []string {
	return []string{
		"kafka-topics", "kafka-configs", "kafka-console-producer", "kafka-console-consumer", "kafka-consumer-groups", "kafka-get-offsets",
		"kafka-broker-api-versions", "kafka-acls", "kafka-reassign-partitions", "kafka-metadata-quorum",
	}
}

// toolRuns is the script. Files for arguments go into dir.
func toolRuns(dir string, l leg, c *client) ([]toolRun, error) {
	s := &toolScript{dir: dir, seeds: strings.Join(l.seeds, ","), prefix: l.prefix(c)}
	s.topics()
	s.configs()
	s.console()
	s.groups()
	s.shareGroups()
	s.offsets()
	s.cluster()
	s.acls()
	s.reassign()
	s.verifiable()
	s.transactions()
	s.performance()
	return s.runs, s.err
}

// toolScript makes the list of runs.
type toolScript struct {
	dir, seeds, prefix string
	runs               []toolRun
	err                error
}

func (s *toolScript) topic(name string) string { return s.prefix + "-" + name }

// file writes a file for an argument.
func (s *toolScript) file(name, text string) string {
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.err = err
	}
	return path
}

const toolPackage = "org.apache.kafka.tools."

// add appends a run; the bootstrap is given to it.
func (s *toolScript) add(tool, class, step string, args ...string) *toolRun {
	s.runs = append(s.runs, toolRun{
		Tool: tool, Step: step, Class: toolPackage + class, Args: append([]string{"--bootstrap-server", s.seeds}, args...),
	})
	return &s.runs[len(s.runs)-1]
}

// keep tidies an output to the lines that match, sorted if asked.
func keep(pattern string, sorted bool) func(string) string {
	re := regexp.MustCompile(pattern)
	return func(text string) string {
		var out []string
		lines := strings.Split(strings.TrimSpace(text), "\n")
		for i, line := range lines {
			if i == 0 || re.MatchString(line) { // the first is the exit status
				out = append(out, strings.TrimSpace(line))
			}
		}
		if sorted {
			slices.Sort(out[1:])
		}
		return strings.Join(out, "\n")
	}
}

// blank tidies away what a pattern matches.
func blank(pattern string) func(string) string {
	re := regexp.MustCompile(pattern)
	return func(text string) string { return re.ReplaceAllString(text, "…") }
}

// squeezed takes the columns' widths away: what others have in the table makes them.
func squeezed(tidy func(string) string) func(string) string {
	re := regexp.MustCompile(` +`)
	return func(text string) string { return re.ReplaceAllString(tidy(text), " ") }
}

// drop tidies away whole lines, and the order of the others.
func drop(pattern string) func(string) string {
	re := regexp.MustCompile(pattern)
	return func(text string) string {
		lines := slices.DeleteFunc(strings.Split(text, "\n"), re.MatchString)
		slices.SortFunc(lines, func(a, b string) int { return strings.Compare(unaddressed(a), unaddressed(b)) })
		return strings.Join(lines, "\n")
	}
}

func (s *toolScript) topics() {
	add := func(step string, args ...string) *toolRun {
		return s.add("kafka-topics", "TopicCommand", step, args...)
	}
	made, ours := s.topic("made"), keep(s.prefix, true)
	add("create", "--create", "--topic", made, "--partitions", "2", "--replication-factor", "2", "--config", "retention.ms=99999999")
	add("create again", "--create", "--topic", made)
	add("create if it is not there", "--create", "--topic", made, "--if-not-exists")
	add("create with an assignment", "--create", "--topic", s.topic("verify"), "--replica-assignment", "1:2")
	add("create with a bad config", "--create", "--topic", s.topic("bad"), "--config", "no.such=1")
	add("describe", "--describe", "--topic", s.topic("verify")).Until = "^exit 0.*Partition: 0"
	add("describe what was there", "--describe", "--topic", s.topic("main"))
	add("describe unknown", "--describe", "--topic", s.topic("unknown"))
	add("alter", "--alter", "--topic", made, "--partitions", "3")
	add("shrink", "--alter", "--topic", made, "--partitions", "1")
	r := add("count", "--describe", "--topic", made)
	r.Until, r.Tidy = "PartitionCount: 3", keep("PartitionCount", false)
	add("list", "--list", "--exclude-internal").Tidy = ours
	// What was made a moment ago is not known to every broker yet.
	add("under replicated", "--describe", "--under-replicated-partitions").Until = "^exit 0\\s*$"
	add("under min isr", "--describe", "--under-min-isr-partitions").Until = "^exit 0\\s*$"
	add("unavailable", "--describe", "--unavailable-partitions")
	add("overrides", "--describe", "--topics-with-overrides", "--exclude-internal").Tidy = func(text string) string {
		return blank("Partitions?Count: .*Configs")(ours(text))
	}
	add("delete", "--delete", "--topic", made)
	add("delete unknown", "--delete", "--topic", s.topic("unknown"))
	r = add("list when deleted", "--list", "--exclude-internal")
	r.Tidy, r.Until = ours, `^((?!`+regexp.QuoteMeta(made)+`).)*$`
}

func (s *toolScript) configs() {
	add := func(step string, args ...string) *toolRun {
		return s.add("kafka-configs", "ConfigCommand", step, args...)
	}
	topic := []string{"--entity-type", "topics", "--entity-name", s.topic("admin")}
	with := func(entity []string, args ...string) []string { return append(slices.Clone(entity), args...) }
	add("describe", with(topic, "--describe")...)
	add("describe all", with(topic, "--describe", "--all")...)
	add("alter", with(topic, "--alter", "--add-config", "retention.ms=77777777,cleanup.policy=[compact,delete]")...)
	add("altered", with(topic, "--describe")...).Until = "77777777"
	add("delete", with(topic, "--alter", "--delete-config", "retention.ms,cleanup.policy")...)
	add("deleted", with(topic, "--describe")...).Until = "^((?!77777777).)*$"
	add("bad value", with(topic, "--alter", "--add-config", "retention.ms=long")...)
	add("delete what is not there", with(topic, "--alter", "--delete-config", "flush.ms")...)
	add("unknown topic", "--entity-type", "topics", "--entity-name", s.topic("unknown"), "--describe")
	// The ports are this machine's.
	add("broker", "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all").Tidy = func(text string) string {
		return withoutTouched(drop("listeners=")(text))
	}
	add("loggers", "--entity-type", "broker-loggers", "--entity-name", "2", "--describe").Tidy = keep(`\broot=`, false)
	add("set a logger", "--entity-type", "broker-loggers", "--entity-name", "2", "--alter", "--add-config", "kafka.server.Nothing=INFO")
	user := []string{"--entity-type", "users", "--entity-name", s.prefix}
	add("quota", with(user, "--alter", "--add-config", "producer_byte_rate=123456")...)
	add("quotas", with(user, "--describe")...).Until = "producer_byte_rate"
	add("scram", with(user, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=4096,password=secret]")...)
	add("with scram", with(user, "--describe")...).Until = "SCRAM-SHA-256"
	add("no quota", with(user, "--alter", "--delete-config", "producer_byte_rate")...)
	add("no scram", with(user, "--alter", "--delete-config", "SCRAM-SHA-256")...)
	add("no quotas", with(user, "--describe")...).Until = "^((?!producer_byte_rate|SCRAM).)*$"
	add("group", "--entity-type", "groups", "--entity-name", s.topic("share"), "--alter", "--add-config", "share.auto.offset.reset=earliest")
	add("groups", "--entity-type", "groups", "--entity-name", s.topic("share"), "--describe").Until = "earliest"
	metrics := func(step string, args ...string) *toolRun {
		return s.add("kafka-client-metrics", "ClientMetricsCommand", step, args...)
	}
	metrics("alter", "--alter", "--name", s.prefix, "--metrics", "org.apache.kafka.", "--interval", "60000")
	metrics("describe", "--describe", "--name", s.prefix).Until = "60000"
	metrics("list", "--list").Tidy = keep(s.prefix, true)
	metrics("delete", "--delete", "--name", s.prefix)
}

func (s *toolScript) console() {
	r := s.add("kafka-console-producer", "ConsoleProducer", "keys and headers", "--topic", s.topic("main"),
		"--reader-property", "parse.key=true", "--reader-property", "parse.headers=true", "--command-property", "compression.type=zstd")
	var in strings.Builder
	for i := range 10 {
		fmt.Fprintf(&in, "h:%d\tkey-%d\tvalue-%d\n", i, i, i)
	}
	r.Stdin = in.String()
	r = s.add("kafka-console-producer", "ConsoleProducer", "keys", "--topic", s.topic("codec"), "--sync", "--reader-property", "parse.key=true")
	r.Stdin = "a\tone\nb\ttwo\nc\tthree\n"
	add := func(step string, args ...string) *toolRun {
		return s.add("kafka-console-consumer", "consumer.ConsoleConsumer", step, args...)
	}
	show := []string{
		"--formatter-property", "print.key=true", "--formatter-property", "print.headers=true", "--formatter-property", "print.offset=true",
		"--formatter-property", "print.partition=true",
	}
	add("from the beginning", append([]string{"--topic", s.topic("main"), "--from-beginning", "--max-messages", "10", "--timeout-ms", "60000", "--group", s.topic("main")}, show...)...).Tidy = keep("", true)
	add("a partition from an offset", append([]string{"--topic", s.topic("main"), "--partition", "0", "--offset", "2", "--timeout-ms", "4000", "--isolation-level", "read_committed"}, show...)...).Until = "Offset:2\\b" // the first record may take as long
	add("with the new protocol", "--topic", s.topic("codec"), "--from-beginning", "--max-messages", "3", "--timeout-ms", "60000", "--group", s.topic("codec"),
		"--command-property", "group.protocol=consumer").Tidy = keep("", true)
	add("unknown topic", "--topic", s.topic("unknown"), "--from-beginning", "--timeout-ms", "3000")
}

func (s *toolScript) groups() {
	add := func(step string, args ...string) *toolRun {
		return s.add("kafka-consumer-groups", "consumer.group.ConsumerGroupCommand", step, args...)
	}
	classic, modern := s.topic("main"), s.topic("codec")
	for _, g := range []string{classic, modern} {
		kind := map[string]string{classic: "classic", modern: "new"}[g]
		add("state, "+kind, "--describe", "--group", g, "--state").Until = "Empty"
		add("describe, "+kind, "--describe", "--group", g).Tidy = keep("", true)
		add("members, "+kind, "--describe", "--group", g, "--members", "--verbose")
	}
	add("list", "--list").Tidy = keep(s.prefix, true)
	add("list states", "--list", "--state", "--type").Tidy = squeezed(keep(s.prefix, true))
	add("dry run", "--group", classic, "--topic", classic, "--reset-offsets", "--to-earliest", "--dry-run").Tidy = keep("", true)
	add("reset", "--group", classic, "--topic", classic, "--reset-offsets", "--shift-by", "-1", "--execute").Tidy = keep("", true)
	add("reset by time", "--group", classic, "--topic", classic, "--reset-offsets", "--to-datetime", "2020-01-01T00:00:00.000", "--execute").Tidy = keep("", true)
	add("was reset", "--describe", "--group", classic, "--offsets").Tidy = keep("", true)
	add("delete offsets", "--group", classic, "--topic", classic+":0", "--delete-offsets")
	add("delete", "--delete", "--group", classic)
	add("delete again", "--delete", "--group", classic)
	add("describe unknown", "--describe", "--group", classic)
	s.add("kafka-groups", "GroupsCommand", "list", "--list").Tidy = squeezed(keep(s.prefix, true))
	s.add("kafka-groups", "GroupsCommand", "consumer groups", "--list", "--consumer").Tidy = squeezed(keep(s.prefix, true))
	s.add("kafka-streams-groups", "streams.StreamsGroupCommand", "list", "--list").Tidy = keep(s.prefix, true)
	for _, more := range [][]string{{"--dry-run"}, nil} {
		s.add("kafka-streams-application-reset", "StreamsResetter", fmt.Sprint("reset ", more),
			append([]string{"--application-id", s.topic("app"), "--input-topics", s.topic("codec")}, more...)...).Tidy = keep("", true)
	}
	s.add("kafka-streams-application-reset", "StreamsResetter", "unknown topic", "--application-id", s.topic("app"), "--input-topics", s.topic("unknown")).Tidy = keep("", true)
}

func (s *toolScript) shareGroups() {
	topic := s.topic("share")
	r := s.add("kafka-console-share-consumer", "ConsoleProducer", "produce", "--topic", topic, "--sync")
	r.Stdin = "one\ntwo\nthree\nfour\n"
	s.add("kafka-console-share-consumer", "consumer.ConsoleShareConsumer", "consume", "--topic", topic, "--group", topic, "--max-messages", "4", "--timeout-ms", "60000").Tidy = keep("", true)
	add := func(step string, args ...string) *toolRun {
		return s.add("kafka-share-groups", "consumer.group.ShareGroupCommand", step, args...)
	}
	add("state", "--describe", "--group", topic, "--state").Until = "Empty"
	add("describe", "--describe", "--group", topic).Tidy = keep("^GROUP", false) // how far it is comes to be known later
	add("list", "--list").Tidy = keep(s.prefix, true)
	add("reset", "--reset-offsets", "--group", topic, "--topic", topic, "--to-earliest", "--execute").Tidy = keep("", true)
	add("delete offsets", "--delete-offsets", "--group", topic, "--topic", topic)
	add("delete", "--delete", "--group", topic)
	add("describe unknown", "--describe", "--group", topic)
}

func (s *toolScript) offsets() {
	add := func(step string, args ...string) { s.add("kafka-get-offsets", "GetOffsetShell", step, args...) }
	for _, at := range []string{"earliest", "latest", "latest-tiered", "earliest-local"} {
		add(at, "--topic", s.topic("codec"), "--time", at)
	}
	add("for a time", "--topic", s.topic("main"), "--time", "1500000000000")
	add("partitions", "--topic-partitions", s.topic("main")+":0,"+s.topic("codec")+":1")
	add("by pattern", "--topic", s.prefix+"-(main|codec)", "--exclude-internal-topics")
	add("unknown topic", "--topic", s.topic("unknown"))
	file := s.file("delete.json", fmt.Sprintf(`{"partitions": [{"topic": %q, "partition": 0, "offset": 2}, {"topic": %q, "partition": 1, "offset": 1}], "version": 1}`, s.topic("main"), s.topic("main")))
	s.add("kafka-delete-records", "DeleteRecordsCommand", "delete", "--offset-json-file", file).Tidy = keep("", true)
	file = s.file("delete-more.json", fmt.Sprintf(`{"partitions": [{"topic": %q, "partition": 0, "offset": 2000}], "version": 1}`, s.topic("main")))
	s.add("kafka-delete-records", "DeleteRecordsCommand", "too many", "--offset-json-file", file)
	s.add("kafka-delete-records", "GetOffsetShell", "starts", "--topic", s.topic("main"), "--time", "earliest")
}

func (s *toolScript) cluster() {
	s.add("kafka-broker-api-versions", "BrokerApiVersionsCommand", "versions").Tidy = func(text string) string { // brokers come in no order
		return drop("^$")(regexp.MustCompile(`(?m),$`).ReplaceAllString(text, ""))
	}
	s.add("kafka-cluster", "ClusterTool", "id").Args = []string{"cluster-id", "--bootstrap-server", s.seeds}
	for _, more := range [][]string{nil, {"--include-fenced-brokers"}} {
		r := s.add("kafka-cluster", "ClusterTool", fmt.Sprint("endpoints ", more))
		r.Args = append([]string{"list-endpoints", "--bootstrap-server", s.seeds}, more...)
		r.Tidy = func(text string) string { // host and port stand in columns
			return regexp.MustCompile(`(\d+\.\d+\.\d+\.\d+) +(\d+)`).ReplaceAllString(text, "$1:$2")
		}
	}
	s.add("kafka-features", "FeatureCommand", "describe", "describe").Tidy = blank(`Epoch: \d+`)
	s.add("kafka-features", "FeatureCommand", "upgrade dry", "upgrade", "--feature", "share.version=2", "--dry-run")
	s.add("kafka-features", "FeatureCommand", "a level that is none", "upgrade", "--feature", "share.version=99")
	// Who leads, and how far the log is, is not the proxy's.
	s.add("kafka-metadata-quorum", "MetadataQuorumCommand", "status", "describe", "--status").Tidy = drop("LeaderId|LeaderEpoch|HighWatermark|MaxFollower")
	s.add("kafka-metadata-quorum", "MetadataQuorumCommand", "replication", "describe", "--replication").Tidy = func(text string) string {
		return drop("^$")(regexp.MustCompile(`(?m)^(\d+)\s.*?(Leader|Follower|Observer)\s*$`).ReplaceAllStringFunc(text, func(line string) string {
			f := strings.Fields(line)
			return f[0] + " " + strings.NewReplacer("Leader", "Voter", "Follower", "Voter").Replace(f[len(f)-1])
		}))
	}
	dirs := func(text string) string { // partitions are in no order
		return drop("^$")(strings.NewReplacer("{", "\n{", "[", "\n[", "}", "}\n", "]", "]\n").Replace(strings.NewReplacer("},{", "}{").Replace(text)))
	}
	s.add("kafka-log-dirs", "LogDirsCommand", "describe", "--describe", "--topic-list", s.topic("tx"), "--broker-list", "1,2").Tidy = dirs
	s.add("kafka-log-dirs", "LogDirsCommand", "all brokers", "--describe", "--topic-list", s.topic("tx")).Tidy = dirs
	s.add("kafka-delegation-tokens", "DelegationTokenCommand", "describe", "--describe", "--command-config", s.file("empty.properties", ""))
}

func (s *toolScript) acls() {
	add := func(step string, args ...string) *toolRun { return s.add("kafka-acls", "AclCommand", step, args...) }
	user := "User:" + s.prefix
	add("add", "--add", "--allow-principal", user, "--operation", "Read", "--operation", "Describe", "--topic", s.topic("main")).Tidy = keep("", true)
	add("add by role", "--add", "--allow-principal", user, "--producer", "--topic", s.prefix, "--resource-pattern-type", "prefixed").Tidy = keep("", true)
	r := add("list", "--list", "--principal", user)
	r.Until, r.Tidy = "WRITE.*READ|READ.*WRITE", keep("", true)
	r = add("list by match", "--list", "--topic", s.topic("main"), "--resource-pattern-type", "match", "--principal", user)
	r.Until, r.Tidy = "WRITE.*READ|READ.*WRITE", keep("", true)
	add("remove", "--remove", "--allow-principal", user, "--operation", "Read", "--operation", "Describe", "--topic", s.topic("main"), "--force").Tidy = keep("", true)
	add("remove by role", "--remove", "--allow-principal", user, "--producer", "--topic", s.prefix, "--resource-pattern-type", "prefixed", "--force").Tidy = keep("", true)
	r = add("list when removed", "--list", "--principal", user)
	r.Until, r.Tidy = "^((?!WRITE|READ).)*$", keep("", true)
}

func (s *toolScript) reassign() {
	topic := s.topic("extra")
	add := func(step string, args ...string) *toolRun {
		return s.add("kafka-reassign-partitions", "reassign.ReassignPartitionsCommand", step, args...)
	}
	move := s.file("move.json", fmt.Sprintf(`{"topics": [{"topic": %q}], "version": 1}`, topic))
	plan := s.file("plan.json", fmt.Sprintf(`{"version": 1, "partitions": [{"topic": %q, "partition": 0, "replicas": [2, 1]}]}`, topic))
	nowhere := s.file("nowhere.json", fmt.Sprintf(`{"version": 1, "partitions": [{"topic": %q, "partition": 0, "replicas": [7, 1]}]}`, topic))
	add("generate", "--generate", "--topics-to-move-json-file", move, "--broker-list", "1").Tidy = blank(`log_dirs`)
	add("execute", "--execute", "--reassignment-json-file", plan)
	add("verify", "--verify", "--reassignment-json-file", plan).Until = "is completed"
	add("list", "--list")
	add("cancel", "--cancel", "--reassignment-json-file", plan)
	add("to a broker that is none", "--execute", "--reassignment-json-file", nowhere)
	elect := func(step string, args ...string) {
		s.add("kafka-leader-election", "LeaderElectionCommand", step, args...)
	}
	elect("preferred", "--election-type", "preferred", "--topic", topic, "--partition", "0")
	r := s.add("kafka-leader-election", "TopicCommand", "was elected", "--describe", "--topic", topic)
	r.Until, r.Tidy = "Partition: 0\tLeader: 2", blank("Isr: [0-9,]+")
	elect("again", "--election-type", "preferred", "--topic", topic, "--partition", "0")
	elect("unknown", "--election-type", "preferred", "--topic", s.topic("unknown"), "--partition", "0")
}

func (s *toolScript) verifiable() {
	topic := s.topic("verify")
	r := s.add("kafka-verifiable-producer", "VerifiableProducer", "produce", "--topic", topic, "--max-messages", "20", "--acks", "-1")
	r.Tidy = func(text string) string { // it ends before its last records are acknowledged
		return blank(`"timestamp":\d+,`)(keep("startup_complete", false)(text))
	}
	r = s.add("kafka-verifiable-consumer", "VerifiableConsumer", "consume", "--topic", topic, "--group-id", topic, "--max-messages", "20", "--reset-policy", "earliest")
	r.Tidy = func(text string) string {
		return blank(`"timestamp":\d+,`)(keep("startup_complete|partitions_assigned|shutdown_complete|error", false)(text))
	}
	s.add("kafka-verifiable-consumer", "consumer.group.ConsumerGroupCommand", "group", "--describe", "--group", topic).Until = topic + " +0 +20"
}

func (s *toolScript) transactions() {
	add := func(step string, args ...string) *toolRun {
		return s.add("kafka-transactions", "TransactionsCommand", step, args...)
	}
	add("list", "list").Tidy = keep(s.prefix, true)
	add("describe unknown", "describe", "--transactional-id", s.topic("unknown"))
	add("producers", "describe-producers", "--topic", s.topic("tx"), "--partition", "0")
	add("find hanging", "find-hanging", "--broker-id", "1")
	add("find hanging by topic", "find-hanging", "--topic", s.topic("tx"))
	add("abort what is not open", "abort", "--topic", s.topic("tx"), "--partition", "0", "--start-offset", "0")
}

func (s *toolScript) performance() {
	r := s.add("kafka-producer-perf-test", "ProducerPerformance", "produce", "--topic", s.topic("newgroup"), "--num-records", "2000", "--record-size", "100", "--throughput", "-1")
	r.Tidy = func(text string) string {
		return regexp.MustCompile(`(?s)(exit \d+\n).*(2000 records sent).*`).ReplaceAllString(text, "$1$2")
	}
	s.add("kafka-producer-perf-test", "GetOffsetShell", "offsets", "--topic", s.topic("newgroup")).Tidy = summed
	r = s.add("kafka-e2e-latency", "EndToEndLatency", "records", "--topic", s.topic("group"), "--num-records", "50", "--producer-acks", "all", "--record-size", "100")
	r.Tidy = blank(`\d+\.\d+|\d+\s|\d+,|: \d+`)
	s.add("kafka-e2e-latency", "GetOffsetShell", "offsets", "--topic", s.topic("group")).Tidy = summed
	r = s.add("kafka-consumer-perf-test", "ConsumerPerformance", "consume", "--topic", s.topic("newgroup"), "--num-records", "2000", "--timeout", "60000", "--group", s.topic("newgroup"))
	r.Tidy = func(text string) string {
		return strings.Join(regexp.MustCompile(`exit \d+|2000`).FindAllString(text, 2), " ")
	}
}

// summed tidies the ends of partitions to how many records there are: which gets how many is chance.
func summed(text string) string {
	sum := 0
	for _, line := range strings.Split(text, "\n") {
		n := 0
		if f := strings.Split(line, ":"); len(f) == 3 {
			_, _ = fmt.Sscan(f[2], &n)
		}
		sum += n
	}
	return fmt.Sprint(sum, " records")
}

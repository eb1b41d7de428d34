package main

import (
	"slices"
	"time"

	"github.com/spf13/pflag"
)

// action is what the command line is asked to do: exactly one is given. Parsing, --help and
// shell completion all read the same table.
type action struct {
	name string
	// value is what the action's own flag takes, empty for none.
	value string
	group string
	short string
	long  string
	needs []string // flags that must be given
	takes []string // flags that may be
	files bool     // takes arguments that are files
	local bool     // asks no cluster
	// examples leave out the program's name and the bootstrap server.
	examples []string
}

// option is a flag that is not an action.
type option struct {
	name, arg, doc string
	complete       completion
	bind           func(f *pflag.FlagSet, o *options, d *option)
}

// completion is what a shell offers for a flag's value.
type completion int8

const (
	completeNothing completion = iota
	completeFile
	completeMirror
	completeTopic
)

const (
	groupMirrors = "Mirrors"
	groupTopics  = "Topics of a mirror"
	groupLook    = "Look"
	groupOther   = "Other"
)

func actionGroups() []string { return []string{groupMirrors, groupTopics, groupLook, groupOther} }

const topicsHelp = "TOPICS is a comma separated list. An entry made of letters, digits, '.', '_' and '-' is the name of one " +
	"topic; any other entry is a regular expression (RE2) that has to match a topic's whole name: orders.* or (a|b)-events. " +
	"A regular expression cannot contain a comma."

func actions() []action {
	return []action{
		{
			name: "create", group: groupMirrors, short: "create a mirror",
			long: "Creates a mirror: a named link to the source cluster that the properties file describes. Nothing is copied " +
				"before topics are started. The file holds what any Kafka client needs to reach the source " +
				"(bootstrap.servers, security.protocol, sasl.*, ssl.*) and the mirror's own keys (mirror.*); " +
				"--describe-configs lists them all.",
			needs: []string{"mirror", "mirror-config"}, takes: []string{"dry-run", "json"},
			examples: []string{"--create --mirror east --mirror-config source.properties"},
		},
		{
			name: "alter", group: groupMirrors, short: "change the configuration of a mirror",
			long: "Sets and removes keys of a mirror's configuration: all changes or none. Filters (mirror.topics.*, " +
				"mirror.groups.*, mirror.acls.*) count from the next refresh on; anything else reconnects this mirror to its source. " +
				"With --dry-run it says what a change of filters would do to ACLs and quotas. " +
				"Values on the command line are seen by everybody on this machine: put secrets into a file and use --add-config-file.",
			needs: []string{"mirror"}, takes: []string{"add-config", "add-config-file", "delete-config", "dry-run", "json"},
			examples: []string{
				"--alter --mirror east --add-config mirror.fetch.max.bytes=4194304",
				"--alter --mirror east --add-config 'mirror.topics.exclude=__.*,tmp-.*' --delete-config mirror.groups.exclude",
				"--alter --mirror east --add-config-file new-password.properties",
			},
		},
		{
			name: "delete", group: groupMirrors, short: "delete a mirror whose topics are all stopped",
			long: "Deletes a mirror once every topic of it is STOPPED. The topics stay. What the mirror knew about where source " +
				"and copy part is deleted too, so failing back afterwards copies everything again.",
			needs: []string{"mirror"}, takes: []string{"dry-run", "json"},
			examples: []string{"--delete --mirror east"},
		},
		{
			name: "start", group: groupTopics, short: "mirror topics: copy them from now on, read only here",
			long: "Starts topics. A topic that does not exist here is created. Regular expressions are kept with the mirror: topics " +
				"that appear at the source later and match are started by themselves. A topic that exists here keeps its records " +
				"as far as the source has the same ones; if records would have to go, it FAILS and says how many, unless " +
				"--allow-truncate is given. " + topicsHelp,
			needs: []string{"mirror", "topics"}, takes: []string{"exclude", "allow-truncate", "dry-run", "wait", "timeout", "json"},
			examples: []string{
				"--start --mirror east --topics orders,payments --wait",
				"--start --mirror east --topics 'orders-.*' --exclude 'orders-tmp.*' --dry-run",
			},
		},
		{
			name: "stop", group: groupTopics, short: "end mirroring of topics and make them writable here",
			long: "Stops topics: the fail-over. Works with the source dead. Everything that was mirrored stays, transactions that are " +
				"open are aborted, and the topics become ordinary, writable ones. Regular expressions move from what the mirror " +
				"includes to what it excludes; a --start with the same ones takes them back. " + topicsHelp,
			needs: []string{"mirror", "topics"}, takes: []string{"dry-run", "wait", "timeout", "json"},
			examples: []string{"--stop --mirror east --topics orders --wait", "--stop --mirror east --topics 'orders-.*' --dry-run"},
		},
		{
			name: "pause", group: groupTopics, short: "stop copying, stay read only",
			long:  "Pauses topics: nothing is copied and no configuration is followed until --resume; the topics stay read only here. " + topicsHelp,
			needs: []string{"mirror", "topics"}, takes: []string{"dry-run", "wait", "timeout", "json"},
			examples: []string{"--pause --mirror east --topics orders --wait"},
		},
		{
			name: "resume", group: groupTopics, short: "go on with paused topics",
			long:  "Resumes paused topics where they were; nothing is copied twice. " + topicsHelp,
			needs: []string{"mirror", "topics"}, takes: []string{"dry-run", "wait", "timeout", "json"},
			examples: []string{"--resume --mirror east --topics orders --wait"},
		},
		{
			name: "recover", group: groupTopics, short: "try failed topics again at once",
			long: "Lets the FAILED partitions of topics begin anew now rather than when their back-off ends, and those too that are " +
				"not tried again by themselves. See --describe --failed for what is wrong with them. " + topicsHelp,
			needs: []string{"mirror", "topics"}, takes: []string{"allow-truncate", "dry-run", "wait", "timeout", "json"},
			examples: []string{"--recover --mirror east --topics orders --wait"},
		},
		{
			name: "switchover", group: groupTopics, short: "move topics to this cluster without losing a record",
			long: "A planned move, in steps that are reported one by one: writes are fenced at the source, if sidecars stand before " +
				"it; everything that is there is waited for, open transactions included; the offsets of groups that are not " +
				"active here are moved; the topics are stopped. Without sidecars at the source, stop its writers first: this " +
				"waits until the source stands still. Interrupted or failed before the stop, it lets writers go on " +
				"and changes nothing, but for offsets of groups that it has moved by then, which it names; it can be repeated at any point. " +
				"After success, writes at the source stay refused for --keep-fence. All topics of the mirror are moved, and new ones are not " +
				"looked for any more, unless --topics picks some. Topics that the mirror finds meanwhile are named, and moved when this is " +
				"repeated. " + topicsHelp,
			needs: []string{"mirror"},
			takes: []string{
				"topics", "source-bootstrap-server", "source-config", "skip-groups", "lease", "quiet-period", "keep-fence",
				"dry-run", "timeout", "json",
			},
			examples: []string{"--switchover --mirror east --dry-run", "--switchover --mirror east --source-config source-client.properties"},
		},
		{
			name: "list", group: groupLook, short: "list mirrors",
			long:  "Lists mirrors: MIRROR, TOPICS (neither paused nor stopped), SOURCE-CLUSTER-ID, SOURCE-BOOTSTRAP-SERVER.",
			takes: []string{"mirror", "json"}, examples: []string{"--list", "--list --json"},
		},
		{
			name: "describe", group: groupLook, short: "show the partitions of one mirror, or of all",
			long: "Shows MIRROR, TOPIC, PARTITION, SOURCE-OFFSET, DESTINATION-OFFSET, LAG (in records) and STATE of each partition, or with " +
				"--failed only those that FAILED: MIRROR, TOPIC, PARTITION, RETRY, ERROR. A dash means: not known. States: " +
				"LOG_TRUNCATION (comparing with the source), MIRRORING, PAUSING, PAUSED, STOPPING, STOPPED (writable), FAILED. With --policies it " +
				"shows instead which policies decide what is mirrored, when each was asked last, and what is left out, with the reason. " + topicsHelp,
			takes:    []string{"mirror", "topics", "failed", "policies", "json"},
			examples: []string{"--describe --mirror east", "--describe --failed", "--describe --policies"},
		},
		{
			name: "describe-configs", group: groupLook, short: "show the configuration of a mirror",
			long:  "Shows every key of a mirror's configuration with its value, * where it was set, and what it is for. Secrets are not shown.",
			needs: []string{"mirror"}, takes: []string{"json"},
			examples: []string{"--describe-configs --mirror east"},
		},
		{
			name: "explain", group: groupLook, short: "say why a topic, config, group, ACL or quota is mirrored or is not",
			long: "Names the rules that decide about one topic, config of a topic, group, ACL or client quota, in the order in which they are " +
				"asked, and what each said, in the policy's own words, since when, and what came of it; for one mirror, or for all. " +
				"--acl '*' and --quota '*' say what would be created, set and deleted now.",
			takes:    []string{"topic", "config", "group", "acl", "quota", "mirror", "json"},
			examples: []string{"--explain --topic orders", "--explain --config orders/retention.ms", "--explain --mirror east --group billing"},
		},
		{
			name: "verify", group: groupLook, short: "compare source and mirror batch by batch",
			long: "Reads source and mirror as raw batches and reports the first difference of each partition. Topics that were stopped " +
				"are compared up to where the mirror ended. " + topicsHelp,
			needs: []string{"mirror"}, takes: []string{"topics", "source-bootstrap-server", "source-config", "json"},
			examples: []string{"--verify --mirror east", "--verify --mirror east --topics orders --source-config source-client.properties"},
		},
		{
			name: "decode-log", group: groupOther, short: "print the records in segment FILES of the state topic",
			long:  "Prints log segments of __cluster_mirror_state as kafka-dump-log.sh prints them with a decoder for this topic. Secrets are hidden.",
			files: true, local: true,
			examples: []string{"--decode-log /var/lib/kafka/__cluster_mirror_state-1/00000000000000000000.log"},
		},
		{
			name: "decode-state", group: groupOther, short: "print the records of the state topic, read from the brokers",
			long:     "Prints the records of __cluster_mirror_state up to its present end, one JSON object on a line. Secrets are hidden.",
			examples: []string{"--decode-state"},
		},
		{
			name: "completion", value: "SHELL", group: groupOther, short: "print the completion script for bash, zsh or fish",
			long: "Prints a script that lets the shell complete actions, flags, files, and the names of mirrors and topics, for which " +
				"it asks the --bootstrap-server that the line names.",
			local: true,
			examples: []string{
				"source <(kafka-cluster-mirrors --completion bash)",
				"kafka-cluster-mirrors --completion zsh > \"${fpath[1]}/_kafka-cluster-mirrors\"",
				"kafka-cluster-mirrors --completion fish > ~/.config/fish/completions/kafka-cluster-mirrors.fish",
			},
		},
		{
			name: "version", group: groupOther, short: "print the version",
			long: "Prints the version of this program.", takes: []string{"json"}, local: true,
			examples: []string{"--version"},
		},
	}
}

// always may be given with any action that asks a cluster.
func always() []string { return []string{"bootstrap-server", "command-config", "quiet"} }

func optionTable() []option {
	text := func(field func(*options) *string) func(*pflag.FlagSet, *options, *option) {
		return func(f *pflag.FlagSet, o *options, d *option) { f.StringVar(field(o), d.name, "", d.doc) }
	}
	list := func(field func(*options) *[]string) func(*pflag.FlagSet, *options, *option) {
		return func(f *pflag.FlagSet, o *options, d *option) { f.StringSliceVar(field(o), d.name, nil, d.doc) }
	}
	// A value that may hold commas.
	whole := func(field func(*options) *[]string) func(*pflag.FlagSet, *options, *option) {
		return func(f *pflag.FlagSet, o *options, d *option) { f.StringArrayVar(field(o), d.name, nil, d.doc) }
	}
	truth := func(field func(*options) *bool) func(*pflag.FlagSet, *options, *option) {
		return func(f *pflag.FlagSet, o *options, d *option) { f.BoolVar(field(o), d.name, false, d.doc) }
	}
	span := func(def time.Duration, field func(*options) *time.Duration) func(*pflag.FlagSet, *options, *option) {
		return func(f *pflag.FlagSet, o *options, d *option) { f.DurationVar(field(o), d.name, def, d.doc) }
	}
	return []option{
		{"bootstrap-server", "HOST:PORT", "any sidecar's client listener; several, comma separated, are tried in turn", completeNothing, list(func(o *options) *[]string { return &o.bootstrap })},
		{"command-config", "FILE", "client properties (security) for the bootstrap server", completeFile, text(func(o *options) *string { return &o.commandConfig })},
		{"mirror", "NAME", "the mirror", completeMirror, text(func(o *options) *string { return &o.mirror })},
		{"mirror-config", "FILE", "the mirror's properties: bootstrap.servers, …", completeFile, text(func(o *options) *string { return &o.mirrorConfig })},
		{"topics", "TOPICS", "names or regular expressions, comma separated", completeTopic, list(func(o *options) *[]string { return &o.topics })},
		{"exclude", "REGEX", "regular expressions of topics to leave out, comma separated; kept with the mirror", completeNothing, list(func(o *options) *[]string { return &o.exclude })},
		{"allow-truncate", "", "give up records here that the source does not have", completeNothing, truth(func(o *options) *bool { return &o.allowTruncate })},
		{"add-config", "KEY=VALUE", "set a key; may be given several times, the value may hold commas", completeNothing, whole(func(o *options) *[]string { return &o.addConfig })},
		{"add-config-file", "FILE", "set the keys of a properties file", completeFile, text(func(o *options) *string { return &o.addConfigFile })},
		{"delete-config", "KEY", "remove keys, which then have their defaults; comma separated", completeNothing, list(func(o *options) *[]string { return &o.deleteConfig })},
		{"failed", "", "only partitions that FAILED", completeNothing, truth(func(o *options) *bool { return &o.failed })},
		{"policies", "", "the policies of mirrors, and what they left out", completeNothing, truth(func(o *options) *bool { return &o.policies })},
		{"config", "TOPIC/KEY", "the config of a topic to explain", completeNothing, text(func(o *options) *string { return &o.topicConfig })},
		{"quota", "QUOTA", "the client quota to explain: user=alice,client-id=app;producer_byte_rate", completeNothing, text(func(o *options) *string { return &o.quota })},
		{"topic", "NAME", "the topic to explain", completeTopic, text(func(o *options) *string { return &o.topic })},
		{"group", "NAME", "the consumer or share group to explain", completeNothing, text(func(o *options) *string { return &o.groupName })},
		{"acl", "RULE", "the ACL to explain: resourceType;resourceName;operation;permissionType;principal", completeNothing, text(func(o *options) *string { return &o.acl })},
		{"source-bootstrap-server", "HOST:PORT", "the source, if not as the mirror says; for --switchover, the source's sidecars", completeNothing, list(func(o *options) *[]string { return &o.sourceBootstrap })},
		{"source-config", "FILE", "client properties for the source, since the mirror's secrets are not shown", completeFile, text(func(o *options) *string { return &o.sourceConfig })},
		{"skip-groups", "", "do not move the offsets of groups", completeNothing, truth(func(o *options) *bool { return &o.skipGroups })},
		{"quiet-period", "DURATION", "how long the source must stand still", completeNothing, span(3*time.Second, func(o *options) *time.Duration { return &o.quietPeriod })},
		{"lease", "DURATION", "how long the fence outlives this program, should it be killed", completeNothing, span(30*time.Second, func(o *options) *time.Duration { return &o.lease })},
		{"keep-fence", "DURATION", "how long writes at the source stay refused after success", completeNothing, span(10*time.Minute, func(o *options) *time.Duration { return &o.keepFence })},
		{"dry-run", "", "say what would happen, change nothing", completeNothing, truth(func(o *options) *bool { return &o.dryRun })},
		{"wait", "", "show progress until it is done", completeNothing, truth(func(o *options) *bool { return &o.wait })},
		{"timeout", "DURATION", "how long to wait", completeNothing, span(5*time.Minute, func(o *options) *time.Duration { return &o.timeout })},
		{"json", "", "answer in JSON", completeNothing, truth(func(o *options) *bool { return &o.json })},
		{"quiet", "", "no progress", completeNothing, truth(func(o *options) *bool { return &o.quiet })},
	}
}

// accepts tells whether a flag means something with the action.
func (a *action) accepts(flag string) bool {
	return slices.Contains(a.needs, flag) || slices.Contains(a.takes, flag) || !a.local && slices.Contains(always(), flag)
}

func findAction(name string) *action {
	for _, a := range actions() {
		if a.name == name {
			return &a
		}
	}
	return nil
}

// standard says what a flag is when it is not given, if that is worth saying.
func (d *option) standard() string {
	f := pflag.NewFlagSet(program, pflag.ContinueOnError)
	d.bind(f, &options{}, d)
	switch v := f.Lookup(d.name).DefValue; v {
	case "", "[]", "false":
		return ""
	default:
		return " (" + v + ")"
	}
}

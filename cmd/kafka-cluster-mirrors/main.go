// Command kafka-cluster-mirrors is the operator's command line for cluster mirrors. It
// speaks the mirror APIs to any sidecar (contract.md §7).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// Set by the linker.
var (
	version = "unknown"
	commit  = "unknown"
)

// Exit statuses: something asked for did not happen; the command line was not understood.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// usageError is a command line that was not understood.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = o.do(ctx, stdout, stderr)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "kafka-cluster-mirrors: %v\n", err)
	var usage usageError
	if errors.As(err, &usage) {
		fmt.Fprintln(stderr, "Try 'kafka-cluster-mirrors --help'.")
		return exitUsage
	}
	return exitFailed
}

// options are the flags.
type options struct {
	action string

	bootstrap     []string
	commandConfig string
	mirror        string
	mirrorConfig  string
	topics        []string
	exclude       []string
	allowTruncate bool
	dryRun        bool
	json          bool
	failed        bool
	wait          bool
	timeout       time.Duration

	sourceBootstrap []string
	sourceConfig    string
	quiet           bool

	files []string
}

// actions are the flags of which exactly one is given, and what each is for.
func actions() [][2]string {
	return [][2]string{
		{"create", "create a mirror (--mirror, --mirror-config)"},
		{"start", "mirror topics (--mirror, --topics)"},
		{"stop", "end mirroring of topics and make them writable (--mirror, --topics)"},
		{"recover", "try failed partitions again at once (--mirror, --topics)"},
		{"delete", "delete a mirror whose topics are all stopped (--mirror)"},
		{"list", "list mirrors"},
		{"describe", "show partitions of one mirror, or of all"},
		{"verify", "compare source and mirror batch by batch (--mirror)"},
		{"decode-log", "print state records in log segment FILES, as kafka-dump-log does"},
		{"decode-state", "print the records of the state topic, read straight from the brokers"},
		{"version", "print the version"},
	}
}

func parse(args []string, stdout io.Writer) (*options, error) {
	o := &options{}
	f := pflag.NewFlagSet("kafka-cluster-mirrors", pflag.ContinueOnError)
	f.SortFlags = false
	f.SetOutput(io.Discard)
	chosen := map[string]*bool{}
	for _, a := range actions() {
		chosen[a[0]] = f.Bool(a[0], false, a[1])
	}
	f.StringSliceVar(&o.bootstrap, "bootstrap-server", nil, "`HOST:PORT` of any sidecar's client listener")
	f.StringVar(&o.commandConfig, "command-config", "", "`FILE` with client properties (security)")
	f.StringVar(&o.mirror, "mirror", "", "`NAME` of the mirror")
	f.StringVar(&o.mirrorConfig, "mirror-config", "", "`FILE` with the mirror's properties: bootstrap.servers, …")
	f.StringSliceVar(&o.topics, "topics", nil, "`TOPICS`: names or regular expressions, comma separated")
	f.StringSliceVar(&o.exclude, "exclude", nil, "with --start: regular expressions of topics to leave out")
	f.BoolVar(&o.allowTruncate, "allow-truncate", false, "give up records here that the source does not have")
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would happen, change nothing")
	f.BoolVar(&o.wait, "wait", false, "with --start and --stop: show progress until done")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long --wait waits")
	f.BoolVar(&o.failed, "failed", false, "with --describe: failed partitions only")
	f.BoolVar(&o.json, "json", false, "answer in JSON")
	f.StringSliceVar(&o.sourceBootstrap, "source-bootstrap-server", nil, "with --verify: the source, if not as the mirror says")
	f.StringVar(&o.sourceConfig, "source-config", "", "with --verify: `FILE` with client properties for the source, since the mirror's secrets are not shown")
	f.BoolVar(&o.quiet, "quiet", false, "no progress")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			fmt.Fprintf(stdout, "Manage cluster mirrors.\n\nUsage:\n  kafka-cluster-mirrors --bootstrap-server HOST:PORT ACTION [FLAGS]\n\nActions and flags:\n%s", f.FlagUsages())
			return nil, err
		}
		return nil, usageError{err}
	}
	o.files = f.Args()
	for _, a := range actions() {
		if !*chosen[a[0]] {
			continue
		}
		if o.action != "" {
			return nil, usagef("--%s and --%s cannot be given together", o.action, a[0])
		}
		o.action = a[0]
	}
	return o, o.check(f)
}

// check refuses command lines that would do something else than they look like.
func (o *options) check(f *pflag.FlagSet) error {
	names := make([]string, 0, len(actions()))
	for _, a := range actions() {
		names = append(names, "--"+a[0])
	}
	if o.action == "" {
		return usagef("one of %s is needed", strings.Join(names, ", "))
	}
	local := o.action == "version" || o.action == "decode-log"
	if !local && len(o.bootstrap) == 0 {
		return usagef("--bootstrap-server is needed")
	}
	if o.action == "decode-log" {
		if len(o.files) == 0 {
			return usagef("--decode-log needs files")
		}
	} else if len(o.files) > 0 {
		return usagef("unexpected argument %q", o.files[0])
	}
	need := map[string][]string{
		"create": {"mirror", "mirror-config"}, "start": {"mirror", "topics"}, "stop": {"mirror", "topics"},
		"recover": {"mirror", "topics"}, "delete": {"mirror"}, "verify": {"mirror"},
	}
	for _, n := range need[o.action] {
		if !f.Changed(n) {
			return usagef("--%s needs --%s", o.action, n)
		}
	}
	only := map[string][]string{
		"mirror-config": {"create"}, "topics": {"start", "stop", "recover", "verify", "describe"}, "exclude": {"start"},
		"allow-truncate": {"start", "recover"}, "dry-run": {"create", "start", "stop", "recover", "delete"}, "wait": {"start", "stop"},
		"failed": {"describe"}, "source-bootstrap-server": {"verify"}, "source-config": {"verify"},
	}
	var wrong error
	f.Visit(func(x *pflag.Flag) {
		allowed, limited := only[x.Name]
		if wrong != nil || !limited {
			return
		}
		for _, a := range allowed {
			if a == o.action {
				return
			}
		}
		wrong = usagef("--%s has no meaning with --%s", x.Name, o.action)
	})
	return wrong
}

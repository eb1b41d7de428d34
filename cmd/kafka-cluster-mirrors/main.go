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

const program = "kafka-cluster-mirrors"

// Exit statuses, as --help lists them. Zero means that everything that was asked for happened.
const (
	exitFailed      = 1   // refused, failed, or not equal
	exitUsage       = 2   // the command line was not understood; nothing was asked
	exitTimeout     = 3   // asked for, and not done within --timeout
	exitUnreachable = 4   // no sidecar answers
	exitInterrupted = 130 // as shells have it for a program ended by Ctrl-C
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

// timeoutError is something that was not done in time.
type timeoutError struct{ error }

// unreachableError is a cluster that does not answer.
type unreachableError struct{ error }

func (e usageError) Unwrap() error       { return e.error }
func (e timeoutError) Unwrap() error     { return e.error }
func (e unreachableError) Unwrap() error { return e.error }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args)
	if err == nil {
		err = o.do(ctx, stdout, stderr)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "%s: %v\n", program, err)
	var usage usageError
	if errors.As(err, &usage) {
		hint := "--help"
		if o != nil && o.action != "" {
			hint += " " + o.action
		}
		fmt.Fprintf(stderr, "Try '%s %s'.\n", program, hint)
	}
	return exitStatus(ctx, err)
}

func exitStatus(ctx context.Context, err error) int {
	var usage usageError
	var timeout timeoutError
	var unreachable unreachableError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &timeout):
		return exitTimeout
	case errors.As(err, &unreachable):
		return exitUnreachable
	}
	return exitFailed
}

// options are what the command line says.
type options struct {
	action string
	value  string // of the action's own flag

	bootstrap     []string
	commandConfig string
	mirror        string
	mirrorConfig  string
	topics        []string
	exclude       []string
	allowTruncate bool
	dryRun        bool
	json          bool
	quiet         bool
	failed        bool
	policies      bool
	wait          bool
	timeout       time.Duration

	addConfig     []string
	addConfigFile string
	deleteConfig  []string

	topic, topicConfig, groupName, acl, quota string

	sourceBootstrap []string
	sourceConfig    string
	skipGroups      bool
	quietPeriod     time.Duration
	lease           time.Duration
	keepFence       time.Duration

	files []string
}

// actionHelp is what --help makes of a command line.
const actionHelp = "help"

// parse reads the command line. With an error the options may be there too, to say what for.
func parse(args []string) (*options, error) {
	o := &options{}
	f := pflag.NewFlagSet(program, pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	help := f.BoolP("help", "h", false, "")
	chosen := map[string]*bool{}
	values := map[string]*string{}
	for _, a := range actions() {
		if a.value != "" {
			values[a.name] = f.String(a.name, "", a.short)
		} else {
			chosen[a.name] = f.Bool(a.name, false, a.short)
		}
	}
	for _, d := range optionTable() {
		d.bind(f, o, &d)
	}
	if err := f.Parse(args); err != nil {
		return nil, usageError{err}
	}
	o.files = f.Args()
	for _, a := range actions() {
		given := a.value != "" && f.Changed(a.name) || a.value == "" && *chosen[a.name]
		if !given {
			continue
		}
		if o.action != "" {
			return o, usagef("--%s and --%s cannot be given together", o.action, a.name)
		}
		o.action = a.name
		if a.value != "" {
			o.value = *values[a.name]
		}
	}
	if *help {
		return o, o.askHelp()
	}
	return o, o.check(f)
}

// askHelp turns the options into the question for help that they are.
func (o *options) askHelp() error {
	o.value, o.action = o.action, actionHelp
	for _, name := range o.files {
		if o.value = strings.TrimLeft(name, "-"); findAction(o.value) == nil {
			return usagef("there is no action %q to explain", name)
		}
	}
	return nil
}

// check refuses command lines that would do something else than they look like.
func (o *options) check(f *pflag.FlagSet) error {
	a := findAction(o.action)
	if a == nil {
		var names []string
		for _, a := range actions() {
			names = append(names, "--"+a.name)
		}
		return usagef("one of %s is needed", strings.Join(names, ", "))
	}
	if !a.local && len(o.bootstrap) == 0 {
		return usagef("--bootstrap-server is needed")
	}
	if a.files && len(o.files) == 0 {
		return usagef("--%s needs files", a.name)
	}
	if !a.files && len(o.files) > 0 {
		return usagef("unexpected argument %q", o.files[0])
	}
	for _, n := range a.needs {
		if x := f.Lookup(n); !x.Changed || x.Value.String() == "" {
			return usagef("--%s needs --%s", a.name, n)
		}
	}
	var wrong error
	f.Visit(func(x *pflag.Flag) {
		if wrong == nil && x.Name != a.name && !a.accepts(x.Name) {
			wrong = usagef("--%s has no meaning with --%s", x.Name, a.name)
		}
	})
	if wrong != nil {
		return wrong
	}
	return o.checkValues(f)
}

func (o *options) checkValues(f *pflag.FlagSet) error {
	switch o.action {
	case "alter":
		if len(o.addConfig) == 0 && o.addConfigFile == "" && len(o.deleteConfig) == 0 {
			return usagef("--alter needs --add-config, --add-config-file or --delete-config")
		}
	case "explain":
		given := 0
		for _, v := range []string{o.topic, o.topicConfig, o.groupName, o.acl, o.quota} {
			if v != "" {
				given++
			}
		}
		if given != 1 {
			return usagef("--explain needs one of --topic, --config, --group, --acl and --quota")
		}
	case "describe":
		if o.policies && (o.failed || len(o.topics) > 0) {
			return usagef("--policies shows what a mirror's policies did, not its partitions: it has no meaning with --failed and --topics")
		}
	case "completion":
		if completionScript(o.value) == nil {
			return usagef("there is no completion for %q; there is for bash, zsh and fish", o.value)
		}
	}
	if f.Changed("timeout") && !o.wait && o.action != "switchover" {
		return usagef("--timeout has no meaning without --wait")
	}
	for name, d := range map[string]time.Duration{"timeout": o.timeout, "lease": o.lease} {
		if f.Changed(name) && d < time.Second {
			return usagef("--%s %s is too short; a second is the least", name, d)
		}
	}
	if o.quietPeriod < 0 || o.keepFence < 0 {
		return usagef("--quiet-period and --keep-fence cannot be negative")
	}
	if o.lease > maxFence || o.keepFence > maxFence {
		return usagef("--lease and --keep-fence cannot be above %s, the longest that a sidecar grants", maxFence)
	}
	if _, err := newSelector(append(append([]string{}, o.topics...), o.exclude...)); err != nil {
		return usageError{err}
	}
	return nil
}

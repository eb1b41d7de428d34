package main

import (
	"context"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kgo"
)

// do does what the command line asks for.
func (o *options) do(ctx context.Context, out, errs io.Writer) error {
	switch o.action {
	case actionHelp:
		return writeHelp(out, o.value)
	case "version":
		return o.say(out, versionText{version, commit}, fmt.Sprintf("%s %s (commit %s)", program, version, commit))
	case "completion":
		return completionScript(o.value)(out)
	case "decode-log":
		return decodeLogs(out, o.files)
	case "decode-state":
		return o.decodeState(ctx, out)
	}
	cl, err := dial(o.bootstrap, o.commandConfig, kgo.RequestTimeoutOverhead(requestTimeout))
	if err != nil {
		return err
	}
	defer cl.Close()
	p := newProgress(errs, o.quiet)
	defer p.end()
	switch o.action {
	case "create":
		return o.create(ctx, cl, out)
	case "alter":
		return o.alter(ctx, cl, out)
	case "delete":
		return o.delete(ctx, cl, out)
	case "list":
		return o.list(ctx, cl, out)
	case "describe":
		return o.describe(ctx, cl, out)
	case "describe-configs":
		return o.describeConfigs(ctx, cl, out)
	case "explain":
		return o.explain(ctx, cl, out)
	case "verify":
		return o.verify(ctx, cl, out, p)
	case "switchover":
		return o.switchover(ctx, cl, out, p)
	}
	return o.topicsVerb(ctx, cl, out, p)
}

type versionText struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
}

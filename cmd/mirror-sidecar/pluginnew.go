package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/scaffold"
)

// runPluginNew writes the beginning of a plugin.
func runPluginNew(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("mirror-sidecar plugin new", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.SortFlags = false
	o := scaffold.Options{Version: buildVersion()}
	flags.StringVar(&o.Lang, "lang", "go", "language: "+strings.Join(scaffold.Langs, " or "))
	flags.StringVar(&o.Kind, "kind", "topics", "what it decides on, or is told of: "+strings.Join(scaffold.KindNames(), ", "))
	flags.StringVar(&o.Dir, "dir", "", "folder to write, which must not be there yet; NAME by default")
	flags.StringVar(&o.SDK, "sdk", "", "folder of a checkout of mirror-sidecar to build with, instead of a released version; go only")
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "mirror-sidecar plugin new: %v\n", err)
		return 2
	case flags.NArg() != 1:
		fmt.Fprint(stderr, "mirror-sidecar plugin new: the plugin's name is expected, and nothing else\n", pluginUsage)
		return 2
	}
	o.Name = flags.Arg(0)
	dir, files, err := scaffold.Write(o)
	if err != nil {
		fmt.Fprintf(stderr, "mirror-sidecar plugin new: %v\n", err)
		return 2
	}
	for _, name := range files {
		fmt.Fprintln(stdout, filepath.Join(dir, name))
	}
	return 0
}

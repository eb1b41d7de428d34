package main

import (
	"testing"

	"github.com/spf13/pflag"
)

// TestBrokerFlag: 0 is a broker, and not all of them.
func TestBrokerFlag(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int32 // -1: all
		bad  bool
	}{{nil, -1, false}, {[]string{"--broker", "0"}, 0, false}, {[]string{"--broker=7"}, 7, false}, {[]string{"--broker=-1"}, -1, true}} {
		flags := pflag.NewFlagSet("evict", pflag.ContinueOnError)
		only := brokerFlag(flags)
		if err := flags.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		got, err := only()
		if (err != nil) != c.bad || (got == nil) != (c.want < 0) || got != nil && *got != c.want {
			t.Errorf("%v: %v, %v", c.args, got, err)
		}
	}
}

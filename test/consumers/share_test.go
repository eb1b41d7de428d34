package consumers

import (
	"context"
	"embed"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

//go:embed java
var java embed.FS

// shareConsumer is a running KafkaShareConsumer.
type shareConsumer struct {
	process *harness.Process
	log     string
}

func (e *env) shareConsumer(t *testing.T, group, topic string, count int) *shareConsumer {
	t.Helper()
	in := e.dst.Cluster.Installation()
	source, err := java.ReadFile("java/ShareConsume.java")
	if err != nil {
		t.Fatal(err)
	}
	classes, err := in.Compile(t.Context(), map[string][]byte{"ShareConsume.java": source})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "share.properties")
	text := fmt.Sprintf("bootstrap.servers=%s\ngroup.id=%s\n", strings.Join(e.dst.Proxies(), ","), group)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &shareConsumer{log: filepath.Join(dir, "share.log")}
	c.process, err = in.StartTool(t.Context(), "share consumer of "+topic, harness.ToolRun{
		Class: "ShareConsume", Classes: classes, Args: []string{file, topic, fmt.Sprint(count), fmt.Sprint(2 * patience.Milliseconds())},
	}, c.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.process.Kill()
		if t.Failed() {
			t.Logf("the share consumer of %s:\n%s", topic, c.process.LogTail())
		}
	})
	return c
}

// said gives what it has printed: its records as partition and offset, and its exceptions.
func (c *shareConsumer) said() (records, exceptions []string, err error) {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		switch {
		case len(f) == 3 && f[0] == "R":
			records = append(records, f[1]+" "+f[2])
		case len(f) == 3 && f[0] == "E":
			message, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(f[2], "."))
			if err != nil {
				return nil, nil, err
			}
			exceptions = append(exceptions, f[1]+": "+string(message))
		}
	}
	return records, exceptions, nil
}

// throws returns when it has thrown an exception with these parts in its class and message.
func (c *shareConsumer) throws(t *testing.T, parts ...string) {
	t.Helper()
	harness.AwaitT(t, patience, "an exception with "+strings.Join(parts, ", "), func(context.Context) error {
		_, exceptions, err := c.said()
		if err != nil {
			return err
		}
		for _, x := range exceptions {
			missing := false
			for _, part := range parts {
				missing = missing || !strings.Contains(x, part)
			}
			if !missing {
				t.Logf("a share consumer gets %s", x)
				return nil
			}
		}
		return fmt.Errorf("it has thrown %q", exceptions)
	})
}

// testShare: share groups are told that they cannot read a mirror topic, whether they subscribe to it
// or have done so before, and read it when it is stopped.
func (e *env) testShare(t *testing.T) {
	dst := client(t, e.dst.Proxies())
	adm := kadm.NewClient(dst)
	e.createTopic(t, adm, dst, 1, brokers, shared)
	const before, later = 2, 3
	for _, group := range []string{"share-before", "share-after"} {
		e.earliest(t, dst, group)
	}
	member := e.shareConsumer(t, "share-before", shared, before+later)
	e.assigned(t, dst, "share-before", shared)

	late := e.shareConsumer(t, "share-late", plain, 1)
	late.throws(t, "PolicyViolationException", "--stop --mirror "+mirror+" --topics "+plain)
	if err := late.process.Kill(); err != nil {
		t.Error(err)
	}

	write := func(cl *kgo.Client, n int) {
		for range n {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: shared, Value: []byte("v")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(e.srcClient(t), before)
	e.mirrorTopics(t, shared)
	e.mirrored(t, shared)
	member.throws(t, "TopicAuthorizationException", shared)

	e.cli(t, "--stop", "--wait", "--mirror", mirror, "--topics", shared)
	write(dst, later)
	after := e.shareConsumer(t, "share-after", shared, before+later)
	for name, c := range map[string]*shareConsumer{"who had subscribed before": member, "who comes after the stop": after} {
		harness.AwaitT(t, patience, name+" reads the stopped topic", func(context.Context) error {
			records, exceptions, err := c.said()
			if err == nil && len(records) < before+later {
				err = fmt.Errorf("records %v, exceptions %q", records, exceptions)
			}
			return err
		})
	}
}

// earliest lets a share group begin at the start.
func (e *env) earliest(t *testing.T, cl *kgo.Client, group string) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = "share.auto.offset.reset", kmsg.StringPtr("earliest")
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(t.Context(), cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// assigned returns when a member of a share group has a topic.
func (e *env) assigned(t *testing.T, cl *kgo.Client, group, topic string) {
	t.Helper()
	harness.AwaitT(t, patience, "a member of "+group+" has "+topic, func(ctx context.Context) error {
		req := kmsg.NewPtrShareGroupDescribeRequest()
		req.GroupIDs = []string{group}
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		for _, g := range resp.Groups {
			if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
				return err
			}
			for _, m := range g.Members {
				for _, tp := range m.Assignment.TopicPartitions {
					if tp.Topic == topic {
						return nil
					}
				}
			}
		}
		return fmt.Errorf("no member has it: %+v", resp.Groups)
	})
}

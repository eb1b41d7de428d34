package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/verify"
)

// verify compares the mirror's topics with the source. Partitions that were stopped are
// compared up to where the mirror ended: they may have been written to since.
func (o *options) verify(ctx context.Context, cl *kgo.Client, out io.Writer, p *progress) error {
	mirrors, err := o.fetchMirrors(ctx, cl)
	if err != nil {
		return err
	}
	pick, err := newSelector(o.topics)
	if err != nil {
		return usageError{err}
	}
	m := mirrors[0]
	opts := verify.Options{UpTo: map[verify.TopicPartition]int64{}}
	var topics []string
	for _, t := range m.Topics {
		if !pick.match(t.TopicName) {
			continue
		}
		topics = append(topics, t.TopicName)
		for _, p := range t.Partitions {
			if coordinator.State(p.State) == coordinator.Stopped && p.LastMirrorOffset >= 0 {
				opts.UpTo[verify.TopicPartition{Topic: t.TopicName, Partition: p.PartitionIndex}] = p.LastMirrorOffset
			}
		}
	}
	if len(topics) == 0 {
		if pick.all {
			return fmt.Errorf("mirror %s has no topics to compare", o.mirror)
		}
		return fmt.Errorf("mirror %s has no topic that matches %s", o.mirror, strings.Join(o.topics, ","))
	}
	src, err := o.dialSource(m.SourceBootstrap)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := dial(o.bootstrap, o.commandConfig)
	if err != nil {
		return err
	}
	defer dst.Close()
	last := time.Now()
	opts.Progress = func(at verify.Progress) {
		if time.Since(last) > time.Second {
			last = time.Now()
			p.show(fmt.Sprintf("%s-%d: %d of %d", at.Topic, at.Partition, at.At, at.End))
		}
	}
	report, err := verify.Compare(ctx, src, dst, topics, opts)
	p.end()
	if err != nil && len(report.Partitions) == 0 {
		return err
	}
	if o.json {
		err = errors.Join(err, writeJSON(out, report))
	} else {
		err = errors.Join(err, writeReport(out, report))
	}
	if err == nil && !report.Equal() {
		err = fmt.Errorf("mirror %s differs from the source", o.mirror)
	}
	return err
}

// dialSource connects to the source as the mirror says, or as the command line does.
func (o *options) dialSource(mirrorSays string, more ...kgo.Opt) (*kgo.Client, error) {
	bootstrap := o.sourceBootstrap
	if len(bootstrap) == 0 {
		bootstrap = config.SplitList(mirrorSays)
	}
	if len(bootstrap) == 0 {
		return nil, fmt.Errorf("mirror %s does not tell its source; give --source-bootstrap-server", o.mirror)
	}
	return dial(bootstrap, o.sourceConfig, more...)
}

func writeReport(out io.Writer, report verify.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tPARTITION\tSTART\tEND\tBATCHES\tRECORDS\tRESULT")
	for _, p := range report.Partitions {
		result := "equal"
		switch {
		case p.Error != "":
			result = "not compared: " + p.Error
		case p.Difference != nil:
			result = fmt.Sprintf("DIFFERS at offset %d in %s: source %s, mirror %s", p.Difference.Offset, p.Difference.Field, p.Difference.Source, p.Difference.Mirror)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%s\n", p.Topic, p.Partition, p.Start, p.End, p.Batches, p.Records, result)
	}
	return w.Flush()
}

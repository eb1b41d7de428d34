package readonly

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// A script is what one producer does, a step a line:
//
//	send TOPIC PARTITION VALUE
//	flush, begin, commit, abort
//	touch FILE, await FILE
//	pause MILLISECONDS
//
// What became of the steps is "ok" or the client's error, by the number of the step. That of a
// send is told by the next flush, or not at all if the transaction is aborted before.
type script []string

func (s *script) add(format string, args ...any) int {
	*s = append(*s, fmt.Sprintf(format, args...))
	return len(*s) - 1
}

// producerKind is what is asked of a producer.
type producerKind struct {
	transactionalID string // none: an idempotent producer
	noAcks          bool
}

// player plays a script with one producer of a client library.
type player func(ctx context.Context, seeds []string, kind producerKind, s script) (map[int]string, error)

// told reads what a child process tells.
func told(out string) (map[int]string, error) {
	got := map[int]string{}
	for line := range strings.Lines(out) {
		n, what, ok := strings.Cut(strings.TrimSpace(line), " ")
		step, err := strconv.Atoi(n)
		if !ok || err != nil {
			return got, fmt.Errorf("output %q", line)
		}
		got[step] = what
	}
	return got, nil
}

func playJava(version string) player {
	return func(ctx context.Context, seeds []string, kind producerKind, s script) (map[int]string, error) {
		in, err := harness.Install(ctx, version)
		if err != nil {
			return nil, err
		}
		const source = "ProduceSteps.java"
		text, err := os.ReadFile(filepath.Join("testdata", source))
		if err != nil {
			return nil, err
		}
		classes, err := in.Compile(ctx, map[string][]byte{source: text})
		if err != nil {
			return nil, err
		}
		props := "bootstrap.servers=" + strings.Join(seeds, ",") + "\nlinger.ms=100\nmax.block.ms=60000\n"
		if kind.transactionalID != "" {
			props += "transactional.id=" + kind.transactionalID + "\n"
		}
		if kind.noAcks {
			props += "acks=0\nenable.idempotence=false\n"
		}
		dir, err := os.MkdirTemp("", "readonly-java-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		file := filepath.Join(dir, "producer.properties")
		if err := os.WriteFile(file, []byte(props), 0o600); err != nil {
			return nil, err
		}
		res, err := in.Tool(ctx, harness.ToolRun{
			Class: strings.TrimSuffix(source, ".java"), Args: []string{file}, Classes: classes, Stdin: strings.NewReader(strings.Join(s, "\n")),
		})
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, res.Stderr)
		}
		return told(res.Stdout)
	}
}

func playLibrdkafka(python string) player {
	return func(ctx context.Context, seeds []string, kind producerKind, s script) (map[int]string, error) {
		conf := map[string]any{"bootstrap.servers": strings.Join(seeds, ","), "linger.ms": 100, "enable.idempotence": true}
		if kind.transactionalID != "" {
			conf["transactional.id"] = kind.transactionalID
		}
		if kind.noAcks {
			conf["enable.idempotence"], conf["acks"] = false, 0
		}
		arg, err := json.Marshal(conf)
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, python, filepath.Join("testdata", "produce_steps.py"), string(arg))
		cmd.Stdin = strings.NewReader(strings.Join(s, "\n"))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		got, bad := told(string(out))
		if err != nil {
			return got, fmt.Errorf("%w\n%s", err, stderr.String())
		}
		return got, bad
	}
}

// library is a client library that runs in this process.
type library interface {
	send(step int, topic string, partition int32, value string)
	flush(ctx context.Context) map[int]error
	begin() error
	end(ctx context.Context, commit bool) error
	close()
}

func playGo(open func(seeds []string, kind producerKind) (library, error)) player {
	return func(ctx context.Context, seeds []string, kind producerKind, s script) (map[int]string, error) {
		lib, err := open(seeds, kind)
		if err != nil {
			return nil, err
		}
		defer lib.close()
		got := map[int]string{}
		tell := func(step int, err error) {
			if got[step] = "ok"; err != nil {
				got[step] = err.Error()
			}
		}
		for n, line := range s {
			var err error
			switch f := strings.Fields(line); f[0] {
			case "send":
				p, _ := strconv.Atoi(f[2])
				lib.send(n, f[1], int32(p), f[3])
				continue
			case "flush":
				for step, err := range lib.flush(ctx) {
					tell(step, err)
				}
			case "begin":
				err = lib.begin()
			case "commit", "abort":
				err = lib.end(ctx, f[0] == "commit")
			case "touch":
				err = os.WriteFile(f[1], nil, 0o600)
			case "pause":
				ms, _ := strconv.Atoi(f[1])
				time.Sleep(time.Duration(ms) * time.Millisecond)
			case "await":
				err = harness.Await(ctx, 2*time.Minute, func(context.Context) error {
					_, err := os.Stat(f[1])
					return err
				})
			}
			tell(n, err)
		}
		return got, nil
	}
}

type franz struct {
	cl   *kgo.Client
	done chan franzDone
	sent int
}

type franzDone struct {
	step int
	err  error
}

func openFranz(seeds []string, kind producerKind) (library, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(100 * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.DisableClientMetrics(),
	}
	if kind.transactionalID != "" {
		opts = append(opts, kgo.TransactionalID(kind.transactionalID))
	}
	if kind.noAcks {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.NoAck()))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	return &franz{cl: cl, done: make(chan franzDone, 10000)}, nil
}

func (f *franz) send(step int, topic string, partition int32, value string) {
	f.sent++
	f.cl.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}, func(_ *kgo.Record, err error) {
		f.done <- franzDone{step, err}
	})
}

func (f *franz) flush(ctx context.Context) map[int]error {
	out := map[int]error{}
	if err := f.cl.Flush(ctx); err != nil {
		out[-1] = err
		return out
	}
	for ; f.sent > 0; f.sent-- {
		d := <-f.done
		out[d.step] = d.err
	}
	return out
}

func (f *franz) begin() error { return f.cl.BeginTransaction() }

func (f *franz) end(ctx context.Context, commit bool) error {
	if !commit {
		if err := f.cl.AbortBufferedRecords(ctx); err != nil {
			return err
		}
		for ; f.sent > 0; f.sent-- {
			<-f.done
		}
	}
	return f.cl.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}

func (f *franz) close() { f.cl.Close() }

type shopify struct {
	p    sarama.SyncProducer
	sent []*sarama.ProducerMessage
}

func openSarama(seeds []string, kind producerKind) (library, error) {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V3_6_0_0
	cfg.Producer.Return.Successes, cfg.Producer.Return.Errors = true, true
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1
	cfg.Producer.Flush.Frequency = 100 * time.Millisecond
	cfg.Metadata.RefreshFrequency = 5 * time.Second
	// It counts how often it waits for what is just being moved, or ended. In a transaction it also tries what was
	// not attempted beside a refused partition as often.
	cfg.Producer.Retry.Max, cfg.Producer.Transaction.Retry.Max = 100, 500
	if kind.transactionalID != "" {
		cfg.Producer.Retry.Max = 10
	}
	if cfg.Producer.Transaction.ID = kind.transactionalID; kind.noAcks {
		cfg.Producer.Idempotent, cfg.Producer.RequiredAcks = false, sarama.NoResponse
	}
	p, err := sarama.NewSyncProducer(seeds, cfg)
	return &shopify{p: p}, err
}

func (s *shopify) send(step int, topic string, partition int32, value string) {
	s.sent = append(s.sent, &sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.StringEncoder(value), Metadata: step})
}

func (s *shopify) flush(context.Context) map[int]error {
	out := map[int]error{}
	for _, m := range s.sent {
		out[m.Metadata.(int)] = nil
	}
	err := s.p.SendMessages(s.sent)
	var failed sarama.ProducerErrors
	if errors.As(err, &failed) {
		for _, f := range failed {
			out[f.Msg.Metadata.(int)] = f.Err
		}
	} else if err != nil {
		out[-1] = err
	}
	s.sent = nil
	return out
}

func (s *shopify) begin() error { return s.p.BeginTxn() }

func (s *shopify) end(_ context.Context, commit bool) error {
	s.sent = nil // not handed over yet
	if commit {
		return s.p.CommitTxn()
	}
	return s.p.AbortTxn()
}

func (s *shopify) close() { _ = s.p.Close() }

package harness

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// The two programs are thin: Kafka's own Java consumer and producer, with their
// results printed in a form that keeps every byte and every exception, which the
// console tools do not. The other classes are plugins, see
// [Installation.NoTier] and Config.ForbidConfigs.
//
//go:embed java/*.java
var javaSources embed.FS

// JavaHeader is a record's header; a nil Value is null.
type JavaHeader struct {
	Key   string
	Value []byte
}

// JavaRecord is a record as Kafka's Java clients see it; nil Key or Value are null.
type JavaRecord struct {
	Partition     int32 // for Produce, -1 lets the producer choose
	Offset        int64
	LeaderEpoch   int32 // -1: not known
	Timestamp     int64 // for Produce, 0 means now
	TimestampType string
	Key, Value    []byte
	Headers       []JavaHeader
}

// JavaConsume says what a Java consumer group reads.
type JavaConsume struct {
	Bootstrap     []string
	Group, Topic  string
	ReadCommitted bool
	// Count ends the reading after so many records; 0: at the end of every
	// partition (with ReadCommitted, at the first open transaction).
	Count int
	// Idle ends it when nothing arrived for so long: with a Count what was read
	// is the result, else that is an error. 15 seconds when 0.
	Idle time.Duration
	// Properties are added to the consumer's. auto.offset.reset is none: the
	// group begins at its committed offsets, or at the start where it has none,
	// and then a lost position is an error and not a silent jump.
	Properties map[string]string
}

// Consume reads a topic with Kafka's Java consumer as a member of a group,
// commits what it read, and leaves. Records come in the order of their arrival.
func (in *Installation) Consume(ctx context.Context, c JavaConsume) ([]JavaRecord, error) {
	if c.Idle == 0 {
		c.Idle = 15 * time.Second
	}
	props := map[string]string{
		"bootstrap.servers":  strings.Join(c.Bootstrap, ","),
		"group.id":           c.Group,
		"client.id":          "harness-consumer",
		"auto.offset.reset":  "none",
		"enable.auto.commit": "false",
		"isolation.level":    "read_uncommitted",
	}
	if c.ReadCommitted {
		props["isolation.level"] = "read_committed"
	}
	maps.Copy(props, c.Properties)
	res, err := in.runProgram(ctx, "Consume", props, nil,
		c.Topic, strconv.Itoa(c.Count), strconv.FormatInt(c.Idle.Milliseconds(), 10))
	if err != nil {
		return nil, fmt.Errorf("consume %s as group %s: %w", c.Topic, c.Group, err)
	}
	var records []JavaRecord
	for line := range strings.Lines(res.Stdout) {
		r, err := parseRecord(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("consume %s as group %s: output %q: %w", c.Topic, c.Group, line, err)
		}
		records = append(records, r)
	}
	return records, nil
}

func parseRecord(line string) (JavaRecord, error) {
	f := strings.Split(line, " ")
	if len(f) < 8 || f[0] != "R" {
		return JavaRecord{}, errors.New("is no record")
	}
	var n [4]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(f[i+1], 10, 64); err != nil {
			return JavaRecord{}, err
		}
	}
	r := JavaRecord{Partition: int32(n[0]), Offset: n[1], LeaderEpoch: int32(n[2]), Timestamp: n[3], TimestampType: f[5]}
	var err error
	if r.Key, err = fromText(f[6]); err != nil {
		return r, err
	}
	if r.Value, err = fromText(f[7]); err != nil {
		return r, err
	}
	for _, h := range f[8:] {
		key, value, found := strings.Cut(h, "=")
		if !found {
			return r, fmt.Errorf("%q is no header", h)
		}
		k, err := fromText(key)
		if err != nil {
			return r, err
		}
		v, err := fromText(value)
		if err != nil {
			return r, err
		}
		r.Headers = append(r.Headers, JavaHeader{string(k), v})
	}
	return r, nil
}

// toText and fromText write bytes as a dot and base64, and null as a dash.
func toText(b []byte) string {
	if b == nil {
		return "-"
	}
	return "." + base64.RawURLEncoding.EncodeToString(b)
}

func fromText(s string) ([]byte, error) {
	if s == "-" {
		return nil, nil
	}
	if !strings.HasPrefix(s, ".") {
		return nil, fmt.Errorf("%q are no bytes", s)
	}
	b, err := base64.RawURLEncoding.DecodeString(s[1:])
	if err != nil {
		return nil, fmt.Errorf("%q are no bytes: %w", s, err)
	}
	return b, nil
}

// JavaProduce says what a Java producer writes.
type JavaProduce struct {
	Bootstrap  []string
	Topic      string
	Records    []JavaRecord
	Properties map[string]string // such as acks, delivery.timeout.ms, compression.type
	// TransactionalID makes it one transaction, ended by commit or, with Abort, by abort.
	TransactionalID string
	Abort           bool
}

// JavaException is an exception that a Java client gave.
type JavaException struct {
	Class   string // such as org.apache.kafka.common.errors.PolicyViolationException
	Message string
}

func (e *JavaException) Error() string { return e.Class + ": " + e.Message }

// JavaProduced is what became of one record.
type JavaProduced struct {
	Partition int32
	Offset    int64 // -1 with acks=0
	Timestamp int64
	Err       error // a *JavaException
}

// Produce writes records with Kafka's Java producer. Each record has its own
// result; an error is what stopped the whole, a *JavaException if the
// transaction failed.
func (in *Installation) Produce(ctx context.Context, p JavaProduce) ([]JavaProduced, error) {
	fail := func(err error) ([]JavaProduced, error) {
		return nil, fmt.Errorf("produce to %s: %w", p.Topic, err)
	}
	props := map[string]string{"bootstrap.servers": strings.Join(p.Bootstrap, ","), "client.id": "harness-producer"}
	end := "none"
	if p.TransactionalID != "" {
		props["transactional.id"] = p.TransactionalID
		end = "commit"
		if p.Abort {
			end = "abort"
		}
	}
	maps.Copy(props, p.Properties)
	var stdin bytes.Buffer
	for _, r := range p.Records {
		ts := r.Timestamp
		if ts == 0 {
			ts = -1
		}
		fmt.Fprintf(&stdin, "%d %d %s %s", r.Partition, ts, toText(r.Key), toText(r.Value))
		for _, h := range r.Headers {
			fmt.Fprintf(&stdin, " %s=%s", toText([]byte(h.Key)), toText(h.Value))
		}
		stdin.WriteByte('\n')
	}
	res, err := in.runProgram(ctx, "Produce", props, &stdin, p.Topic, end)
	if err != nil {
		return fail(err)
	}
	produced, err := parseProduced(res.Stdout)
	if err != nil {
		return produced, fmt.Errorf("produce to %s: %w", p.Topic, err)
	}
	if len(produced) != len(p.Records) {
		return fail(fmt.Errorf("%d results for %d records", len(produced), len(p.Records)))
	}
	return produced, nil
}

func parseProduced(text string) ([]JavaProduced, error) {
	var out []JavaProduced
	var transaction error
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		f := strings.Split(lines.Text(), " ")
		switch {
		case f[0] == "R" && len(f) == 4:
			var n [3]int64
			for i := range n {
				var err error
				if n[i], err = strconv.ParseInt(f[i+1], 10, 64); err != nil {
					return out, fmt.Errorf("output %q: %w", lines.Text(), err)
				}
			}
			out = append(out, JavaProduced{Partition: int32(n[0]), Offset: n[1], Timestamp: n[2]})
		case (f[0] == "E" || f[0] == "T") && len(f) == 3:
			message, err := fromText(f[2])
			if err != nil {
				return out, fmt.Errorf("output %q: %w", lines.Text(), err)
			}
			e := &JavaException{Class: f[1], Message: string(message)}
			if f[0] == "T" {
				transaction = e
				continue
			}
			out = append(out, JavaProduced{Partition: -1, Offset: -1, Timestamp: -1, Err: e})
		default:
			return out, fmt.Errorf("output %q is no result", lines.Text())
		}
	}
	return out, errors.Join(lines.Err(), transaction)
}

// runProgram runs one of the embedded programs with a properties file as its
// first argument.
func (in *Installation) runProgram(ctx context.Context, name string, props map[string]string, stdin *bytes.Buffer, args ...string) (ToolResult, error) {
	classes, err := in.compile(ctx)
	if err != nil {
		return ToolResult{ExitCode: -1}, err
	}
	dir, err := os.MkdirTemp("", "harness-java-")
	if err != nil {
		return ToolResult{ExitCode: -1}, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "client.properties")
	if err := os.WriteFile(file, []byte(propertiesText(props)), 0o600); err != nil {
		return ToolResult{ExitCode: -1}, err
	}
	run := ToolRun{Class: name, Args: append([]string{file}, args...), Classes: classes}
	if stdin != nil {
		run.Stdin = stdin
	}
	return in.Tool(ctx, run)
}

// NoTier gives broker properties that switch tiered storage on with a tier that holds
// nothing, so that topics may ask for it. client are the properties with which brokers
// reach themselves at the INTERNAL listener.
func (in *Installation) NoTier(ctx context.Context, client map[string]string) (map[string]string, error) {
	classes, err := in.compile(ctx)
	if err != nil {
		return nil, err
	}
	p := map[string]string{
		"remote.log.storage.system.enable":                                 "true",
		"remote.log.storage.manager.class.name":                            "NoTier",
		"remote.log.storage.manager.class.path":                            classes,
		"remote.log.metadata.manager.listener.name":                        ListenerInternal,
		"rlmm.config.remote.log.metadata.topic.replication.factor":         "1",
		"rlmm.config.remote.log.metadata.topic.num.partitions":             "1",
		"rlmm.config.remote.log.metadata.initialization.retry.interval.ms": "500",
	}
	for k, v := range client {
		p["rlmm.config.remote.log.metadata.common.client."+k] = v
	}
	return p, nil
}

// compile makes classes of the embedded programs.
func (in *Installation) compile(ctx context.Context) (classes string, err error) {
	files, err := javaSources.ReadDir("java")
	if err != nil {
		return "", err
	}
	texts := map[string][]byte{}
	for _, f := range files {
		if texts[f.Name()], err = javaSources.ReadFile("java/" + f.Name()); err != nil {
			return "", err
		}
	}
	return in.Compile(ctx, texts)
}

// Compile makes classes of Java sources, which are given by file name, once per version of them
// and of Kafka, in the cache folder.
func (in *Installation) Compile(ctx context.Context, texts map[string][]byte) (classes string, err error) {
	sum := sha256.New()
	for _, name := range sortedKeys(texts) {
		fmt.Fprintf(sum, "%s %d\n%s", name, len(texts[name]), texts[name])
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	classes = filepath.Join(cache, fmt.Sprintf("classes-%s-%s", in.Version, hex.EncodeToString(sum.Sum(nil)[:6])))
	marker := filepath.Join(classes, completeMarker)
	if _, err := os.Stat(marker); err == nil {
		return classes, nil
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(marker); err == nil {
		return classes, nil
	}
	if err := os.RemoveAll(classes); err != nil {
		return "", err
	}
	if err := os.MkdirAll(classes, 0o755); err != nil {
		return "", err
	}
	args := []string{"-cp", in.Classpath(), "-d", classes}
	for _, name := range sortedKeys(texts) {
		file := filepath.Join(classes, name)
		if err := os.WriteFile(file, texts[name], 0o644); err != nil {
			return "", err
		}
		args = append(args, file)
	}
	javac, err := javacBinary()
	if err != nil {
		return "", err
	}
	if out, err := runChild(ctx, "", javac, args...); err != nil {
		return "", fmt.Errorf("compile the Java clients: %w\n%s", err, out)
	}
	return classes, os.WriteFile(marker, nil, 0o644)
}

// javacBinary finds the compiler beside java, else on the PATH.
func javacBinary() (string, error) {
	java, err := javaBinary()
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(java); err == nil {
		javac := filepath.Join(filepath.Dir(real), "javac")
		if _, err := os.Stat(javac); err == nil {
			return javac, nil
		}
	}
	javac, err := exec.LookPath("javac")
	if err != nil {
		return "", fmt.Errorf("javac is needed (a JDK, not a JRE): %w", err)
	}
	return javac, nil
}

// runChild runs a program to its end and gives all its output.
func runChild(ctx context.Context, dir, name string, args ...string) (string, error) {
	runtime.LockOSThread() // see childAttr
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = childAttr(false)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

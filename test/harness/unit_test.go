package harness

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What DumpLogSegments of 4.4.0 printed for real logs; the line with a delete
// horizon and append time is put together from two.
const dumpSample = `Dumping c/data1/t-0/00000000000000000000.log
Log starting offset: 0
baseOffset: 0 lastOffset: 0 count: 1 baseSequence: 0 lastSequence: 0 producerId: 0 producerEpoch: 0 partitionLeaderEpoch: 0 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1796025822206 size: 72 magic: 2 compresscodec: none crc: 2127351303 isvalid: true
baseOffset: 3 lastOffset: 3 count: 1 baseSequence: -1 lastSequence: -1 producerId: 0 producerEpoch: 1 partitionLeaderEpoch: 0 isTransactional: true isControl: true deleteHorizonMs: OptionalLong[1796025823000] position: 216 LogAppendTime: 1796025822297 size: 78 magic: 2 compresscodec: zstd crc: 4167591025 isvalid: false
Found 52 invalid bytes at the end of 00000000000000000000.log
Dumping c/data1/t-0/00000000004294967297.log
Log starting offset: 4294967297
baseOffset: 4294967297 lastOffset: 4294967297 count: 1 baseSequence: 1 lastSequence: 1 producerId: 0 producerEpoch: 0 partitionLeaderEpoch: 0 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 72 CreateTime: 1796025822255 size: 72 magic: 2 compresscodec: none crc: 2411612954 isvalid: true
`

func TestParseDump(t *testing.T) {
	got, trailing, err := parseDump(dumpSample)
	if err != nil {
		t.Fatal(err)
	}
	want := []Batch{
		{
			Count: 1, Transactional: true, DeleteHorizon: -1, MaxTimestamp: 1796025822206, Size: 72, Magic: 2, Codec: "none",
			CRC: 2127351303, Valid: true, Segment: "00000000000000000000.log",
		},
		{
			BaseOffset: 3, LastOffset: 3, Count: 1, BaseSequence: -1, LastSequence: -1, ProducerEpoch: 1, Transactional: true, Control: true,
			DeleteHorizon: 1796025823000, LogAppendTime: true, MaxTimestamp: 1796025822297, Size: 78, Magic: 2, Codec: "zstd",
			CRC: 4167591025, Segment: "00000000000000000000.log", Position: 216,
		},
		{
			BaseOffset: 4294967297, LastOffset: 4294967297, Count: 1, BaseSequence: 1, LastSequence: 1, Transactional: true, DeleteHorizon: -1,
			MaxTimestamp: 1796025822255, Size: 72, Magic: 2, Codec: "none", CRC: 2411612954, Valid: true,
			Segment: "00000000004294967297.log", Position: 72,
		},
	}
	if !reflect.DeepEqual(got, want) || trailing != 52 {
		t.Errorf("got %d trailing bytes and %+v", trailing, got)
	}
}

func TestParseDumpErrors(t *testing.T) {
	good := strings.Split(dumpSample, "\n")[2]
	for name, line := range map[string]string{
		"no number":     strings.Replace(good, "lastOffset: 0", "lastOffset: x", 1),
		"missing field": strings.Replace(good, "isvalid: true", "", 1),
		"missing codec": strings.Replace(good, "compresscodec: none", "", 1),
		"over the top":  strings.Replace(good, "producerEpoch: 0", "producerEpoch: 40000", 1),
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := parseDump(line); err == nil {
				t.Error("no error")
			}
		})
	}
}

// testBatch makes a batch whose records are not looked at.
func testBatch(base int64, delta int32, attributes int16, body string) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(base))
	b = binary.BigEndian.AppendUint32(b, uint32(batchHeaderSize-batchOverhead+len(body)))
	b = binary.BigEndian.AppendUint32(b, 7) // leader epoch
	b = append(b, 2, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(attributes))
	b = binary.BigEndian.AppendUint32(b, uint32(delta))
	b = binary.BigEndian.AppendUint64(b, 1000)
	b = binary.BigEndian.AppendUint64(b, 2000)
	b = binary.BigEndian.AppendUint64(b, 42)
	b = binary.BigEndian.AppendUint16(b, 3)
	b = binary.BigEndian.AppendUint32(b, 0x7fffffff)
	b = binary.BigEndian.AppendUint32(b, uint32(delta+1))
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[batchCRCFrom-4:], crc32.Checksum(b[batchCRCFrom:], castagnoli))
	return b
}

func TestScanBatches(t *testing.T) {
	one, two := testBatch(5, 1, 0x10|4, "body"), testBatch(9, 0, 0x20|0x40|0x08, "")
	data := append(append([]byte{}, one...), two...)
	for _, tt := range []struct {
		name    string
		data    []byte
		batches int
		rest    int
	}{
		{"whole", data, 2, 0},
		{"empty", nil, 0, 0},
		{"torn body", data[:len(one)-1], 0, len(one) - 1},
		{"torn header", data[:len(one)+20], 1, 20},
		{"zeros", append(append([]byte{}, data...), make([]byte, 100)...), 2, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, rest := scanBatches(tt.data)
			if len(got) != tt.batches || rest != tt.rest {
				t.Errorf("got %d batches and %d bytes", len(got), rest)
			}
		})
	}
	got, _ := scanBatches(data)
	got[0].Sum, got[1].Sum = [32]byte{}, [32]byte{}
	want := Batch{
		BaseOffset: 5, LastOffset: 6, Count: 2, BaseSequence: 0x7fffffff, LastSequence: 0, ProducerID: 42, ProducerEpoch: 3,
		LeaderEpoch: 7, Transactional: true, DeleteHorizon: -1, MaxTimestamp: 2000, Size: int32(len(one)), Magic: 2, Codec: "zstd",
		CRC: binary.BigEndian.Uint32(one[17:]), Valid: true,
	}
	if got[0] != want {
		t.Errorf("got  %+v\nwant %+v", got[0], want)
	}
	if b := got[1]; !b.Control || !b.LogAppendTime || b.DeleteHorizon != 1000 || b.Position != int64(len(one)) {
		t.Errorf("got %+v", b)
	}
	data[len(one)-1] ^= 1
	if got, _ := scanBatches(data); got[0].Valid || !got[1].Valid {
		t.Error("a flipped bit did not show")
	}
}

func TestCompare(t *testing.T) {
	read := func(node int32, parts ...[]byte) Log {
		var data []byte
		for _, p := range parts {
			data = append(data, p...)
		}
		l := Log{Node: node, Topic: "t"}
		l.Batches, _ = scanBatches(data)
		return l
	}
	a, b, c := testBatch(0, 0, 0, "a"), testBatch(1, 0, 0, "b"), testBatch(2, 0, 0, "c")
	epoch := append([]byte{}, b...)
	epoch[15]++
	bad := append([]byte{}, b...)
	bad[len(bad)-1]++
	for _, tt := range []struct {
		name   string
		how    Compare
		x, y   Log
		offset int64 // of the difference; -1: none
		what   string
	}{
		{"same", Compare{}, read(1, a, b, c), read(2, a, b, c), -1, ""},
		{"empty", Compare{}, read(1), read(2), -1, ""},
		{"shorter", Compare{}, read(1, a, b, c), read(2, a, b), 2, "only node 1"},
		{"longer", Compare{}, read(1, a), read(2, a, b, c), 1, "only node 2"},
		{"shorter, up to", Compare{UpTo: 2}, read(1, a, b, c), read(2, a, b), -1, ""},
		{"start", Compare{}, read(1, a, b), read(2, b), 0, "base offset"},
		{"start, common", Compare{CommonStart: true}, read(1, a, b), read(2, b), -1, ""},
		{"from", Compare{From: 1}, read(1, a, b), read(2, b), -1, ""},
		{"epoch", Compare{}, read(1, a, b), read(2, a, epoch), 1, "leader epoch is 7 and 8"},
		{"bytes", Compare{}, read(1, a, b), read(2, a, bad), 1, "validity"},
		{"both bad", Compare{}, read(1, a, bad), read(2, a, bad), 1, "CRC"},
		{"hole", Compare{}, read(1, a, b, c), read(2, a, c), 1, "base offset is 1 and 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := tt.how.Diff(tt.x, tt.y)
			switch {
			case d == nil && tt.offset != -1:
				t.Error("no difference found")
			case d != nil && (d.Offset != tt.offset || !strings.Contains(d.String(), tt.what)):
				t.Errorf("got %s", d)
			}
		})
	}
}

func TestProperties(t *testing.T) {
	cfg, err := Config{
		Brokers: 2, Controllers: 1, ReplicaLagTimeMax: 3 * time.Second,
		Properties:     map[string]string{"num.io.threads": "9", "x": "all"},
		NodeProperties: func(id int32) map[string]string { return map[string]string{"x": fmt.Sprint("only ", id)} },
		Advertise:      func(id int32) string { return fmt.Sprintf("proxy:%d", 9000+id) },
	}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := cfg.plan("/d")
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 3 || nodes[0].role != RoleBroker || nodes[2].role != RoleController || nodes[2].id != 101 {
		t.Fatalf("planned %+v", nodes)
	}
	p := cfg.properties(nodes[1], voters(nodes))
	for key, want := range map[string]string{
		"node.id": "2", "num.io.threads": "9", "x": "only 2", "replica.lag.time.max.ms": "3000",
		"controller.quorum.voters":         "101@" + nodes[2].addr(ListenerController),
		"listeners":                        "CLIENT://" + nodes[1].addr(ListenerClient) + ",INTERNAL://" + nodes[1].addr(ListenerInternal),
		"advertised.listeners":             "CLIENT://proxy:9002,INTERNAL://" + nodes[1].addr(ListenerInternal),
		"offsets.topic.replication.factor": "2",
		"log.dirs":                         filepath.FromSlash("/d/node-2/data"),
	} {
		if p[key] != want {
			t.Errorf("%s is %q, want %q", key, p[key], want)
		}
	}
	if c := cfg.properties(nodes[2], voters(nodes)); c["process.roles"] != "controller" || c["advertised.listeners"] != "" {
		t.Errorf("controller has %v", c)
	}
	for _, bad := range []Config{{}, {Brokers: 1, Controllers: -1}, {Brokers: 1000}} {
		if _, err := bad.withDefaults(); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestPropertiesText(t *testing.T) {
	got := propertiesText(map[string]string{"b": " lead\\ing\nü😀", "a": "x = y #z"})
	if want := "a=x = y #z\nb=\\ lead\\\\ing\\n\\u00fc\\ud83d\\ude00\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJavaText(t *testing.T) {
	for _, line := range []string{"", "R 0 0", "X 0 0 0 0 CreateTime - -", "R a 0 0 0 CreateTime - -", "R 0 0 0 0 CreateTime x -", "R 0 0 0 0 CreateTime - - .YQ", "R 0 0 0 0 CreateTime - .*"} {
		if r, err := parseRecord(line); err == nil {
			t.Errorf("%q gave %+v", line, r)
		}
	}
	got, err := parseRecord("R 3 77 5 1000 LogAppendTime - . .YQ=- .Yg=.AP8")
	want := JavaRecord{
		Partition: 3, Offset: 77, LeaderEpoch: 5, Timestamp: 1000, TimestampType: "LogAppendTime", Value: []byte{},
		Headers: []JavaHeader{{"a", nil}, {"b", []byte{0, 255}}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	produced, err := parseProduced("R 0 5 9\nE a.B .bm8\nT c.D .\n")
	var e *JavaException
	if !errors.As(err, &e) || *e != (JavaException{"c.D", ""}) || len(produced) != 2 || produced[1].Err.Error() != "a.B: no" {
		t.Errorf("got %+v, %v", produced, err)
	}
	if _, err := parseProduced("what\n"); err == nil {
		t.Error("nonsense was taken")
	}
}

func TestKafkaHome(t *testing.T) {
	t.Setenv(EnvCache, t.TempDir())
	home := t.TempDir()
	libs := filepath.Join(home, "libs")
	if err := os.Mkdir(libs, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvKafkaHome, home)
	if _, err := Install(t.Context(), "9.9.9"); err == nil {
		t.Error("an empty folder was taken for an installation")
	}
	if err := os.WriteFile(filepath.Join(libs, "kafka-clients-9.9.9.jar"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"9.9.9", VersionHome} {
		in, err := Install(t.Context(), version)
		if err != nil || in.Version != "9.9.9" || in.Libs != libs {
			t.Errorf("%s: got %+v, %v", version, in, err)
		}
	}
	t.Setenv(EnvKafkaHome, "")
	if _, err := Install(t.Context(), VersionHome); err == nil {
		t.Error("no error without KAFKA_HOME")
	}
	if _, err := Install(t.Context(), "../x"); err == nil {
		t.Error("a path was taken for a version")
	}
}

func TestLockFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lockFile(ctx, name); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	unlock()
	unlock, err = lockFile(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestProcess(t *testing.T) {
	start := func(t *testing.T, script string) *Process {
		t.Helper()
		return StartProcessT(t, "script", []string{"sh", "-c", script}, []string{"WORD=hello"}, filepath.Join(t.TempDir(), "log"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	t.Run("output and code", func(t *testing.T) {
		p := start(t, `echo "$WORD"; exit 3`)
		if code, err := p.Wait(ctx); code != 3 || err != nil || p.LogTail() != "hello\n" {
			t.Errorf("code %d, %v, log %q", code, err, p.LogTail())
		}
		if p.Running() || p.Pause() == nil || p.Kill() != nil || p.Stop(ctx) != nil {
			t.Error("an ended process: pausing is an error, ending is not")
		}
	})
	t.Run("stop", func(t *testing.T) {
		if err := start(t, "sleep 600").Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Run("stop of a deaf one", func(t *testing.T) {
		p := start(t, `trap "" TERM; echo ready; while :; do sleep 0.05; done`)
		for !strings.Contains(p.LogTail(), "ready") {
			runtime.Gosched()
		}
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := p.Stop(short); !errors.Is(err, context.DeadlineExceeded) || p.Running() {
			t.Errorf("got %v, running %v", err, p.Running())
		}
	})
	t.Run("pause", func(t *testing.T) {
		p := start(t, "sleep 600")
		if err := p.Pause(); err != nil || !p.Paused() || !p.Running() {
			t.Errorf("%v", err)
		}
		if err := p.Resume(); err != nil || p.Paused() {
			t.Errorf("%v", err)
		}
		if err := errors.Join(p.Pause(), p.Stop(ctx)); err != nil {
			t.Errorf("stop of a paused one: %v", err)
		}
	})
	t.Run("no such program", func(t *testing.T) {
		if _, err := StartProcess(ctx, "none", []string{"/no/such/program"}, nil, filepath.Join(t.TempDir(), "log")); err == nil {
			t.Error("no error")
		}
	})
}

// envOrphanTest makes the test binary start a child and wait to be killed.
const envOrphanTest = "HARNESS_ORPHAN_TEST"

func orphanParent() {
	p, err := StartProcess(context.Background(), "child", []string{"sleep", "600"}, nil, os.DevNull)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	<-p.Done()
	os.Exit(0)
}

// A killed test must not leave brokers behind.
func TestChildDiesWithParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties a child to its parent")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envOrphanTest+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	killed := cmd.Process.Kill()
	_ = cmd.Wait()
	if err := errors.Join(err, killed); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for alive(pid) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("the child %d outlived its parent", pid)
		}
		<-tick.C
	}
}

// alive tells whether a process runs; a zombie, left for init to reap, does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

func openT(t *testing.T, path string) *dataDir {
	t.Helper()
	d, err := openDataDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.lock.Close() })
	return d
}

// A folder is one process's at a time; whose it is can be read; who waits for it gets it.
func TestDataDirIsOfOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	first := openT(t, path)
	if !first.locked || first.succeeded() {
		t.Fatalf("locked %v, succeeded %v", first.locked, first.succeeded())
	}
	second := openT(t, path)
	if second.locked || second.holder() != processName() {
		t.Fatalf("locked %v, held by %q", second.locked, second.holder())
	}
	// The holder is this process, which asks itself for nothing: the folder is given up here.
	done := make(chan error, 1)
	var log bytes.Buffer
	go func() { done <- second.takeOver(t.Context(), slog.New(slog.NewTextHandler(&log, nil))) }()
	for !first.succeeded() {
		if t.Context().Err() != nil {
			t.Fatal("nobody waits")
		}
	}
	first.lock.Close()
	if err := <-done; err != nil || !second.locked {
		t.Fatalf("%v, locked %v:\n%s", err, second.locked, log.String())
	}
	if second.succeeded() {
		t.Error("the one that took over is said to be succeeded")
	}
	third := openT(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := third.takeOver(ctx, slog.New(slog.DiscardHandler)); err == nil || third.locked {
		t.Errorf("after the end: %v", err)
	}
	if second.succeeded() {
		t.Error("the one that gave up is said to succeed")
	}
}

// A process that died while it waited for the folder has its name there, and takes over nothing.
func TestDeadSuccessor(t *testing.T) {
	d := openT(t, t.TempDir())
	gone := exec.Command(os.Args[0], "-test.run=^$")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	name := func(pid int, space string) []byte { return []byte(strconv.Itoa(pid) + " " + space) }
	for what, tc := range map[string]struct {
		name []byte
		want bool
	}{
		"one that lives":           {[]byte(processName()), true},
		"one that is dead":         {name(gone.Process.Pid, processSpace()), false},
		"one of another container": {name(gone.Process.Pid, "pid:[1]"), true},
		"half a name":              {[]byte("1"), false},
	} {
		if err := os.WriteFile(filepath.Join(d.path, successorFile), tc.name, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := d.succeeded(); got != tc.want {
			t.Errorf("%s: succeeded %v", what, got)
		}
	}
}

// A process that takes over listens beside the former one; nobody else does.
func TestListenBeside(t *testing.T) {
	path := t.TempDir()
	first := openT(t, path)
	ln, err := first.listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	addr := ln.Addr().String()
	beside, err := openT(t, path).listen(t.Context(), addr)
	if err != nil {
		t.Fatalf("a process that takes over: %v", err)
	}
	beside.Close()
	if other, err := openT(t, t.TempDir()).listen(t.Context(), addr); err == nil {
		other.Close()
		t.Error("another sidecar listens at the same address")
	}
	var none *dataDir
	if other, err := none.listen(t.Context(), addr); err == nil {
		other.Close()
		t.Error("a sidecar without data.dir listens at the same address")
	}
}

// What one process saves the next one begins with, if it is of the same broker.
func TestSaved(t *testing.T) {
	const virtual = ids.Virtual(10000)
	img := metadata.NewImage(virtual)
	at := func(topic string, id byte, replicas ...int32) *metadata.Partition {
		return &metadata.Partition{Topic: topic, TopicID: ids.UUID{id}, Replicas: replicas, ISR: replicas, Leader: replicas[0], LeaderEpoch: 3}
	}
	// Of "half" one partition has been handed back, and the topic is not stopped yet.
	back := at("half", 4, 1)
	back.Partition = 1
	img.Set([]*metadata.Partition{at("m", 1, 10001, 1), at("o", 2, 1), at("h", 3, 1), at("half", 4, 10001, 1), back}, []metadata.Broker{{ID: 1}}, nil)
	home, _ := img.Broker(1)
	d := openT(t, t.TempDir())
	held := anyOf(func(tp ids.TopicPartition) bool { return tp.TopicID != ids.UUID{2} })
	if err := d.save(saved{Home: home, HomeBroker: []string{"b:1"}, VirtualOffset: virtual, Topics: img.Save(held)}); err != nil {
		t.Fatal(err)
	}
	cfg := &config.Sidecar{HomeBroker: []string{"b:1"}, VirtualOffset: virtual}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	s, ok := d.load(cfg, logger)
	if !ok {
		t.Fatal(log.String())
	}
	next := metadata.NewImage(virtual)
	next.Restore(s.Topics, s.Home)
	if next.Offset() != -1 {
		t.Error("the metadata log is said to be read")
	}
	for topic, parts := range map[string]int{"m": 1, "o": 0, "h": 0, "half": 2} {
		id, known := next.Topic(topic)
		if !known || len(next.TopicPartitions(id)) != parts {
			t.Errorf("topic %s: known %v, partitions %v", topic, known, next.TopicPartitions(id))
		}
	}
	if p := next.Partition(ids.TopicPartition{TopicID: ids.UUID{1}}); p == nil || p.Leader != 10001 || p.LeaderEpoch != 3 || p.Topic != "m" {
		t.Errorf("the mirror's partition is %+v", p)
	}
	for _, topic := range s.Topics {
		if topic.Held != (topic.Name == "h" || topic.Name == "half") {
			t.Errorf("topic %s: held %v", topic.Name, topic.Held)
		}
	}
	if b, ok := next.Broker(1); !ok || b.ID != 1 {
		t.Error("the home broker is not known")
	}

	if _, ok := d.load(&config.Sidecar{HomeBroker: []string{"other:1"}, VirtualOffset: virtual}, logger); ok {
		t.Error("what was saved of another broker is used")
	}
	if err := os.WriteFile(filepath.Join(d.path, savedFile), []byte(`{"version":1,`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := d.load(cfg, logger); ok || !strings.Contains(log.String(), "cannot be read") {
		t.Error("half a file is used, or nobody is told")
	}
	d.forget()
	if _, ok := d.load(cfg, logger); ok {
		t.Error("what was forgotten is used")
	}
}

package main

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
)

func TestProcessState(t *testing.T) {
	if s := processState(os.Getpid()); s != "R" && s != "S" {
		t.Skipf("no /proc here, or another one: %q", s)
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if !alive(pid) {
		t.Error("a process that sleeps is not alive")
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := stopped(t.Context(), pid); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if alive(pid) {
		t.Error("a process that was killed is alive")
	}
}

func TestRotated(t *testing.T) {
	replicas := []int32{10002, 10001, 3, 1, 2}
	for _, tt := range []struct {
		how  uint32
		want []int32
	}{
		{0, []int32{10002, 10001, 1, 2, 3}},
		{1, []int32{1, 2, 3}},
		{2, []int32{1, 2, 3}},
	} {
		b := &blow{plan: planned{Pick: [2]uint32{0, tt.how}}}
		got, err := b.rotated(replicas)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%d: %v, %v", tt.how, got, err)
		}
	}
	if _, err := (&blow{}).rotated([]int32{10001, 1}); err == nil {
		t.Error("one real replica has an order")
	}
}

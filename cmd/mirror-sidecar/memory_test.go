package main

import (
	"runtime"
	"testing"
)

// The collector always has room: what is alive may be far more than the buffers' budget.
func TestMemoryLimit(t *testing.T) {
	const budget = 256 << 20
	for name, tc := range map[string]struct{ former, alive, want int64 }{
		"at the start":              {0, 0, budget + memoryRest},
		"buffers only":              {budget + memoryRest, 200 << 20, budget + memoryRest},
		"20000 connections":         {budget + memoryRest, 20000 * 128 << 10, 20000*160<<10 + memoryRest},
		"little more":               {20000*160<<10 + memoryRest, 20100 * 128 << 10, 20000*160<<10 + memoryRest},
		"half of them":              {20000*160<<10 + memoryRest, 10000 * 128 << 10, 10000*160<<10 + memoryRest},
		"all are gone":              {20000*160<<10 + memoryRest, 1 << 20, budget + memoryRest},
		"the last bit of the way":   {budget + memoryRest + 1, 1 << 20, budget + memoryRest},
		"a bit beyond, not at once": {budget + memoryRest, (budget + 4) * 4 / 5, budget + memoryRest},
	} {
		got := memoryLimit(tc.former, budget, tc.alive)
		if got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
		if got < tc.alive+memoryRest/2 {
			t.Errorf("%s: %d are alive under a limit of %d", name, tc.alive, got)
		}
	}
}

func TestMemoryAlive(t *testing.T) {
	much := make([]byte, 64<<20)
	runtime.GC()
	if got := memoryAlive(); got < int64(len(much)) {
		t.Errorf("%d bytes are alive, of one slice %d", got, len(much))
	}
	runtime.KeepAlive(much)
}

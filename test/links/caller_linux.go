package links

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// holder tells which of the processes has the socket whose local port is from and whose remote port
// is to. Both ends are on this machine's loopback, so the pair is found once.
func holder(from, to int, pids map[string]int) (string, bool) {
	inode := inodeOf(from, to)
	if inode == "" {
		return "", false
	}
	link := "socket:[" + inode + "]"
	for name, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue // it has ended
		}
		for _, fd := range fds {
			if target, err := os.Readlink(dir + "/" + fd.Name()); err == nil && target == link {
				return name, true
			}
		}
	}
	return "", false
}

// inodeOf reads the kernel's tables of connections. Java's sockets are in that of IPv6.
func inodeOf(from, to int) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(text) {
			// sl local remote state queues timer retransmits uid timeout inode …
			f := strings.Fields(string(line))
			if len(f) > 9 && portIs(f[1], from) && portIs(f[2], to) && f[9] != "0" {
				return f[9]
			}
		}
	}
	return ""
}

func portIs(addr string, port int) bool {
	_, hex, _ := strings.Cut(addr, ":")
	n, err := strconv.ParseUint(hex, 16, 16)
	return err == nil && int(n) == port
}

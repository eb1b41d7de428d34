package metadata

import (
	"encoding/binary"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// lostDirectory is what the controllers assign a replica to whose log directory has failed and
// cannot be named. The ids around it mean that the broker has not chosen one yet.
const lostDirectory = 1

// Online tells whether the log directory that holds a broker's replica works, as far as the log
// says: a broker lives on when one of several has failed. What is not known to have failed works.
func (p *Partition) Online(b Broker) bool {
	i := slices.Index(p.Replicas, b.ID)
	if i < 0 || i >= len(p.Directories) {
		return true
	}
	dir := p.Directories[i]
	if reserved := binary.BigEndian.Uint64(dir[:8]) == 0 && binary.BigEndian.Uint64(dir[8:]) < 100; reserved {
		return binary.BigEndian.Uint64(dir[8:]) != lostDirectory
	}
	return len(b.LogDirs) == 0 || slices.ContainsFunc(b.LogDirs, func(d ids.UUID) bool { return d == dir })
}

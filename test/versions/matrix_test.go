package versions

import (
	"fmt"
	"strings"
)

// side is one cluster of a row.
type side struct {
	version string
	// level is the metadata.version that a destination is formatted with, "" for its version's own.
	level string
	// zooKeeper: a source of before KRaft.
	zooKeeper bool
}

func (s side) String() string {
	switch {
	case s.zooKeeper:
		return s.version + " (ZooKeeper)"
	case s.level != "":
		return s.version + " at " + s.level
	}
	return s.version
}

// row is a destination and a source that have to work together.
type row struct {
	destination, source side
	// uncordoned: the destination cannot keep partitions off virtual brokers, and the sidecars
	// are told to work with that.
	uncordoned bool
	// note is for the table.
	note string
}

func (r row) name() string {
	return strings.NewReplacer(" ", "-", "(", "", ")", "").Replace(fmt.Sprintf("%s_from_%s", r.destination, r.source))
}

// Destinations and sources of the matrix. The two that are newest stand in for every other
// version on the other side: what they speak to each other is all that differs.
const (
	dstNewest, dstOldest = "4.4.0", "4.3.1"
	srcUsual             = "3.9.1"
)

// matrix lists what is supported, the quick rows first.
func matrix() []row {
	kraft := func(v string) side { return side{version: v} }
	return []row{
		{destination: kraft(dstOldest), source: kraft(srcUsual)},
		// Every metadata.version that a destination may have.
		{destination: side{version: dstNewest, level: "4.3-IV0"}, source: kraft(srcUsual)},
		{destination: side{version: dstNewest, level: "4.4-IV0"}, source: kraft(srcUsual)},
		{destination: side{version: dstNewest, level: "4.4-IV1"}, source: kraft(srcUsual)},
		{destination: side{version: dstNewest, level: "4.4-IV2"}, source: kraft(srcUsual)},
		// Every source.
		{destination: kraft(dstNewest), source: side{version: "2.8.2", zooKeeper: true}},
		{destination: kraft(dstNewest), source: side{version: "3.0.2", zooKeeper: true}},
		{destination: kraft(dstNewest), source: kraft("3.3.2")},
		{destination: kraft(dstNewest), source: kraft("3.6.2")},
		{destination: kraft(dstNewest), source: side{version: "3.9.1", zooKeeper: true}},
		{destination: kraft(dstNewest), source: kraft("4.0.0")},
		{destination: kraft(dstNewest), source: kraft("4.1.1")},
		{destination: kraft(dstNewest), source: kraft("4.2.0")},
		{destination: kraft(dstNewest), source: kraft("4.3.1")},
		{destination: kraft(dstNewest), source: kraft("4.4.0")},
		{destination: kraft(dstOldest), source: side{version: "2.8.2", zooKeeper: true}},
		{destination: kraft(dstOldest), source: kraft("4.4.0")},
		// By request only: allow.uncordoned=true.
		{destination: kraft("4.2.0"), source: kraft(srcUsual), uncordoned: true},
		{destination: kraft("4.1.1"), source: kraft(srcUsual), uncordoned: true},
		{destination: kraft("4.0.0"), source: kraft(srcUsual), uncordoned: true},
		{destination: side{version: dstNewest, level: "4.2-IV1"}, source: kraft(srcUsual), uncordoned: true},
	}
}

package batch

import (
	"crypto/sha256"
	"encoding/binary"
)

// Every cluster hands out producer ids from 0 on, so ids of different clusters would
// meet in one log. A mirrored id therefore carries a tag of the cluster that handed it
// out, above the bits that any cluster will ever use. The result stays positive, since
// brokers track producer state for positive ids only.
const (
	tagShift = 48
	tagMax   = 1<<15 - 1
	localIDs = int64(1)<<tagShift - 1
)

// Tag returns the 15-bit, never zero tag of a cluster id. It is part of the data in
// every mirror's log and can therefore never change.
func Tag(clusterID string) uint16 {
	sum := sha256.Sum256([]byte(clusterID))
	return uint16(binary.BigEndian.Uint64(sum[:])%tagMax) + 1
}

// LocalRange tells whether id could have been handed out by the cluster whose log holds
// it: not a mirrored id, and not "none".
func LocalRange(id int64) bool { return id >= 0 && id <= localIDs }

// Tagger maps producer ids of one source cluster to those of the cluster that mirrors
// it. The zero Tagger changes nothing.
type Tagger struct {
	source, own int64
}

// NewTagger returns the Tagger for a mirror of the cluster sourceClusterID in the
// cluster ownClusterID. Two clusters whose tags are equal cannot mirror each other;
// Collides tells.
func NewTagger(sourceClusterID, ownClusterID string) Tagger {
	return Tagger{source: int64(Tag(sourceClusterID)), own: int64(Tag(ownClusterID))}
}

// Collides tells whether the two clusters have one tag, so that their producer ids
// cannot be kept apart. A mirror between them must be refused.
func (t Tagger) Collides() bool { return t.source == t.own && t.source != 0 }

// Map returns the id that stands here for the source's id. "None" stays none; an id
// the source handed out gets the source's tag; an id that the source itself mirrored
// keeps the tag of its origin; one that came from here becomes what it was.
func (t Tagger) Map(id int64) int64 {
	if id < 0 {
		return id
	}
	switch tag := id >> tagShift; tag {
	case 0:
		return t.source<<tagShift | id
	case t.own:
		return id & localIDs
	default:
		return id
	}
}

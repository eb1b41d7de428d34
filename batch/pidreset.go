package batch

import (
	"encoding/binary"
	"hash/crc32"
)

// ControlPIDReset is the type of the control record that resets producer state (KIP-1279:
// MIRROR_PID_RESET). Brokers that do not know it keep it and do nothing; consumers pass over
// it as over any control record.
const ControlPIDReset int16 = 7

// PIDReset returns a control batch of one such record at offset, without a producer. Its
// value is the KIP's MirrorPidResetRecord, version 0: its version again and the source's
// cluster id, as a flexible message.
func PIDReset(offset int64, leaderEpoch int32, timestamp int64, sourceClusterID string) Batch {
	key := binary.BigEndian.AppendUint16(nil, 0)
	key = binary.BigEndian.AppendUint16(key, uint16(ControlPIDReset))
	value := binary.BigEndian.AppendUint16(nil, 0)
	value = binary.AppendUvarint(value, uint64(len(sourceClusterID))+1)
	value = append(append(value, sourceClusterID...), 0) // no tagged fields

	record := []byte{0, 0, 0} // attributes, timestamp and offset delta
	for _, field := range [][]byte{key, value} {
		record = append(binary.AppendVarint(record, int64(len(field))), field...)
	}
	record = append(record, 0) // no headers

	b := make(Batch, HeaderSize, HeaderSize+len(record)+2)
	b = append(binary.AppendVarint(b, int64(len(record))), record...)
	binary.BigEndian.PutUint64(b[posBaseOffset:], uint64(offset))
	binary.BigEndian.PutUint32(b[posLength:], uint32(len(b)-lengthOverhead))
	b.SetLeaderEpoch(leaderEpoch)
	b[posMagic] = magic
	binary.BigEndian.PutUint16(b[posAttributes:], attrControl)
	binary.BigEndian.PutUint64(b[posBaseTimestamp:], uint64(timestamp))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(timestamp))
	for i := posProducerID; i < posCount; i++ { // no producer id, epoch and sequence: all -1
		b[i] = 0xff
	}
	binary.BigEndian.PutUint32(b[posCount:], 1)
	binary.BigEndian.PutUint32(b[posCRC:], crc32.Checksum(b[posAttributes:], castagnoli))
	return b
}

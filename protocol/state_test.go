package protocol

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/protocol/wire"
)

func text(s string) *string { return &s }

// stateBatch is the batch of one record that the KIP's example shows: no producer, no
// headers, no compression.
func stateBatch(offset, timestamp int64, key, value []byte) []byte {
	var rec []byte
	rec = append(rec, 0, 0, 0) // attributes, timestamp delta, offset delta
	rec = binary.AppendVarint(rec, int64(len(key)))
	rec = append(rec, key...)
	rec = binary.AppendVarint(rec, int64(len(value)))
	rec = append(rec, value...)
	rec = append(rec, 0) // headers
	rec = append(binary.AppendVarint(nil, int64(len(rec))), rec...)

	be := binary.BigEndian
	crced := be.AppendUint16(nil, 0)  // attributes
	crced = be.AppendUint32(crced, 0) // last offset delta
	crced = be.AppendUint64(crced, uint64(timestamp))
	crced = be.AppendUint64(crced, uint64(timestamp))
	crced = be.AppendUint64(crced, math.MaxUint64) // producer id
	crced = be.AppendUint16(crced, math.MaxUint16) // producer epoch
	crced = be.AppendUint32(crced, math.MaxUint32) // base sequence
	crced = be.AppendUint32(crced, 1)
	crced = append(crced, rec...)

	b := be.AppendUint64(nil, uint64(offset))
	b = be.AppendUint32(b, uint32(9+len(crced)))
	b = be.AppendUint32(b, 0) // leader epoch
	b = append(b, 2)
	b = be.AppendUint32(b, crc32.Checksum(crced, crc32.MakeTable(crc32.Castagnoli)))
	return append(b, crced...)
}

// The two batches that the KIP's own log dump shows (contract.md §5).
func TestSeedFormOfTheKIP(t *testing.T) {
	for _, tc := range []struct {
		offset, timestamp int64
		state             int8
		crc               uint32
		payload           string
	}{
		{0, 1771239071191, 0, 3314855113, `{"version":"0","data":{"topicName":"my-topic","partition":0,"state":0}}`},
		{1, 1771239071219, 1, 3968746657, `{"version":"0","data":{"topicName":"my-topic","partition":0,"state":1}}`},
	} {
		key, err := EncodeKey(SeedStateKey{MirrorName: "my-mirror"})
		if err != nil {
			t.Fatal(err)
		}
		value, err := EncodeValue(&SeedStateValue{TopicName: "my-topic", State: tc.state})
		if err != nil {
			t.Fatal(err)
		}
		if len(key) != 13 || len(value) != 17 {
			t.Fatalf("key of %d bytes and value of %d, want 13 and 17", len(key), len(value))
		}
		b := stateBatch(tc.offset, tc.timestamp, key, value)
		if got := binary.BigEndian.Uint32(b[17:]); len(b) != 98 || got != tc.crc {
			t.Fatalf("batch of %d bytes with CRC %d, want 98 and %d", len(b), got, tc.crc)
		}

		keyText, payload, err := DumpRecord(key, value)
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"type":"2","data":{"mirrorName":"my-mirror"}}`; keyText != want {
			t.Errorf("key %s, want %s", keyText, want)
		}
		if payload != tc.payload {
			t.Errorf("payload %s, want %s", payload, tc.payload)
		}
	}

	key, _ := EncodeKey(SeedStateKey{MirrorName: "my-mirror"})
	value, _ := EncodeValue(&SeedStateValue{TopicName: "my-topic", State: 2})
	got, err := FormatRecord(key, value)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"key":{"type":2,"data":{"mirrorName":"my-mirror"}},"value":{"version":0,"data":{"topicName":"my-topic","partition":0,"state":2}}}`
	if got != want {
		t.Errorf("formatter printed %s\nwant %s", got, want)
	}
}

var topicID = ids.UUID{0: 1, 15: 9}

func stateRecords() map[string]struct {
	key   Key
	value Value
} {
	type record = struct {
		key   Key
		value Value
	}
	entries := []LineageEntry{{DestinationEpoch: 3, SourceEpoch: -1}, {DestinationEpoch: 5, SourceEpoch: 40, StartOffset: 1000}}
	return map[string]record{
		"lineage": {
			LastMirrorEpochsKey{MirrorName: "m", TopicID: topicID, Partition: 7},
			&LastMirrorEpochsValue{
				LastMirrorEpoch: 40, LastMirrorOffset: 1 << 40, History: entries,
				Chains: []LineageChain{{LeaderEpoch: 4, Entries: entries[:1]}, {LeaderEpoch: 5, Entries: entries}},
			},
		},
		"state": {
			PartitionStateKey{MirrorName: "m", TopicID: topicID, Partition: 7},
			&PartitionStateValue{
				State: 7, PreviousState: 2, RetryAttempt: 3, LeaderEpoch: 5, StateEpoch: 12,
				Detail: text("SOURCE_UNAVAILABLE"), ErrorMessage: text("the source <a> does not answer"),
				UnknownTags: []wire.Tag{{Tag: 9, Value: []byte{1, 2, 3}}},
			},
		},
		"mirror": {
			MirrorKey{MirrorName: "m"},
			&MirrorValue{SourceClusterID: "abc", Configs: []MirrorConfig{{Name: "bootstrap.servers", Value: text("b:9092")}, {Name: "x"}}},
		},
		"topic": {
			MirrorTopicKey{MirrorName: "m", TopicName: "orders"},
			&MirrorTopicValue{TopicID: topicID, SourceTopicID: topicID, DesiredState: 2, Since: 1771239071191, WantedConfigs: []MirrorConfig{{Name: "a", Value: text("")}}},
		},
		"last real isr": {
			LastRealISRKey{MirrorName: "m", TopicID: topicID, Partition: 7},
			&LastRealISRValue{Replicas: []int32{1, 2}, HighWatermark: 9, LeaderEpoch: 4},
		},
		"owned": {
			OwnedKey{MirrorName: "m", Kind: "acls", Bucket: 17},
			&OwnedValue{Items: []OwnedItem{{Item: "TOPIC;LITERAL;orders;User:a;*;READ;ALLOW", SinceMs: 1771239071191}, {Item: "x"}}, UnknownTags: []wire.Tag{{Tag: 9, Value: []byte{1, 2, 3}}}},
		},
		"barrier":   {BarrierKey{BrokerID: 10001, Nonce: -5}, nil},
		"tombstone": {MirrorKey{MirrorName: "m"}, nil},
	}
}

func TestStateRecordsRoundTrip(t *testing.T) {
	for name, rec := range stateRecords() {
		t.Run(name, func(t *testing.T) {
			kb, err := EncodeKey(rec.key)
			if err != nil {
				t.Fatal(err)
			}
			key, err := DecodeKey(kb)
			if err != nil {
				t.Fatal(err)
			}
			if key != rec.key { // comparable, since keys index maps
				t.Fatalf("key %+v, want %+v", key, rec.key)
			}
			var vb []byte
			if rec.value != nil {
				if vb, err = EncodeValue(rec.value); err != nil {
					t.Fatal(err)
				}
			}
			value, err := DecodeValue(key, vb)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(value, rec.value) {
				t.Fatalf("value %+v, want %+v", value, rec.value)
			}
			if _, err := FormatRecord(kb, vb); err != nil {
				t.Fatal(err)
			}
			if _, _, err := DumpRecord(kb, vb); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The layout must not drift: other builds read these bytes.
func TestStateValueBytes(t *testing.T) {
	v := NewPartitionStateValue()
	b, err := EncodeValue(&v)
	if err != nil {
		t.Fatal(err)
	}
	want := []byte{0, 1, 0xff, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0}
	if !reflect.DeepEqual(b, want) {
		t.Fatalf("got %x, want %x", b, want)
	}
}

func TestOwnedBytes(t *testing.T) {
	k, err := EncodeKey(OwnedKey{MirrorName: "m", Kind: "acls", Bucket: 258})
	if err != nil {
		t.Fatal(err)
	}
	if want := []byte{0, 7, 0, 1, 'm', 0, 4, 'a', 'c', 'l', 's', 0, 0, 1, 2}; !reflect.DeepEqual(k, want) {
		t.Errorf("key %x, want %x", k, want)
	}
	v, err := EncodeValue(&OwnedValue{Items: []OwnedItem{{Item: "x", SinceMs: 259}}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []byte{0, 0, 2, 2, 'x', 0, 0, 0, 0, 0, 0, 1, 3, 0, 0}; !reflect.DeepEqual(v, want) {
		t.Errorf("value %x, want %x", v, want)
	}
}

func TestRecordsOfNewerBuilds(t *testing.T) {
	for _, tc := range []struct {
		name  string
		key   []byte
		value []byte
		want  UnknownRecordError
	}{
		{"type", []byte{0, 77, 1}, nil, UnknownRecordError{77, -1}},
		{"negative type", []byte{0xff, 0xff}, nil, UnknownRecordError{-1, -1}},
		{"version", []byte{0, 3, 0, 1, 'm'}, []byte{0, 1, 9, 9}, UnknownRecordError{3, 1}},
		{"barrier with a value", append([]byte{0, 6}, make([]byte, 12)...), []byte{0, 0}, UnknownRecordError{6, 0}},
		{"old state version", append([]byte{0, 2, 0, 1, 'm'}, make([]byte, 20)...), []byte{0, 0, 0}, UnknownRecordError{2, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, _, err := decodeRecord(tc.key, tc.value)
			var got *UnknownRecordError
			if !errors.As(err, &got) || *got != tc.want {
				t.Fatalf("got %v, want %v", err, &tc.want)
			}
		})
	}
}

func TestMalformedStateRecords(t *testing.T) {
	for _, tc := range []struct {
		name  string
		key   []byte
		value []byte
		want  error
	}{
		{"no type", []byte{0}, nil, wire.ErrShort},
		{"no key", nil, nil, wire.ErrShort},
		{"cut id", []byte{0, 2, 0, 1, 'm', 1, 2}, nil, wire.ErrShort},
		{"null name", []byte{0, 3, 0xff, 0xff}, nil, wire.ErrInvalid},
		{"empty value", []byte{0, 3, 0, 1, 'm'}, []byte{}, wire.ErrShort},
		{"configs announced but not there", []byte{0, 3, 0, 1, 'm'}, []byte{0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f}, wire.ErrShort},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, _, _, err := decodeRecord(tc.key, tc.value); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestLongNamesAreRefusedNotCut(t *testing.T) {
	if _, err := EncodeKey(MirrorKey{MirrorName: string(make([]byte, 40000))}); !errors.Is(err, wire.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
}

func TestRenderedForms(t *testing.T) {
	rec := stateRecords()["state"]
	kb, err := EncodeKey(rec.key)
	if err != nil {
		t.Fatal(err)
	}
	vb, err := EncodeValue(rec.value)
	if err != nil {
		t.Fatal(err)
	}
	got, err := FormatRecord(kb, vb)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"key":{"type":2,"data":{"mirrorName":"m","topicId":"AQAAAAAAAAAAAAAAAAAACQ","partition":7}},` +
		`"value":{"version":1,"data":{"state":7,"previousState":2,"retryAttempt":3,"leaderEpoch":5,"stateEpoch":12,` +
		`"detail":"SOURCE_UNAVAILABLE","errorMessage":"the source <a> does not answer"}}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if _, payload, err := DumpRecord(kb, nil); err != nil || payload != "<DELETE>" {
		t.Errorf("a null value is dumped as %s, %v", payload, err)
	}
	if got, err := FormatRecord(kb, nil); err != nil || !strings.HasSuffix(got, `"value":null}`) {
		t.Errorf("a null value is printed as %s, %v", got, err)
	}
}

func TestLineageConversion(t *testing.T) {
	rec := lineage.Record{
		LastMirrorEpoch: 40, LastMirrorOffset: 7,
		Chains: map[int32]lineage.Chain{
			4: {{Epoch: 3, SourceEpoch: lineage.NoSource}},
			9: {{Epoch: 3, SourceEpoch: lineage.NoSource}, {Epoch: 5, SourceEpoch: 40, Start: 1000}},
			6: {},
		},
		Written: map[int32]bool{4: true},
	}
	v := NewLastMirrorEpochsValue()
	v.SetLineage(rec)
	if len(v.History) != 2 || v.History[1].SourceEpoch != 40 {
		t.Fatalf("history %+v, want the newest chain", v.History)
	}
	if v.Chains[0].LeaderEpoch != 4 || v.Chains[1].LeaderEpoch != 6 || v.Chains[2].LeaderEpoch != 9 {
		t.Fatalf("chains %+v, want ascending", v.Chains)
	}
	b, err := EncodeValue(&v)
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeValue(LastMirrorEpochsKey{}, b)
	if err != nil {
		t.Fatal(err)
	}
	if got := back.(*LastMirrorEpochsValue).Lineage(); !reflect.DeepEqual(got, rec) {
		t.Fatalf("got  %+v\nwant %+v", got, rec)
	}

	// Without chains, the history counts under its last epoch.
	old := Lineage(-1, -1, v.History, nil)
	if want := (map[int32]lineage.Chain{5: rec.Chains[9]}); !reflect.DeepEqual(old.Chains, want) {
		t.Fatalf("got %+v, want %+v", old.Chains, want)
	}
}

// What is expected is what Java 17 and Kafka 4.4 compute (String.hashCode, Utils.abs).
func TestCoordinatorPartition(t *testing.T) {
	for _, tc := range []struct {
		s    string
		hash int32
	}{
		{"", 0},
		{"my-mirror", 1191661312},
		{"polygenelubricants", math.MinInt32},
		{"\U0001F600é", 54960102},
	} {
		if got := javaHash(tc.s); got != tc.hash {
			t.Errorf("hash of %q is %d, want %d", tc.s, got, tc.hash)
		}
	}
	if got := MirrorPartition("polygenelubricants", 50); got != 0 {
		t.Errorf("the minimum int goes to %d, want 0", got)
	}
	tp := ids.TopicPartition{TopicID: topicID, Partition: 3}
	if got := CoordinatorPartition("m", tp, 50); got != 30 {
		t.Errorf("m:%s goes to %d, want 30", tp, got)
	}
	if got := MirrorPartition("my-mirror", 50); got != 12 {
		t.Errorf("my-mirror goes to %d, want 12", got)
	}
	if got := MirrorPartition("m", 0); got != -1 {
		t.Errorf("a topic without partitions gave %d", got)
	}
}

func FuzzStateRecord(f *testing.F) {
	for _, rec := range stateRecords() {
		kb, err := EncodeKey(rec.key)
		if err != nil {
			f.Fatal(err)
		}
		var vb []byte
		if rec.value != nil {
			if vb, err = EncodeValue(rec.value); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(kb, vb)
	}
	f.Fuzz(func(t *testing.T, kb, vb []byte) {
		key, err := DecodeKey(kb)
		if err != nil {
			return
		}
		if again, err := EncodeKey(key); err != nil || string(again) != string(kb) {
			t.Fatalf("key %x became %x, %v", kb, again, err)
		}
		value, err := DecodeValue(key, vb)
		if err != nil || value == nil {
			return
		}
		if l, ok := value.(*LastMirrorEpochsValue); ok {
			l.SetLineage(l.Lineage())
		}
		again, err := EncodeValue(value)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeValue(key, again)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, value) {
			t.Fatalf("got  %+v\nwant %+v", back, value)
		}
		if _, err := FormatRecord(kb, again); err != nil {
			t.Fatal(err)
		}
	})
}

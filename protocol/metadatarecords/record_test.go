package metadatarecords

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol/wire"
)

type golden struct {
	name    string
	version int16
	value   []byte
}

func readGolden(t testing.TB) []golden {
	t.Helper()
	f, err := os.Open("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []golden
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		col := strings.Fields(lines.Text())
		version, err := strconv.ParseInt(col[1], 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		value, err := hex.DecodeString(col[2])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, golden{col[0], int16(version), value})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func uuid(n byte) ids.UUID {
	return ids.UUID{1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, n}
}

func text(s string) *string { return &s }

// since returns v from a version on, and the zero value before.
func since[T any](version, from int16, v T) T {
	var zero T
	if version < from {
		return zero
	}
	return v
}

func want(name string, v int16) Record {
	switch name {
	case "RegisterBrokerRecord":
		return &RegisterBrokerRecord{
			BrokerID: 10001, IncarnationID: uuid(1), BrokerEpoch: 77, Rack: text("rack-1"), Fenced: true,
			EndPoints: []BrokerEndpoint{
				{Name: "CLIENT", Host: "host.example", Port: 59092, SecurityProtocol: 2},
				{Name: "REPLICATION", Host: "10.0.0.1", Port: 9093},
			},
			Features:             []BrokerFeature{{Name: "metadata.version", MinSupportedVersion: 7, MaxSupportedVersion: 33}},
			InControlledShutdown: v >= 1,
			IsMigratingZkBroker:  v >= 2,
			LogDirs:              since(v, 3, []ids.UUID{uuid(2), uuid(3)}),
			CordonedLogDirs:      since(v, 4, []ids.UUID{uuid(2)}),
		}
	case "RegisterBrokerRecord/bare":
		return &RegisterBrokerRecord{BrokerID: 1, IncarnationID: uuid(1), BrokerEpoch: 5, Rack: text(""), Fenced: true}
	case "RegisterBrokerRecord/cordonedEmpty":
		return &RegisterBrokerRecord{BrokerID: 1, IncarnationID: uuid(1), BrokerEpoch: 5, Rack: text(""), Fenced: true, CordonedLogDirs: []ids.UUID{}}
	case "UnregisterBrokerRecord":
		return &UnregisterBrokerRecord{BrokerID: 10001, BrokerEpoch: 77}
	case "TopicRecord":
		return &TopicRecord{Name: "orders", TopicID: uuid(9)}
	case "PartitionRecord":
		return &PartitionRecord{
			PartitionID: 3, TopicID: uuid(9), Replicas: []int32{10001, 10002, 1, 2}, ISR: []int32{10001, 1},
			RemovingReplicas: []int32{2}, AddingReplicas: []int32{10002}, Leader: 10001, LeaderRecoveryState: 1,
			LeaderEpoch: 12, PartitionEpoch: 34,
			Directories:            since(v, 1, []ids.UUID{uuid(2), uuid(3), uuid(4), uuid(5)}),
			EligibleLeaderReplicas: since(v, 2, []int32{2}),
			LastKnownELR:           since(v, 2, []int32{1}),
		}
	case "PartitionRecord/bare":
		return &PartitionRecord{PartitionID: -1, TopicID: uuid(9), Leader: -1, LeaderEpoch: -1, PartitionEpoch: -1}
	case "ConfigRecord":
		return &ConfigRecord{ResourceType: 2, ResourceName: "orders", Name: "max.message.bytes", Value: text("0")}
	case "ConfigRecord/removed":
		return &ConfigRecord{ResourceType: 4, Name: "background.threads"}
	case "PartitionChangeRecord":
		return &PartitionChangeRecord{
			PartitionID: 3, TopicID: uuid(9), ISR: []int32{1, 2}, Leader: -1, Replicas: []int32{1, 2},
			RemovingReplicas: []int32{}, AddingReplicas: []int32{2}, LeaderRecoveryState: 0,
			Directories:            since(v, 1, []ids.UUID{uuid(2), uuid(3)}),
			EligibleLeaderReplicas: since(v, 2, []int32{2}),
			LastKnownELR:           since(v, 2, []int32{}),
		}
	case "PartitionChangeRecord/bare":
		return &PartitionChangeRecord{TopicID: uuid(9), Leader: -2, LeaderRecoveryState: -1}
	case "PartitionChangeRecord/leader":
		return &PartitionChangeRecord{TopicID: uuid(9), Leader: 2, LeaderRecoveryState: -1}
	case "FenceBrokerRecord":
		return &FenceBrokerRecord{ID: 1, Epoch: 5}
	case "UnfenceBrokerRecord":
		return &UnfenceBrokerRecord{ID: 1, Epoch: 5}
	case "RemoveTopicRecord":
		return &RemoveTopicRecord{TopicID: uuid(9)}
	case "FeatureLevelRecord":
		return &FeatureLevelRecord{Name: "metadata.version", FeatureLevel: 33}
	case "BrokerRegistrationChangeRecord":
		return &BrokerRegistrationChangeRecord{
			BrokerID: 10001, BrokerEpoch: 77, Fenced: -1,
			InControlledShutdown: since(v, 1, int8(1)),
			LogDirs:              since(v, 2, []ids.UUID{uuid(2)}),
			CordonedLogDirs:      since(v, 3, []ids.UUID{}),
		}
	case "BeginTransactionRecord":
		return &BeginTransactionRecord{Name: text("create topics")}
	case "BeginTransactionRecord/unnamed":
		return &BeginTransactionRecord{}
	case "EndTransactionRecord":
		return &EndTransactionRecord{}
	case "AbortTransactionRecord":
		return &AbortTransactionRecord{Reason: text("failed over")}
	case "ClearElrRecord":
		return &ClearELRRecord{TopicName: "orders"}
	}
	return nil // a type that is skipped
}

func TestRecordsOfKafkaDecodeAndEncode(t *testing.T) {
	for _, g := range readGolden(t) {
		t.Run(g.name+"/"+strconv.Itoa(int(g.version)), func(t *testing.T) {
			rec, skipped, err := Decode(g.value)
			if err != nil {
				t.Fatal(err)
			}
			w := want(g.name, g.version)
			if w == nil {
				if rec != nil || skipped == nil {
					t.Fatalf("got %+v, want it skipped", rec)
				}
				return
			}
			if !reflect.DeepEqual(rec, w) {
				t.Fatalf("got  %+v\nwant %+v", rec, w)
			}
			b, err := Encode(rec, g.version)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b, g.value) {
				t.Fatalf("encoded to %x\nKafka wrote %x", b, g.value)
			}
		})
	}
}

// Every version of every table is in the golden file, so that a table which is widened
// without bytes to prove it fails here.
func TestEveryVersionHasGoldenBytes(t *testing.T) {
	have := map[string]map[int16]bool{}
	for _, g := range readGolden(t) {
		name, _, _ := strings.Cut(g.name, "/")
		if have[name] == nil {
			have[name] = map[int16]bool{}
		}
		have[name][g.version] = true
	}
	for key := range uint32(64) {
		_, name, maxVersion := newRecord(key)
		if name == "" {
			continue
		}
		if name == "ClearELRRecord" {
			name = "ClearElrRecord" // Kafka's spelling
		}
		for v := range maxVersion + 1 {
			if !have[name][v] {
				t.Errorf("no golden bytes for %s version %d", name, v)
			}
		}
	}
}

func TestUnknownVersionOfAReliedOnTypeIsLoud(t *testing.T) {
	for _, tc := range []struct {
		name  string
		value []byte
		want  UnknownVersionError
	}{
		{"partition change 3", []byte{1, 5, 3, 0}, UnknownVersionError{Type: 5, Name: "PartitionChangeRecord", Version: 3, MaxVersion: 2}},
		{"register 5", []byte{1, 0, 5}, UnknownVersionError{Name: "RegisterBrokerRecord", Version: 5, MaxVersion: 4}},
		{"version past int16", []byte{1, 2, 0xff, 0xff, 0x7f}, UnknownVersionError{Type: 2, Name: "TopicRecord", Version: 1<<21 - 1}},
		{"frame 2", []byte{2, 5, 0}, UnknownVersionError{Name: "frame", Version: 2, MaxVersion: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := Decode(tc.value)
			var got *UnknownVersionError
			if !errors.As(err, &got) || *got != tc.want {
				t.Fatalf("got %v (%+v), want %+v", err, got, tc.want)
			}
		})
	}
}

func TestUnknownTypesAndTagsAreSkipped(t *testing.T) {
	_, skipped, err := Decode([]byte{1, 29, 9, 0xde, 0xad})
	if err != nil || skipped == nil || skipped.Type != 29 || skipped.Version != 9 {
		t.Fatalf("got %+v, %v", skipped, err)
	}
	// A fence record with tag 5, which no table names.
	rec, _, err := Decode([]byte{1, 7, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 1, 5, 2, 8, 8})
	if err != nil || !reflect.DeepEqual(rec, &FenceBrokerRecord{ID: 1, Epoch: 5}) {
		t.Fatalf("got %+v, %v", rec, err)
	}
}

func TestMalformedRecords(t *testing.T) {
	for _, tc := range []struct {
		name  string
		value []byte
		want  error
	}{
		{"empty", nil, wire.ErrShort},
		{"no version", []byte{1, 5}, wire.ErrShort},
		{"body cut", []byte{1, 7, 0, 0, 0}, wire.ErrShort},
		{"bytes left over", []byte{1, 24, 0, 0, 7}, wire.ErrInvalid},
		{"null name", []byte{1, 2, 0, 0}, wire.ErrInvalid},
		{"array longer than the record", append([]byte{1, 3, 0, 0, 0, 0, 0}, append(make([]byte, 16), 0xff, 0xff, 0xff, 0x7f)...), wire.ErrShort},
		{"tags out of order", []byte{1, 24, 0, 2, 4, 0, 3, 0}, wire.ErrInvalid},
		{"varint too long", []byte{1, 24, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, wire.ErrInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, _, err := Decode(tc.value); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, g := range readGolden(f) {
		f.Add(g.value)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rec, _, err := Decode(b)
		if err != nil || rec == nil {
			return
		}
		// What was understood survives: unknown tags are dropped once, then it is stable.
		r := wire.NewReader(b)
		r.Uvarint()
		r.Uvarint()
		version := int16(r.Uvarint())
		again, err := Encode(rec, version)
		if err != nil {
			t.Fatal(err)
		}
		back, _, err := Decode(again)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(rec, back) {
			t.Fatalf("got  %+v\nwant %+v", back, rec)
		}
	})
}

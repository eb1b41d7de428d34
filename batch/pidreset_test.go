package batch

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestPIDReset(t *testing.T) {
	b := PIDReset(41, 7, 1_700_000_000_000, "abc")
	one, rest, err := Next(b)
	if err != nil || len(rest) != 0 || len(one) != len(b) {
		t.Fatalf("Next: %v, %d bytes left", err, len(rest))
	}
	if err := one.Verify(); err != nil {
		t.Fatal(err)
	}
	if !one.IsControl() || one.IsTransactional() || one.ProducerID() != -1 || one.ProducerEpoch() != -1 || one.BaseSequence() != -1 ||
		one.BaseOffset() != 41 || one.LastOffset() != 41 || one.LeaderEpoch() != 7 || one.Count() != 1 || one.MaxTimestamp() != 1_700_000_000_000 {
		t.Errorf("header: %x", []byte(one[:HeaderSize]))
	}
	var r kmsg.Record
	if err := r.ReadFrom(one.Payload()); err != nil {
		t.Fatal(err)
	}
	if want := []byte{0, 0, 0, 7}; !bytes.Equal(r.Key, want) {
		t.Errorf("key %x, want %x", r.Key, want)
	}
	if want := []byte{0, 0, 4, 'a', 'b', 'c', 0}; !bytes.Equal(r.Value, want) {
		t.Errorf("value %x, want %x", r.Value, want)
	}
}

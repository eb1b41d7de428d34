package proxy

import (
	"bytes"
	"testing"
)

// A request is decided by its beginning only where the second look is at all that it names.
func TestSeveralTopicsAreSeenWhole(t *testing.T) {
	p, _ := (&setup{view: ordinaryView()}).start(t, startBroker(t, echo))
	for name, tc := range map[string]struct {
		topics []string
		tags   int
		want   bool
	}{
		"one topic":                       {[]string{"o"}, 2 * readBuffer, true},
		"two topics, all there":           {[]string{"o", "p"}, 10, true},
		"two topics, and much behind":     {[]string{"o", "p"}, 2 * readBuffer, false},
		"no topic, and much behind":       {nil, 2 * readBuffer, false},
		"two topics, and a little behind": {[]string{"o", "p"}, 2 * produceHead, false},
	} {
		t.Run(name, func(t *testing.T) {
			req := produceOf(9, 10, tc.topics...)
			req.UnknownTags.Set(1000, make([]byte, tc.tags))
			frame := encodeRequest(req, 1, &testClientID)
			c := newFuzzedConn(p, &servingConn{Reader: bytes.NewReader(frame)}, new(countingConn))
			_, ok, err := c.lightProduce(fixedHeader(frame[sizeLen:]), len(frame)-sizeLen)
			if err != nil || ok != tc.want {
				t.Errorf("streamed %v, %v, want %v", ok, err, tc.want)
			}
		})
	}
}

package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Sizes of a frame's fixed parts.
const (
	sizeLen = 4 // the length before each frame
	// minRequest is the shortest request header: key, version, correlation id.
	minRequest = 8
	// minResponse is a response header of version 0: the correlation id.
	minResponse = 4
)

// errShort says that the bytes at hand end before the part of the frame that was
// asked for does; more of the frame may complete it.
var errShort = errors.New("frame ends too early")

// header is a request header of any version.
type header struct {
	key         int16
	version     int16
	correlation int32
	clientID    *string
	// size is the length of the header: the body begins there.
	size int
}

// fixedHeader reads the part of a request header that every version has. b must hold
// minRequest bytes.
func fixedHeader(b []byte) header {
	return header{
		key:         int16(binary.BigEndian.Uint16(b)),
		version:     int16(binary.BigEndian.Uint16(b[2:])),
		correlation: int32(binary.BigEndian.Uint32(b[4:])),
	}
}

// parseHeader reads a whole request header. flexible says whether the header of this
// API and version ends in tagged fields. The error is errShort if b may only be the
// beginning of a header.
func parseHeader(b []byte, flexible func(key, version int16) bool) (header, error) {
	if len(b) < minRequest {
		return header{}, errShort
	}
	h := fixedHeader(b)
	c := cursor{b: b, at: minRequest}
	if h.key == keyControlledShutdown && h.version == 0 {
		h.size = c.at // the one request header without a client id
		return h, nil
	}
	// The client id stays a classic string in flexible headers, so that a broker can
	// read the header of a request whose version it does not know.
	n := c.int16()
	switch {
	case n < -1:
		return header{}, fmt.Errorf("client id of length %d", n)
	case n >= 0:
		s := string(c.take(int(n)))
		h.clientID = &s
	}
	if flexible(h.key, h.version) {
		c.skipTags()
	}
	if c.err != nil {
		return header{}, c.err
	}
	h.size = c.at
	return h, nil
}

// encodeRequest returns a whole request frame, with its length.
func encodeRequest(req kmsg.Request, correlation int32, clientID *string) []byte {
	dst := make([]byte, sizeLen, 256)
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.Key()))
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.GetVersion()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlation))
	if clientID == nil {
		dst = append(dst, 0xff, 0xff)
	} else {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(*clientID)))
		dst = append(dst, *clientID...)
	}
	if req.IsFlexible() {
		dst = append(dst, 0) // no tagged fields
	}
	dst = req.AppendTo(dst)
	binary.BigEndian.PutUint32(dst, uint32(len(dst)-sizeLen))
	return dst
}

// appendResponse appends a whole response frame, with its length.
func appendResponse(dst []byte, resp kmsg.Response, correlation int32) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlation))
	if flexibleResponse(resp.Key(), resp.IsFlexible()) {
		dst = append(dst, 0) // no tagged fields
	}
	dst = resp.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-sizeLen))
	return dst
}

// flexibleResponse tells whether a response header ends in tagged fields. ApiVersions
// never has them: its client does not know yet what the broker can read.
func flexibleResponse(key int16, flexible bool) bool {
	return flexible && key != keyAPIVersions
}

// responseBody returns the body of a response frame (without its length).
func responseBody(frame []byte, key int16, flexible bool) ([]byte, error) {
	c := cursor{b: frame}
	c.take(minResponse)
	if flexibleResponse(key, flexible) {
		c.skipTags()
	}
	if c.err != nil {
		return nil, fmt.Errorf("response header of API %d: %w", key, c.err)
	}
	return frame[c.at:], nil
}

// flexTable knows from which version on each API that kmsg knows is flexible.
type flexTable map[int16]int16

func newFlexTable() flexTable {
	t := make(flexTable, kmsg.MaxKey+1)
	for key := range int16(kmsg.MaxKey + 1) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		for v := int16(0); v <= req.MaxVersion(); v++ {
			req.SetVersion(v)
			if req.IsFlexible() {
				t[key] = v
				break
			}
		}
	}
	return t
}

// flexible tells whether a request of this API and version is flexible. An API that
// kmsg does not know counts as flexible: every API added since KIP-482 is.
func (t flexTable) flexible(key, version int16) bool {
	if from, ok := t[key]; ok {
		return version >= from
	}
	return key > kmsg.MaxKey
}

// cursor walks over encoded fields without allocating. The first thing that does not
// fit sets err, and everything after it reads as zero.
type cursor struct {
	b   []byte
	at  int
	err error
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// take returns the next n bytes, nil if they are not there.
func (c *cursor) take(n int) []byte {
	if c.err != nil {
		return nil
	}
	if n < 0 {
		c.fail(fmt.Errorf("length %d", n))
		return nil
	}
	if n > len(c.b)-c.at {
		c.fail(errShort)
		return nil
	}
	s := c.b[c.at : c.at+n]
	c.at += n
	return s
}

func (c *cursor) int16() int16 {
	if s := c.take(2); s != nil {
		return int16(binary.BigEndian.Uint16(s))
	}
	return 0
}

func (c *cursor) int32() int32 {
	if s := c.take(4); s != nil {
		return int32(binary.BigEndian.Uint32(s))
	}
	return 0
}

func (c *cursor) uvarint() uint32 {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		s := c.take(1)
		if s == nil {
			return 0
		}
		v |= uint64(s[0]&0x7f) << shift
		if s[0] < 0x80 {
			if v > 1<<32-1 {
				break
			}
			return uint32(v)
		}
	}
	c.fail(errors.New("variable length number of more than 32 bits"))
	return 0
}

// skipTags moves behind a section of tagged fields.
func (c *cursor) skipTags() {
	c.eachTag(nil)
}

// eachTag calls fn for each tagged field of a section.
func (c *cursor) eachTag(fn func(tag uint32, value []byte)) {
	for n := c.uvarint(); n > 0 && c.err == nil; n-- {
		tag := c.uvarint()
		value := c.take(int(c.uvarint()))
		if c.err == nil && fn != nil {
			fn(tag, value)
		}
	}
}

// string returns the bytes of a string; nil for null, which brokers take every negative length
// for.
func (c *cursor) string(flexible bool) []byte {
	if flexible {
		return c.compact()
	}
	n := c.int16()
	if c.err != nil || n < 0 {
		return nil
	}
	return c.take(int(n))
}

// skipBytes moves behind a byte field.
func (c *cursor) skipBytes(flexible bool) {
	if flexible {
		c.compact()
		return
	}
	if n := c.int32(); c.err == nil && n >= 0 {
		c.take(int(n))
	}
}

func (c *cursor) compact() []byte {
	n := c.uvarint()
	if c.err != nil || n == 0 {
		return nil
	}
	return c.take(int(n - 1))
}

// array returns the number of elements of an array; 0 for null.
func (c *cursor) array(flexible bool) int {
	if flexible {
		if n := c.uvarint(); n > 0 {
			return int(n - 1)
		}
		return 0
	}
	if n := c.int32(); n > 0 {
		return int(n)
	}
	return 0
}

// rawResponse returns the frame of a response body that is encoded already, with a
// flexible header.
func rawResponse(correlation int32, body []byte) []byte {
	out := make([]byte, 0, sizeLen+minResponse+1+len(body))
	out = binary.BigEndian.AppendUint32(out, uint32(minResponse+1+len(body)))
	out = binary.BigEndian.AppendUint32(out, uint32(correlation))
	out = append(out, 0) // no tagged fields
	return append(out, body...)
}

package brokerfaults

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// relay stands between the brokers and one virtual broker, and passes everything on as it
// is, but for what a damage does.
type relay struct {
	listener net.Listener
	to       string
	damage   *damage
	wg       sync.WaitGroup

	mu     sync.Mutex // guards the following
	conns  map[net.Conn]struct{}
	closed bool
}

// damage is what the network does to the records that one broker fetches of one partition: the
// base offset of the first batch becomes 0. No checksum covers it; a replica fetcher that gets
// such a batch gives the partition up until the next leader epoch. All relays of a stack share
// one, as the fetcher goes from one virtual broker to the other.
type damage struct {
	mu    sync.Mutex // guards the following
	left  int        // how often it happens yet
	topic [16]byte
	part  int32
	who   string // how the client id of the broker's fetchers begins
	done  int
}

// set makes it happen n times.
func (d *damage) set(broker string, topic [16]byte, partition int32, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.who, d.topic, d.part, d.left, d.done = "broker-"+broker+"-", topic, partition, n, 0
}

func (d *damage) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}

func (d *damage) wants(client string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left > 0 && strings.HasPrefix(client, d.who)
}

// do damages an answer if it holds what is to be damaged, and tells whether it did.
func (d *damage) do(r *kmsg.FetchResponse) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			p := &r.Topics[i].Partitions[j]
			if d.left > 0 && r.Topics[i].TopicID == d.topic && p.Partition == d.part &&
				len(p.RecordBatches) > 8 && binary.BigEndian.Uint64(p.RecordBatches) > 0 {
				binary.BigEndian.PutUint64(p.RecordBatches, 0)
				d.left--
				d.done++
				return true
			}
		}
	}
	return false
}

// newRelay listens at addr, which a virtual broker is registered with, and passes on to where
// it really listens.
func newRelay(t *testing.T, addr, to string, d *damage) {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: ln, to: to, damage: d, conns: map[net.Conn]struct{}{}}
	r.wg.Go(r.accept)
	t.Cleanup(r.close)
}

func (r *relay) close() {
	r.mu.Lock()
	r.closed = true
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.listener.Close()
	r.wg.Wait()
}

// own keeps a connection until it is closed; false if everything has ended.
func (r *relay) own(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		c.Close()
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *relay) drop(c net.Conn) {
	c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

func (r *relay) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.serve(c) })
	}
}

func (r *relay) serve(client net.Conn) {
	if !r.own(client) {
		return
	}
	defer r.drop(client)
	server, err := net.Dial("tcp", r.to)
	if err != nil || !r.own(server) {
		return
	}
	defer r.drop(server)
	pair := &pair{damage: r.damage, wanted: map[int32]int16{}}
	var both sync.WaitGroup
	both.Go(func() {
		pump(client, server, pair.request)
		server.Close()
	})
	both.Go(func() {
		pump(server, client, pair.response)
		client.Close()
	})
	both.Wait()
}

// pump passes frames on until either side ends.
func pump(from, to net.Conn, look func(frame []byte) []byte) {
	head := make([]byte, 4)
	for {
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(from, frame); err != nil {
			return
		}
		frame = look(frame)
		binary.BigEndian.PutUint32(head, uint32(len(frame)))
		out := net.Buffers{head, frame}
		if _, err := out.WriteTo(to); err != nil {
			return
		}
	}
}

// pair is one connection's two directions.
type pair struct {
	damage *damage

	mu     sync.Mutex      // guards the following
	wanted map[int32]int16 // correlation ids of Fetches whose answers are looked at, and their versions
}

func (p *pair) request(frame []byte) []byte {
	const fetch = 1
	b := kbin.Reader{Src: frame}
	key, version, correlation := b.Int16(), b.Int16(), b.Int32()
	client := b.NullableString()
	if key == fetch && client != nil && p.damage.wants(*client) {
		p.mu.Lock()
		p.wanted[correlation] = version
		p.mu.Unlock()
	}
	return frame
}

func (p *pair) response(frame []byte) []byte {
	b := kbin.Reader{Src: frame}
	correlation := b.Int32()
	p.mu.Lock()
	version, ok := p.wanted[correlation]
	delete(p.wanted, correlation)
	p.mu.Unlock()
	if !ok {
		return frame
	}
	const header = 5 // correlation id and no tags: a replica fetcher's version is flexible
	r := kmsg.NewPtrFetchResponse()
	r.Version = version
	if err := readAll(r, frame[header:]); err != nil || !p.damage.do(r) {
		return frame
	}
	return r.AppendTo(append([]byte(nil), frame[:header]...))
}

func readAll(r *kmsg.FetchResponse, body []byte) error {
	if len(body) == 0 {
		return errors.New("an empty answer")
	}
	return r.ReadFrom(body)
}

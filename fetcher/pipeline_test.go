package fetcher

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/batch/batchtest"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher/pool"
)

// BenchmarkPipeline is the whole way of records through this process at full speed: from
// a source's socket through the checks into buffers, and out of them to a follower's
// socket. Source and follower are processes of their own, as cheap as they can be, so
// that cpu-s/GB is what a sidecar needs at least.
func BenchmarkPipeline(b *testing.B) {
	const partitions, batches, batchSize = 4, 4096, 64 << 10
	dir := b.TempDir()
	file := filepath.Join(dir, "log")
	size := len(batchtest.Sized(0, batchSize, nil))
	out, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	for i := range int64(batches) {
		if _, err := out.Write(batchtest.Sized(i, batchSize, nil)); err != nil {
			b.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		b.Fatal(err)
	}
	source := startRole(b, "source", file, fmt.Sprint(size), fmt.Sprint(partitions))
	follower := startRole(b, "follower")

	for b.Loop() {
		runPipeline(b, source, follower, partitions, batches, size)
	}
}

func runPipeline(b *testing.B, source, follower string, partitions, batches, size int) {
	b.Helper()
	const ahead = 4 << 20
	f := New(Config{
		Mirror: "m", Opts: []kgo.Opt{kgo.SeedBrokers(source)}, Tagger: batch.NewTagger("a", "b"), Buffers: pool.New(64 << 20),
	})
	if err := f.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	out, err := net.Dial("tcp", follower)
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	before := cpu(b)
	begin := time.Now()
	full := make(chan struct{}, 1)
	sinks := make([]*pipe, partitions)
	for p := range sinks {
		sinks[p] = &pipe{limit: ahead, full: full}
		f.Add(Partition{Topic: "a", Partition: int32(p), LastFetchedEpoch: -1, Sink: sinks[p]})
	}
	total := int64(partitions) * int64(batches) * int64(size)
	ack := make([]byte, 1)
	for sent := int64(0); sent < total; {
		frame := net.Buffers{make([]byte, 4)}
		var hold []*pool.Buffer
		n := 0
		for _, s := range sinks {
			n += s.take(&frame, &hold)
		}
		if n == 0 {
			<-full
			continue
		}
		binary.BigEndian.PutUint32(frame[0], uint32(n))
		if _, err := frame.WriteTo(out); err != nil {
			b.Fatal(err)
		}
		for p, s := range sinks {
			if s.written() {
				f.Wake("a", int32(p))
			}
		}
		if _, err := io.ReadFull(out, ack); err != nil {
			b.Fatal(err)
		}
		for _, x := range hold {
			x.Release()
		}
		sent += int64(n)
	}
	gb := float64(total) / 1e9
	b.ReportMetric((cpu(b)-before).Seconds()/gb, "cpu-s/GB")
	b.ReportMetric(gb*1000/time.Since(begin).Seconds(), "MB/s")
}

// pipe is a sink from which a follower takes up to a megabyte at a time.
type pipe struct {
	mu     sync.Mutex
	limit  int64
	kept   []batch.Batch
	in     []*pool.Buffer
	bytes  int64
	taken  int64
	paused bool
	full   chan struct{}
}

func (p *pipe) Room() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	room := p.limit - p.bytes
	p.paused = room < p.limit/8
	if p.paused {
		return 0
	}
	return int(room)
}

func (p *pipe) Fetched(f Fetched) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range f.Batches {
		f.Buffer.Retain()
		p.kept, p.in = append(p.kept, b), append(p.in, f.Buffer)
		p.bytes += int64(len(b))
	}
	signal(p.full)
}

func (p *pipe) take(frame *net.Buffers, hold *[]*pool.Buffer) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.kept) > 0 && n+len(p.kept[0]) <= 1<<20 {
		n += len(p.kept[0])
		*frame, *hold = append(*frame, p.kept[0]), append(*hold, p.in[0])
		p.kept, p.in = p.kept[1:], p.in[1:]
	}
	p.taken += int64(n)
	return n
}

func (p *pipe) written() (resume bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes -= p.taken
	p.taken = 0
	return p.paused && p.bytes <= p.limit*3/4
}

func cpu(b *testing.B) time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// roleVar names the role that this binary has as a child of itself.
const roleVar = "FETCHER_TEST_ROLE"

// startRole starts this binary as a source or a follower and returns its address.
func startRole(b *testing.B, args ...string) string {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVar+"="+strings.Join(args, " "))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // its end is the child's end
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(addr)
}

// playRole does not return if this process is a child.
func playRole() {
	role := strings.Fields(os.Getenv(roleVar))
	if len(role) == 0 {
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println(l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer c.Close()
			var err error
			if role[0] == "source" {
				s := stubSource{file: role[1], addr: l.Addr().(*net.TCPAddr)}
				_, _ = fmt.Sscan(role[2]+" "+role[3], &s.size, &s.partitions)
				err = s.serve(c.(*net.TCPConn))
			} else {
				err = swallow(c)
			}
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				fmt.Fprintln(os.Stderr, role[0], err)
			}
		}()
	}
}

// swallow reads frames and acknowledges each, as a follower does with its next Fetch.
func swallow(c net.Conn) error {
	b := make([]byte, 16<<20)
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	for {
		if _, err := io.ReadFull(c, b[:4]); err != nil {
			return err
		}
		frame := b[:binary.BigEndian.Uint32(b)]
		if _, err := io.ReadFull(c, frame); err != nil {
			return err
		}
		_ = crc32.Checksum(frame, castagnoli)
		if _, err := c.Write(b[:1]); err != nil {
			return err
		}
	}
}

// stubSource is a broker of one topic whose partitions all are one file of batches of one
// record and one size. It sends them as brokers do, by sendfile.
type stubSource struct {
	file             string
	size, partitions int
	addr             *net.TCPAddr
}

func (s *stubSource) serve(c *net.TCPConn) error {
	f, err := os.Open(s.file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	end := info.Size() / int64(s.size)
	head := make([]byte, 4)
	for {
		if _, err := io.ReadFull(c, head); err != nil {
			return err
		}
		raw := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(c, raw); err != nil {
			return err
		}
		req := kmsg.RequestForKey(int16(binary.BigEndian.Uint16(raw)))
		req.SetVersion(int16(binary.BigEndian.Uint16(raw[2:])))
		correlation := raw[4:8]
		body := raw[10:]
		if n := int16(binary.BigEndian.Uint16(raw[8:])); n > 0 {
			body = body[n:]
		}
		if req.IsFlexible() {
			body = body[1:]
		}
		if err := req.ReadFrom(body); err != nil {
			return err
		}
		if fetch, ok := req.(*kmsg.FetchRequest); ok {
			if err := s.fetch(c, f, end, correlation, fetch); err != nil {
				return err
			}
			continue
		}
		resp := s.answer(req)
		out := append([]byte{0, 0, 0, 0}, correlation...)
		if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
			out = append(out, 0)
		}
		out = resp.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := c.Write(out); err != nil {
			return err
		}
	}
}

var stubID = [16]byte{1, 2, 3}

func (s *stubSource) answer(req kmsg.Request) kmsg.Response {
	resp := req.ResponseKind()
	switch resp := resp.(type) {
	case *kmsg.ApiVersionsResponse:
		for key, version := range map[kmsg.Key]int16{kmsg.Fetch: 17, kmsg.Metadata: 12, kmsg.ApiVersions: 3} {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = int16(key), version
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
	case *kmsg.MetadataResponse:
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = 1, s.addr.IP.String(), int32(s.addr.Port)
		resp.Brokers = append(resp.Brokers, b)
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID = kmsg.StringPtr("a"), stubID
		for p := range s.partitions {
			mp := kmsg.NewMetadataResponseTopicPartition()
			mp.Partition, mp.Leader, mp.LeaderEpoch = int32(p), 1, 0
			t.Partitions = append(t.Partitions, mp)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (s *stubSource) fetch(c *net.TCPConn, f *os.File, end int64, correlation []byte, req *kmsg.FetchRequest) error {
	type piece struct{ at, n int64 }
	var head [][]byte
	var pieces []piece
	out := append([]byte{0, 0, 0, 0}, correlation...)
	out = append(out, 0)                   // header tags
	out = append(out, make([]byte, 10)...) // throttle, error, session
	out = binary.AppendUvarint(out, uint64(len(req.Topics)+1))
	total, left := 0, int64(req.MaxBytes)
	for _, t := range req.Topics {
		out = append(out, t.TopicID[:]...)
		out = binary.AppendUvarint(out, uint64(len(t.Partitions)+1))
		for _, p := range t.Partitions {
			n := max(0, min(int64(p.PartitionMaxBytes), left, (end-p.FetchOffset)*int64(s.size)))
			left -= n
			out = binary.BigEndian.AppendUint32(out, uint32(p.Partition))
			out = append(out, 0, 0)
			for _, v := range []int64{end, end, 0} {
				out = binary.BigEndian.AppendUint64(out, uint64(v))
			}
			out = append(out, 0, 0xff, 0xff, 0xff, 0xff)
			out = binary.AppendUvarint(out, uint64(n+1))
			head, pieces = append(head, out), append(pieces, piece{p.FetchOffset * int64(s.size), n})
			total += len(out) + int(n)
			out = []byte{0}
		}
		out = append(out, 0)
	}
	out = append(out, 0)
	total += len(out)
	binary.BigEndian.PutUint32(head[0], uint32(total-4))
	if total < 1000 { // nothing new
		time.Sleep(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	}
	for i, h := range head {
		if _, err := c.Write(h); err != nil {
			return err
		}
		if _, err := f.Seek(pieces[i].at, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(c, io.LimitReader(f, pieces[i].n)); err != nil {
			return err
		}
	}
	_, err := c.Write(out)
	return err
}

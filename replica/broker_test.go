package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	rec "github.com/cluster-mirroring/mirror-sidecar/protocol/metadatarecords"
	"github.com/cluster-mirroring/mirror-sidecar/replica/controller"
	"github.com/cluster-mirroring/mirror-sidecar/replica/internal/scripted"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

const (
	fakeCluster = "fake-cluster"
	homeID      = int32(1)
	virtualID   = int32(10001)
)

// fakeController keeps registrations as the real ones do, as far as a broker sees, and
// writes a metadata log of them.
type fakeController struct {
	t *testing.T
	s *scripted.Controller

	mu            sync.Mutex // guards the following
	cond          *sync.Cond
	log           [][]byte
	brokers       map[int32]*fakeBroker
	unregistered  int
	registrations []*kmsg.BrokerRegistrationRequest
	heartbeats    []*kmsg.BrokerHeartbeatRequest
	arrived       []time.Time // of the heartbeats
	// scripts
	registerCodes []int16 // answers to the next registrations
	registeredBut int16   // what the next registration is answered although it is done
	failEvery     int     // each so many heartbeats one fails
	heartbeatCode int16
	mute          bool          // heartbeats are not answered
	holdLog       bool          // fetches see nothing new
	holdOutgoing  bool          // ShouldShutdown stays false
	registering   func(nth int) // is told of each registration, nil if nobody cares
}

type fakeBroker struct {
	epoch    int64
	fenced   bool
	cordoned [][16]byte
}

func startFake(t *testing.T, metadataVersion int16) *fakeController {
	t.Helper()
	f := &fakeController{t: t, brokers: make(map[int32]*fakeBroker)}
	f.cond = sync.NewCond(&f.mu)
	features := kmsg.NewPtrApiVersionsResponse()
	features.SupportedFeatures = []kmsg.ApiVersionsResponseSupportedFeature{
		{Name: "metadata.version", MinVersion: 7, MaxVersion: 40}, {Name: "group.version", MaxVersion: 1},
	}
	features.FinalizedFeatures = append(features.FinalizedFeatures,
		kmsg.ApiVersionsResponseFinalizedFeature{Name: "metadata.version", MaxVersionLevel: metadataVersion, MinVersionLevel: metadataVersion})
	s, err := scripted.Listen("127.0.0.1:0", features, f.handle)
	if err != nil {
		t.Fatal(err)
	}
	f.s = s
	rack := "r1"
	home := rec.NewRegisterBrokerRecord()
	home.BrokerID, home.Rack, home.LogDirs = homeID, &rack, []ids.UUID{{1}}
	home.EndPoints = []rec.BrokerEndpoint{{Name: "INTERNAL", Host: "home", Port: 1, SecurityProtocol: 0}, {Name: "CLIENT", Host: "home", Port: 2, SecurityProtocol: 2}}
	f.append(&home)
	t.Cleanup(func() {
		f.mu.Lock()
		f.mute, f.holdLog = false, false
		f.cond.Broadcast()
		f.mu.Unlock()
		s.Close()
	})
	return f
}

// append writes one record to the log; callers hold the lock, or are alone.
func (f *fakeController) append(r rec.Record) int64 {
	version := int16(0)
	switch r.(type) {
	case *rec.RegisterBrokerRecord:
		version = 4
	case *rec.BrokerRegistrationChangeRecord:
		version = 3
	}
	value, err := rec.Encode(r, version)
	if err != nil {
		f.t.Error(err)
		return 0
	}
	x := []byte{0, 0, 0}
	x = binary.AppendVarint(x, -1)
	x = append(binary.AppendVarint(x, int64(len(value))), value...)
	x = append(x, 0)
	body := append(binary.AppendVarint(nil, int64(len(x))), x...)
	b := make([]byte, 61, 61+len(body))
	off := int64(len(f.log))
	binary.BigEndian.PutUint64(b, uint64(off))
	binary.BigEndian.PutUint32(b[8:], uint32(49+len(body)))
	binary.BigEndian.PutUint32(b[12:], 1)
	b[16] = 2
	binary.BigEndian.PutUint32(b[57:], 1)
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	f.log = append(f.log, b)
	f.cond.Broadcast()
	return off
}

func (f *fakeController) handle(req kmsg.Request) kmsg.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r := req.(type) {
	case *kmsg.DescribeClusterRequest:
		resp := r.ResponseKind().(*kmsg.DescribeClusterResponse)
		resp.ClusterID = fakeCluster
		return resp
	case *kmsg.UnregisterBrokerRequest:
		f.unregistered++
		resp := r.ResponseKind().(*kmsg.UnregisterBrokerResponse)
		if f.brokers[r.BrokerID] == nil {
			resp.ErrorCode = kerr.BrokerIDNotRegistered.Code
			return resp
		}
		f.unregister(r.BrokerID)
		return resp
	case *kmsg.BrokerRegistrationRequest:
		return f.register(r)
	case *kmsg.BrokerHeartbeatRequest:
		for f.mute {
			f.cond.Wait()
		}
		return f.heartbeat(r)
	case *kmsg.FetchRequest:
		return f.fetch(r)
	default:
		return nil
	}
}

func (f *fakeController) unregister(id int32) {
	x := rec.NewUnregisterBrokerRecord()
	x.BrokerID, x.BrokerEpoch = id, f.brokers[id].epoch
	delete(f.brokers, id)
	f.append(&x)
}

// takeOver registers another process under an id.
func (f *fakeController) takeOver(id int32) {
	f.unregister(id)
	r := kmsg.NewPtrBrokerRegistrationRequest()
	r.BrokerID, r.IncarnationID = id, [16]byte{9}
	f.register(r)
}

func (f *fakeController) register(r *kmsg.BrokerRegistrationRequest) kmsg.Response {
	f.registrations = append(f.registrations, r)
	if f.registering != nil {
		f.registering(len(f.registrations))
	}
	resp := r.ResponseKind().(*kmsg.BrokerRegistrationResponse)
	if len(f.registerCodes) > 0 {
		resp.ErrorCode, f.registerCodes = f.registerCodes[0], f.registerCodes[1:]
		if resp.ErrorCode != 0 {
			return resp
		}
	}
	x := rec.NewRegisterBrokerRecord()
	x.BrokerID, x.IncarnationID, x.Fenced, x.Rack = r.BrokerID, r.IncarnationID, true, r.Rack
	x.BrokerEpoch = int64(len(f.log))
	for _, l := range r.Listeners {
		x.EndPoints = append(x.EndPoints, rec.BrokerEndpoint{Name: l.Name, Host: l.Host, Port: l.Port, SecurityProtocol: l.SecurityProtocol})
	}
	for _, d := range r.LogDirs {
		x.LogDirs = append(x.LogDirs, d)
	}
	f.append(&x)
	f.brokers[r.BrokerID] = &fakeBroker{epoch: x.BrokerEpoch, fenced: true}
	resp.BrokerEpoch = x.BrokerEpoch
	resp.ErrorCode, f.registeredBut = f.registeredBut, 0
	return resp
}

func (f *fakeController) heartbeat(r *kmsg.BrokerHeartbeatRequest) kmsg.Response {
	f.heartbeats, f.arrived = append(f.heartbeats, r), append(f.arrived, time.Now())
	defer f.cond.Broadcast()
	resp := r.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
	resp.ErrorCode = f.heartbeatCode
	if f.failEvery > 0 && len(f.heartbeats)%f.failEvery == 0 {
		resp.ErrorCode = -1
	}
	b := f.brokers[r.BrokerID]
	switch {
	case resp.ErrorCode != 0:
		return resp
	case b == nil:
		resp.ErrorCode = kerr.BrokerIDNotRegistered.Code
		return resp
	case b.epoch != r.BrokerEpoch:
		resp.ErrorCode = kerr.StaleBrokerEpoch.Code
		return resp
	}
	resp.IsCaughtUp = r.CurrentMetadataOffset >= b.epoch
	fenced := r.WantFence || b.fenced && !resp.IsCaughtUp
	if r.WantShutdown && !f.holdOutgoing {
		resp.ShouldShutdown, fenced = true, true
	}
	x := rec.NewBrokerRegistrationChangeRecord()
	x.BrokerID, x.BrokerEpoch = r.BrokerID, b.epoch
	changed := false
	if fenced != b.fenced {
		b.fenced, changed = fenced, true
		x.Fenced = -1
		if fenced {
			x.Fenced = 1
		}
	}
	if r.CordonedLogDirs != nil && !slices.Equal(r.CordonedLogDirs, b.cordoned) {
		b.cordoned, changed = r.CordonedLogDirs, true
		x.CordonedLogDirs = []ids.UUID{}
		for _, d := range r.CordonedLogDirs {
			x.CordonedLogDirs = append(x.CordonedLogDirs, d)
		}
	}
	if changed {
		f.append(&x)
	}
	resp.IsFenced = b.fenced
	return resp
}

func (f *fakeController) fetch(r *kmsg.FetchRequest) kmsg.Response {
	in := r.Topics[0].Partitions[0]
	out := kmsg.NewFetchResponseTopicPartition()
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = 1, 1
	if in.CurrentLeaderEpoch != 1 {
		out.ErrorCode = kerr.FencedLeaderEpoch.Code
	} else {
		waited := false // guarded by f.mu, as all here
		timer := time.AfterFunc(time.Duration(r.MaxWaitMillis)*time.Millisecond, func() { f.set(func() { waited = true }) })
		defer timer.Stop()
		for (f.holdLog || in.FetchOffset >= int64(len(f.log))) && !waited {
			f.cond.Wait()
		}
		if f.holdLog {
			out.HighWatermark = in.FetchOffset
		} else {
			out.HighWatermark = int64(len(f.log))
			for _, b := range f.log[min(in.FetchOffset, int64(len(f.log))):] {
				out.RecordBatches = append(out.RecordBatches, b...)
			}
		}
	}
	resp := r.ResponseKind().(*kmsg.FetchResponse)
	t := kmsg.NewFetchResponseTopic()
	t.TopicID = r.Topics[0].TopicID
	t.Partitions = append(t.Partitions, out)
	resp.Topics = append(resp.Topics, t)
	return resp
}

func (f *fakeController) set(edit func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	edit()
	f.cond.Broadcast()
}

func (f *fakeController) get(look func() bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return look()
}

// until waits for something that a heartbeat does.
func (f *fakeController) until(what string, cond func() bool) {
	f.t.Helper()
	late := time.AfterFunc(10*time.Second, func() { f.set(func() {}) })
	defer late.Stop()
	deadline := time.Now().Add(10 * time.Second)
	f.mu.Lock()
	defer f.mu.Unlock()
	for !cond() {
		if !time.Now().Before(deadline) {
			f.t.Fatalf("not within 10 s: %s", what)
		}
		f.cond.Wait()
	}
}

// rig is a fake controller, an image that follows it, and a client.
type rig struct {
	f   *fakeController
	img *metadata.Image
	ctl *controller.Client
	obs *metadata.Observer
	cfg BrokerConfig
}

func newRig(t *testing.T, metadataVersion int16) *rig {
	t.Helper()
	f := startFake(t, metadataVersion)
	r := &rig{f: f, img: metadata.NewImage(10000)}
	log := slog.New(slog.DiscardHandler)
	ctl, err := controller.New([]string{f.s.Addr()}, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	r.ctl = ctl
	r.obs = metadata.NewObserver(metadata.ObserverConfig{ReplicaID: virtualID, MaxWait: 30 * time.Millisecond}, r.img, ctl, log)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.obs.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait(); ctl.Close() })
	r.cfg = BrokerConfig{
		HomeID: homeID, Virtual: 10000, ClusterID: fakeCluster, Lag: r.obs.Lag, HeartbeatInterval: 20 * time.Millisecond,
		Endpoints: EndpointsLike(metadata.Broker{Endpoints: []metadata.Endpoint{{Name: "INTERNAL"}, {Name: "CLIENT", SecurityProtocol: 2}}}, "here", 9),
	}
	return r
}

func (r *rig) broker(t *testing.T) *Broker {
	t.Helper()
	b, err := NewBroker(r.cfg, r.img, r.ctl, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = b.Stop(ctx)
	})
	return b
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func (r *rig) started(t *testing.T) *Broker {
	t.Helper()
	b := r.broker(t)
	if err := b.Start(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := b.await(within(t, 10*time.Second), func() bool { return !b.ackFenced }); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBrokerRegistersFencedAndCordonedFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, 33)
	b := r.broker(t)
	if b.Epoch() != -1 || b.Live() {
		t.Errorf("before the start: epoch %d, live %v", b.Epoch(), b.Live())
	}
	if err := b.Start(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	r.f.until("unfenced", func() bool { return !r.f.brokers[virtualID].fenced })
	dir := DirectoryID(fakeCluster, virtualID)
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	if r.f.unregistered != 1 || len(r.f.registrations) != 1 {
		t.Fatalf("unregistered %d times, registered %d times", r.f.unregistered, len(r.f.registrations))
	}
	reg := r.f.registrations[0]
	if reg.Rack == nil || *reg.Rack != "r1" || reg.ClusterID != fakeCluster || !slices.Equal(reg.LogDirs, [][16]byte{dir}) ||
		len(reg.Listeners) != 2 || reg.Listeners[1].Name != "CLIENT" || reg.Listeners[1].Host != "here" || reg.Listeners[1].SecurityProtocol != 2 ||
		reg.IncarnationID == [16]byte{} {
		t.Errorf("registration %+v", reg)
	}
	for _, x := range reg.Features {
		want := [2]int16{0, 99}
		if x.Name == "metadata.version" {
			want = [2]int16{rec.MinMetadataVersion, rec.MaxMetadataVersion}
		}
		if got := [2]int16{x.MinSupportedVersion, x.MaxSupportedVersion}; got != want {
			t.Errorf("feature %s: %v, want %v", x.Name, got, want)
		}
	}
	for i, h := range r.f.heartbeats {
		if i == 0 && !h.WantFence {
			t.Error("the first heartbeat does not ask to be fenced")
		}
		if !h.WantFence && h.CurrentMetadataOffset < b.Epoch() {
			t.Errorf("heartbeat %d asks to be unfenced at offset %d, registered at %d", i, h.CurrentMetadataOffset, b.Epoch())
		}
		if !slices.Equal(h.CordonedLogDirs, [][16]byte{dir}) {
			t.Errorf("heartbeat %d: cordoned %v", i, h.CordonedLogDirs)
		}
		if h.CurrentMetadataOffset >= int64(len(r.f.log)) {
			t.Errorf("heartbeat %d claims offset %d of a log of %d", i, h.CurrentMetadataOffset, len(r.f.log))
		}
	}
}

// TestBrokerWithoutCordon: where the controllers know no cordon the broker is always open.
func TestBrokerWithoutCordon(t *testing.T) {
	t.Parallel()
	r := newRig(t, 29)
	r.cfg.AllowUncordoned = true
	b := r.started(t)
	r.f.mu.Lock()
	for _, x := range r.f.registrations[0].Features {
		if got := [2]int16{x.MinSupportedVersion, x.MaxSupportedVersion}; x.Name == "metadata.version" && got != [2]int16{rec.MinUncordoned, rec.MaxMetadataVersion} {
			t.Errorf("metadata.version: %v", got)
		}
	}
	beats := len(r.f.heartbeats)
	r.f.mu.Unlock()
	release, err := b.Uncordon(within(t, 10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	release()
	r.f.until("a heartbeat", func() bool { return len(r.f.heartbeats) > beats })
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	if last := r.f.heartbeats[len(r.f.heartbeats)-1]; len(last.CordonedLogDirs) != 1 {
		t.Error("the cordon is not asked for, and would not hold after an upgrade")
	}
}

func TestBrokerRefusesToStartAndChangesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		version int16
		edit    func(*rig)
		is      error
		text    []string
	}{
		{name: "metadata.version below 4.3", version: 29, is: ErrClusterTooOld, text: []string{"29", "30", "4.3-IV0", "--allow-uncordoned"}},
		{name: "metadata.version below 4.0", version: 21, edit: func(r *rig) { r.cfg.AllowUncordoned = true }, is: ErrClusterTooOld, text: []string{"21", "22", "4.0-IV0"}},
		{name: "metadata.version beyond the tables", version: 34, is: ErrSidecarTooOld, text: []string{"34", "33", "upgrade the sidecar"}},
		{name: "another cluster", version: 33, edit: func(r *rig) { r.cfg.ClusterID = "other" }, is: ErrWrongCluster, text: []string{fakeCluster, "other"}},
		{name: "the id is a real broker's", version: 33, is: ErrIDTaken, text: []string{"10001", "mirror.virtual.broker.id.offset"}, edit: func(r *rig) {
			x := rec.NewRegisterBrokerRecord()
			x.BrokerID, x.LogDirs = virtualID, []ids.UUID{{7}}
			r.f.set(func() { r.f.append(&x) })
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tt.version)
			if tt.edit != nil {
				tt.edit(r)
			}
			r.awaitImage(t)
			err := r.broker(t).Start(within(t, 10*time.Second))
			if !errors.Is(err, tt.is) {
				t.Fatalf("error %v, want %v", err, tt.is)
			}
			for _, s := range tt.text {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q is not in: %v", s, err)
				}
			}
			if !r.f.get(func() bool { return r.f.unregistered+len(r.f.registrations)+len(r.f.heartbeats) == 0 }) {
				t.Error("something was changed")
			}
		})
	}
}

// awaitImage waits until the image has all that the log has now.
func (r *rig) awaitImage(t *testing.T) {
	t.Helper()
	r.f.mu.Lock()
	last := int64(len(r.f.log)) - 1
	r.f.mu.Unlock()
	if err := r.img.Wait(within(t, 10*time.Second), func() bool { return r.img.Offset() >= last }); err != nil {
		t.Fatal(err)
	}
}

func TestBrokerRegistrationErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		codes []int16
		want  []string // in the error; none: started
	}{
		{"the session of a former process runs out", []int16{101, 101, 0}, nil},
		{"a controller loses its office", []int16{kerr.RequestTimedOut.Code, kerr.RequestTimedOut.Code, 0}, nil},
		{"it never gets another", slices.Repeat([]int16{kerr.RequestTimedOut.Code}, 1000), []string{"REQUEST_TIMED_OUT"}},
		{"another process lives", slices.Repeat([]int16{101}, 1000), []string{"taken", "another process"}},
		{"the controllers refuse the features", []int16{35}, []string{"level 33", "upgrade the sidecar first"}},
		{"no right", []int16{31}, []string{"CLUSTER_ACTION"}},
		{"other", []int16{119}, []string{"INVALID_REGISTRATION"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 33)
			r.f.set(func() { r.f.registerCodes = tt.codes })
			ctx, cancel := context.WithCancel(within(t, 30*time.Second))
			defer cancel()
			if len(tt.codes) == 1000 {
				// Who asks a second time has heard the first answer; that is how long patience lasts here.
				r.f.set(func() {
					r.f.registering = func(nth int) {
						if nth == 2 {
							cancel()
						}
					}
				})
			}
			err := r.broker(t).Start(ctx)
			if tt.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Fatal("started")
			}
			for _, s := range tt.want {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q is not in: %v", s, err)
				}
			}
		})
	}
}

func TestBrokerWithoutAMetadataLogSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t, 33)
	r.img = metadata.NewImage(10000) // that nobody follows
	// On a loaded machine the time may be over before the log is waited for.
	for wait := 200 * time.Millisecond; ; wait *= 2 {
		err := r.broker(t).Start(within(t, wait))
		if err != nil && strings.Contains(err.Error(), "metadata log has not been read") && errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err == nil || wait > 10*time.Second {
			t.Fatalf("error %v", err)
		}
	}
}

// TestBrokerWhoseIDIsTaken: another process that registers the id ends the broker, however it
// learns of it.
func TestBrokerWhoseIDIsTaken(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		take func(*fakeController)
		want error
	}{
		{"the metadata log tells", func(f *fakeController) { f.takeOver(virtualID) }, ErrUnregistered},
		{"the metadata log tells while heartbeats are not answered", func(f *fakeController) { f.mute = true; f.takeOver(virtualID) }, ErrUnregistered},
		{"a heartbeat tells, and the log lags", func(f *fakeController) {
			f.holdLog = true
			f.takeOver(virtualID)
			f.registerCodes = []int16{kerr.DuplicateBrokerRegistration.Code}
		}, ErrIDTaken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 33)
			r.cfg.SessionTimeout, r.cfg.RejoinDelay = 500*time.Millisecond, 10*time.Millisecond
			b := r.started(t)
			r.f.set(func() { tt.take(r.f) })
			select {
			case err := <-b.Failed():
				if !errors.Is(err, tt.want) {
					t.Errorf("error %v", err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("goes on")
			}
			if b.Live() {
				t.Error("still live")
			}
			if _, err := b.Uncordon(within(t, 10*time.Second)); !errors.Is(err, tt.want) {
				t.Errorf("un-cordon: %v", err)
			}
			if err := b.Stop(within(t, 10*time.Second)); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
	}
}

// TestBrokerThatIsUnregisteredComesBack: as a fresh incarnation, fenced and cordoned first, and
// what was asked for meanwhile is not lost.
func TestBrokerThatIsUnregisteredComesBack(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		lose func(*fakeController)
	}{
		{"the metadata log tells first", func(f *fakeController) { f.unregister(virtualID) }},
		{"a heartbeat tells first", func(f *fakeController) { f.holdLog = true; f.unregister(virtualID) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 33)
			r.cfg.RejoinDelay = 50 * time.Millisecond
			b := r.started(t)
			before := b.Epoch()
			var first *kmsg.BrokerRegistrationRequest
			r.f.set(func() {
				first = r.f.registrations[len(r.f.registrations)-1]
				r.f.heartbeats, r.f.arrived = nil, nil
				tt.lose(r.f)
			})
			if err := b.await(within(t, 10*time.Second), func() bool { return b.away || b.epoch != before }); err != nil {
				t.Fatal(err)
			}
			r.f.set(func() { r.f.holdLog = false })
			if err := b.await(within(t, 10*time.Second), func() bool { return !b.away && b.epoch > before && b.seen && !b.ackFenced }); err != nil {
				t.Fatal(err)
			}
			if !b.Live() || b.Contested() != nil {
				t.Errorf("live %t, contested: %v", b.Live(), b.Contested())
			}
			r.f.set(func() {
				again := r.f.registrations[len(r.f.registrations)-1]
				if again.IncarnationID == first.IncarnationID || again.LogDirs[0] != first.LogDirs[0] {
					t.Errorf("incarnation %v after %v, directories %v and %v", again.IncarnationID, first.IncarnationID, again.LogDirs, first.LogDirs)
				}
				for _, h := range r.f.heartbeats {
					if h.BrokerEpoch == b.Epoch() {
						if !h.WantFence || len(h.CordonedLogDirs) != 1 {
							t.Errorf("first heartbeat of the new registration: %+v", h)
						}
						break
					}
				}
			})
			// It does all that it did.
			release, err := b.Uncordon(within(t, 10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			release()
			if err := b.GiveUpLeadership(within(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
			// A second time within ten minutes is nobody's mistake.
			r.f.set(func() { r.f.unregister(virtualID) })
			if err := b.await(within(t, 10*time.Second), func() bool { return b.lost == 2 && !b.away && !b.ackFenced }); err != nil {
				t.Fatal(err)
			}
			if err := b.Contested(); err == nil || !strings.Contains(err.Error(), "10001") {
				t.Errorf("contested: %v", err)
			}
			select {
			case err := <-b.Failed():
				t.Errorf("failed: %v", err)
			default:
			}
		})
	}
}

// TestLostRegistrationIsItsOwn: a registration that the controllers did, but did not confirm, is not
// another process's.
func TestLostRegistrationIsItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, 33)
	r.cfg.RejoinDelay = 50 * time.Millisecond
	b := r.started(t)
	before, from := b.Epoch(), 0
	r.f.set(func() {
		from = len(r.f.registrations)
		r.f.registeredBut = kerr.RequestTimedOut.Code
		r.f.unregister(virtualID)
	})
	if err := b.await(within(t, 10*time.Second), func() bool { return !b.away && b.epoch > before && b.seen && !b.ackFenced }); err != nil {
		t.Fatal(err)
	}
	r.f.get(func() bool {
		again := r.f.registrations[from:]
		if len(again) != 2 || again[0].IncarnationID != again[1].IncarnationID {
			t.Errorf("%d registrations, of different incarnations", len(again))
		}
		return true
	})
	// The one after that is a fresh one.
	before = b.Epoch()
	r.f.set(func() { r.f.unregister(virtualID) })
	if err := b.await(within(t, 10*time.Second), func() bool { return !b.away && b.epoch > before }); err != nil {
		t.Fatal(err)
	}
	r.f.get(func() bool {
		if r.f.registrations[from+2].IncarnationID == r.f.registrations[from+1].IncarnationID {
			t.Error("an incarnation was used again")
		}
		return true
	})
}

// TestStopWhileUnregistered: there is nothing to fence.
func TestStopWhileUnregistered(t *testing.T) {
	t.Parallel()
	r := newRig(t, 33)
	r.cfg.RejoinDelay = time.Hour
	b := r.started(t)
	r.f.set(func() { r.f.unregister(virtualID) })
	if err := b.await(within(t, 10*time.Second), func() bool { return b.away }); err != nil {
		t.Fatal(err)
	}
	if b.Live() || b.Epoch() >= 0 {
		t.Errorf("live %t, epoch %d", b.Live(), b.Epoch())
	}
	if err := b.Stop(within(t, 10*time.Second)); err != nil {
		t.Error(err)
	}
}

func TestBrokerIsNotLiveWithoutAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t, 33)
	r.cfg.SessionTimeout = 300 * time.Millisecond
	b := r.started(t)
	deadline := time.Now().Add(10 * time.Second)
	poll := func(live bool) {
		t.Helper()
		for b.Live() != live {
			if time.Now().After(deadline) {
				t.Fatalf("live is %v", !live)
			}
			time.Sleep(5 * time.Millisecond) // polls a clock
		}
	}
	poll(true)
	r.f.set(func() { r.f.mute = true })
	poll(false)
	r.f.set(func() { r.f.mute = false })
	poll(true)
}

func TestUncordonWindows(t *testing.T) {
	t.Parallel()
	r := newRig(t, 33)
	b := r.started(t)
	cordoned := func() bool {
		x, _ := r.img.Broker(virtualID)
		return len(x.CordonedDirs) == 1
	}
	ctx := within(t, 10*time.Second)
	first, err := b.Uncordon(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if cordoned() {
		t.Fatal("the image shows the cordon in the window")
	}
	second, err := b.Uncordon(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first()
	first()
	if cordoned() || !r.f.get(func() bool { return len(r.f.brokers[virtualID].cordoned) == 0 }) {
		t.Fatal("cordoned while a window is open")
	}
	second()
	if !cordoned() {
		t.Fatal("not cordoned after the last window")
	}
}

func TestForgottenUncordonWindowEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, 33)
	r.cfg.MaxUncordoned = 300 * time.Millisecond
	b := r.started(t)
	ctx := within(t, 10*time.Second)
	release, err := b.Uncordon(ctx)
	for errors.Is(err, errWindowUncertain) { // on a loaded machine it may be over before it is seen
		release, err = b.Uncordon(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.f.until("cordoned again", func() bool { return len(r.f.brokers[virtualID].cordoned) == 1 })
	release()
}

func TestUncordonIsSeenThroughTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t, 33)
	b := r.started(t)
	r.f.set(func() { r.f.holdLog = true })
	if _, err := b.Uncordon(within(t, 200*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v, want a deadline: the image cannot know", err)
	}
	r.f.until("cordoned again", func() bool { return len(r.f.brokers[virtualID].cordoned) == 1 })
}

func TestGiveUpLeadership(t *testing.T) {
	t.Parallel()
	r := newRig(t, 33)
	b := r.started(t)
	fenced := make(chan struct{}, 100)
	defer r.img.Subscribe(func(metadata.Delta) {
		if x, _ := r.img.Broker(virtualID); x.Fenced {
			fenced <- struct{}{}
		}
	})()
	if err := b.GiveUpLeadership(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if !r.f.get(func() bool { return !r.f.brokers[virtualID].fenced }) {
		t.Error("fenced at the end")
	}
	select {
	case <-fenced:
	case <-time.After(10 * time.Second):
		t.Error("never fenced")
	}
}

func TestBrokerBehindTheLogIsFenced(t *testing.T) {
	t.Parallel()
	r := newRig(t, 33)
	var mu sync.Mutex
	lag := time.Duration(0)
	r.cfg.Lag = func() time.Duration { mu.Lock(); defer mu.Unlock(); return lag }
	r.cfg.MaxLag = 500 * time.Millisecond
	r.started(t)
	mu.Lock()
	lag = 6 * time.Second
	mu.Unlock()
	r.f.until("fenced", func() bool { return r.f.brokers[virtualID].fenced })
	mu.Lock()
	lag = 0
	mu.Unlock()
	r.f.until("unfenced", func() bool { return !r.f.brokers[virtualID].fenced })
}

// TestControllersAwayIsNotBehindTheLog: when the controllers are back after a while, virtual brokers
// do not ask to be fenced for it, as long as they hear of the log soon.
func TestControllersAwayIsNotBehindTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t, 33)
	r.cfg.MaxLag = 3 * time.Second
	var lag atomic.Int64
	r.cfg.Lag = func() time.Duration { return time.Duration(lag.Load()) }
	b := r.started(t)
	from := 0
	r.f.set(func() { r.f.heartbeatCode = -1 })
	r.f.until("heartbeats that fail for a while", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.answeredSince.IsZero()
	})
	lag.Store(int64(10 * time.Second))
	r.f.set(func() { from = len(r.f.heartbeats) })
	r.f.until("heartbeats that fail", func() bool { return len(r.f.heartbeats) > from+2 })
	r.f.set(func() { r.f.heartbeatCode = 0 })
	r.f.until("heartbeats that are answered", func() bool { return len(r.f.heartbeats) > from+5 })
	b.mu.Lock()
	since := b.answeredSince
	b.mu.Unlock()
	r.f.get(func() bool {
		for i, h := range r.f.heartbeats[from : from+5] {
			// A loaded machine may have let that time pass.
			if h.WantFence && (since.IsZero() || r.f.arrived[from+i].Sub(since) < r.cfg.MaxLag) {
				t.Errorf("heartbeat %d asks to be fenced", i)
			}
		}
		return true
	})
	// But not for ever.
	r.f.until("fenced", func() bool { return r.f.brokers[virtualID].fenced })
}

// TestFailedHeartbeatNowAndThen: it does not make up for being behind the log.
func TestFailedHeartbeatNowAndThen(t *testing.T) {
	t.Parallel()
	r := newRig(t, 33)
	r.cfg.MaxLag = 2 * time.Second
	var lag atomic.Int64
	r.cfg.Lag = func() time.Duration { return time.Duration(lag.Load()) }
	r.started(t)
	r.f.until("unfenced", func() bool { return !r.f.brokers[virtualID].fenced })
	r.f.set(func() { r.f.failEvery = 20 })
	lag.Store(int64(time.Minute))
	r.f.until("fenced", func() bool { return r.f.brokers[virtualID].fenced })
}

func TestStopAndLeave(t *testing.T) {
	t.Parallel()
	t.Run("stop", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, 33)
		b := r.started(t)
		if err := b.Stop(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		if !r.f.get(func() bool { return r.f.brokers[virtualID].fenced }) || b.Live() {
			t.Error("not fenced, or live, after stop")
		}
		if err := b.Stop(within(t, 10*time.Second)); err != nil {
			t.Errorf("second stop: %v", err)
		}
	})
	t.Run("stop without controllers", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, 33)
		b := r.started(t)
		r.f.set(func() { r.f.mute = true })
		if err := b.Stop(within(t, 200*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("leave waits for the controllers", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, 33)
		b := r.started(t)
		r.f.set(func() { r.f.holdOutgoing = true })
		done := make(chan error, 1)
		ctx := within(t, 10*time.Second)
		go func() { done <- b.Leave(ctx) }()
		r.f.until("asked", func() bool { return r.f.heartbeats[len(r.f.heartbeats)-1].WantShutdown })
		select {
		case err := <-done:
			t.Fatalf("left at once: %v", err)
		default:
		}
		r.f.set(func() { r.f.holdOutgoing = false })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := b.Unregister(ctx); err != nil {
			t.Fatal(err)
		}
		if !r.f.get(func() bool { return r.f.brokers[virtualID] == nil }) {
			t.Error("still registered")
		}
	})
	t.Run("a new broker takes the id over at once", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, 33)
		old := r.started(t)
		next := r.started(t)
		select {
		case err := <-old.Failed():
			if !errors.Is(err, ErrUnregistered) {
				t.Errorf("the old one failed with %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the old one goes on")
		}
		if next.Epoch() <= old.Epoch() || !next.Live() {
			t.Errorf("epochs %d and %d, live %v", old.Epoch(), next.Epoch(), next.Live())
		}
	})
}

func TestDirectoryID(t *testing.T) {
	t.Parallel()
	a := DirectoryID("c", 10001)
	if a != DirectoryID("c", 10001) {
		t.Error("not stable")
	}
	for n := range int32(2000) {
		u := DirectoryID("c", 20000+n)
		if u == a || u.String()[0] == '-' || u.IsZero() {
			t.Fatalf("directory id %s of broker %d", u, 20000+n)
		}
	}
}

func TestNewBrokerRefusesNonsense(t *testing.T) {
	t.Parallel()
	ok := BrokerConfig{HomeID: 1, Virtual: 10000, Lag: func() time.Duration { return 0 }, Endpoints: []metadata.Endpoint{{Name: "A"}}}
	for name, edit := range map[string]func(*BrokerConfig){
		"no listener":           func(c *BrokerConfig) { c.Endpoints = nil },
		"no lag":                func(c *BrokerConfig) { c.Lag = nil },
		"home above the offset": func(c *BrokerConfig) { c.HomeID = 10000 },
	} {
		c := ok
		edit(&c)
		if _, err := NewBroker(c, nil, nil, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

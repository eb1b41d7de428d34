package syncs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/syncs/offsets"
)

// groupRig is a source and a destination that both have 20 records in orders-0 and in orders-1.
type groupRig struct {
	t        *testing.T
	src, dst *kgo.Client
	here     *kfake.Cluster
	mirrors  *fakeMirrors
	ledger   *policy.Ledger
	sync     *Groups
	refused  map[string]bool
	asked    []*policyv1.GroupFacts
	during   func() // happens while the policies are asked
	unsure   string // the group that the policies do not decide on
	later    time.Duration
}

func newGroupRig(t *testing.T) *groupRig {
	t.Helper()
	cluster := func(id string) (*kfake.Cluster, *kgo.Client) {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(id), kfake.SeedTopics(2, "orders"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(10*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		for p := range int32(2) {
			for range 20 {
				if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Partition: p}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
		return c, cl
	}
	r := &groupRig{t: t, refused: map[string]bool{}, ledger: policy.NewLedger()}
	_, r.src = cluster("there")
	r.here, r.dst = cluster("here")
	m := testMirror(t, "m", "there")
	m.Topics = []Topic{{Name: "orders", ID: ids.UUID{1}}}
	r.mirrors = newMirrors(m)
	r.restart()
	return r
}

// restart makes the sync anew: what it remembers is gone.
func (r *groupRig) restart() {
	r.sync = NewGroups(GroupsConfig{
		Here:    Here{Destination: r.dst, ClusterID: "here", Mirrors: r.mirrors, Ledger: r.ledger, Log: slog.New(slog.DiscardHandler)},
		Virtual: 1000, Policies: r,
	})
	r.sync.now = func() time.Time { return time.Now().Add(r.later) }
}

// Groups implements GroupPolicies.
func (r *groupRig) Groups(_ context.Context, _ policy.Question, facts []*policyv1.GroupFacts) ([]policy.Verdict, error) {
	r.asked = facts
	if r.during != nil {
		r.during()
	}
	out := make([]policy.Verdict, len(facts))
	for i, f := range facts {
		out[i] = policy.Verdict{Accepted: !r.refused[f.GetGroup()] && r.unsure != f.GetGroup(), Undecided: r.unsure == f.GetGroup(), Reason: "a test says so"}
	}
	return out, nil
}

func (r *groupRig) commit(cl *kgo.Client, group string, partition int32, at int64) {
	r.t.Helper()
	o := kadm.Offsets{}
	o.Add(kadm.Offset{Topic: "orders", Partition: partition, At: at, LeaderEpoch: -1, Metadata: "as it was"})
	if err := kadm.NewClient(cl).CommitAllOffsets(r.t.Context(), group, o); err != nil {
		r.t.Fatal(err)
	}
}

func (r *groupRig) remove(cl *kgo.Client, group string) {
	r.t.Helper()
	if _, err := kadm.NewClient(cl).DeleteGroup(r.t.Context(), group); err != nil {
		r.t.Fatal(err)
	}
}

func (r *groupRig) at(group string, partition int32) int64 {
	r.t.Helper()
	got, err := kadm.NewClient(r.dst).FetchOffsets(r.t.Context(), group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return -1
	}
	if err != nil {
		r.t.Fatal(err)
	}
	if o, ok := got.Lookup("orders", partition); ok {
		return o.At
	}
	return -1
}

func (r *groupRig) wants(group string, partition int32, want int64) {
	r.t.Helper()
	if got := r.at(group, partition); got != want {
		r.t.Errorf("group %s stands at %d in orders-%d, want %d", group, got, partition, want)
	}
}

func (r *groupRig) run(why policyv1.Round_Why) Report {
	r.t.Helper()
	m, err := r.mirrors.Mirror(r.t.Context(), "m")
	if err != nil {
		r.t.Fatal(err)
	}
	report, err := r.sync.Sync(r.t.Context(), m, r.src, why)
	if err != nil {
		r.t.Fatal(err)
	}
	return report
}

func (r *groupRig) round() Report { r.t.Helper(); return r.run(policyv1.Round_REFRESH) }

// commits counts the OffsetCommits that arrive from now on.
func (r *groupRig) commits() *int {
	n := new(int)
	r.here.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		r.here.KeepControl()
		*n++
		return nil, nil, false
	})
	return n
}

func TestGroupsCommitOnlyWhatDiffers(t *testing.T) {
	r := newGroupRig(t)
	r.commit(r.src, "a", 0, 7)
	r.commit(r.src, "a", 1, 3)
	r.commit(r.src, "b", 0, 9)
	got := r.run(policyv1.Round_DRY_RUN)
	if len(got.Changes) != 2 || got.Changes[0].Detail != "orders-0: none to 7, orders-1: none to 3" {
		t.Errorf("a dry run says %+v", got.Changes)
	}
	r.wants("a", 0, -1)
	n := r.commits()
	r.round()
	r.wants("a", 0, 7)
	r.wants("a", 1, 3)
	r.wants("b", 0, 9)
	if f := r.asked[0]; f.GetGroup() != "a" || f.GetOffsets()[0].GetSourceOffset() != 7 || f.GetOffsets()[0].GetEndHere() != 20 || f.GetOwned() {
		t.Errorf("the policy was told %v", f)
	}
	r.round()
	r.commit(r.src, "b", 0, 10)
	if got := r.round(); len(got.Changes) != 1 || got.Changes[0].Item != "b" {
		t.Errorf("changed %+v", got.Changes)
	}
	if *n != 3 {
		t.Errorf("%d commits, want 3", *n)
	}
	if !r.asked[0].GetOwned() {
		t.Error("what the mirror has written to is not said to be its own")
	}
	if e, _ := r.ledger.Get("m", policy.Groups, "b"); e.LastApplied.IsZero() || e.Why() != "" && e.Accepted {
		t.Errorf("the ledger has %+v", e)
	}
}

func TestGroupsThatWereReadHereOnlyMoveForward(t *testing.T) {
	r := newGroupRig(t)
	r.commit(r.src, "g", 0, 10)
	r.round()
	r.commit(r.src, "g", 0, 4) // a reset at the source
	r.round()
	r.wants("g", 0, 4)
	r.commit(r.dst, "g", 0, 12) // it reads here
	got := r.round()
	r.wants("g", 0, 12)
	if len(got.Skipped) != 1 || !strings.Contains(got.Skipped[0].Reason, "12 is committed here by another") {
		t.Errorf("skipped: %+v", got.Skipped)
	}
	r.commit(r.src, "g", 0, 15)
	r.round()
	r.wants("g", 0, 15)

	// After a restart what is here is another's, until it proves to be the source's.
	r.restart()
	r.commit(r.src, "g", 0, 6)
	r.round()
	r.wants("g", 0, 15)
	r.commit(r.src, "g", 0, 15)
	r.round()
	r.commit(r.src, "g", 0, 6)
	r.round()
	r.wants("g", 0, 6)
}

// Consumers may come and go between the moment in which a group is looked at and that in which it
// is committed for.
func TestGroupsThatWereReadHereMeanwhileAreNotMovedBack(t *testing.T) {
	r := newGroupRig(t)
	r.commit(r.src, "g", 0, 5)
	r.commit(r.src, "g", 1, 5)
	r.round()
	r.commit(r.src, "g", 0, 7)
	r.commit(r.src, "g", 1, 7)
	r.during = func() { r.commit(r.dst, "g", 0, 9) }
	r.round()
	r.wants("g", 0, 9)
	r.wants("g", 1, 7)
}

// What was committed here before the topic was mirrored is of another log.
func TestGroupsOfBeforeTheMirrorGiveWay(t *testing.T) {
	r := newGroupRig(t)
	r.commit(r.dst, "g", 0, 18)
	r.commit(r.dst, "other", 0, 18)
	r.commit(r.src, "g", 0, 11)
	r.mirrors.set(func(f *fakeMirrors) {
		m := f.mirrors["m"]
		m.Topics[0].Truncating = []int32{0, 1}
		f.mirrors["m"] = m
	})
	r.round()
	r.wants("g", 0, 18)
	r.mirrors.set(func(f *fakeMirrors) { f.mirrors["m"].Topics[0].Truncating = nil })
	r.round()
	r.wants("g", 0, 11)
	r.wants("other", 0, 18)
	r.commit(r.src, "other", 0, 5) // it is at the source too by now
	r.round()
	r.wants("other", 0, 18)
}

func TestGroupsDeletedHereStayDeleted(t *testing.T) {
	r := newGroupRig(t)
	r.commit(r.src, "g", 0, 10)
	r.commit(r.src, "h", 0, 10)
	r.round()
	r.remove(r.dst, "g")
	r.commit(r.src, "g", 0, 12)
	for range 2 {
		got := r.round()
		r.wants("g", 0, -1)
		if len(got.Skipped) != 1 || !strings.Contains(got.Skipped[0].Reason, "deleted here") {
			t.Errorf("skipped: %+v", got.Skipped)
		}
		r.restart()
	}

	// Gone at the source, and back; others are not touched by that.
	r.remove(r.src, "g")
	r.remove(r.src, "h")
	r.round()
	r.later += goneAfter
	r.round()
	r.wants("h", 0, 10)
	r.commit(r.src, "g", 0, 13)
	r.round()
	r.wants("g", 0, 13)

	// Refused by a policy, and accepted.
	r.remove(r.dst, "g")
	r.round()
	r.refused["g"] = true
	r.round()
	r.refused["g"] = false
	r.round()
	r.wants("g", 0, 13)

	// Stopped, and started. A pause says nothing.
	r.remove(r.dst, "g")
	r.round()
	r.mirrors.set(func(f *fakeMirrors) {
		m := f.mirrors["m"]
		m.Topics, m.Held = nil, m.Topics
		f.mirrors["m"] = m
	})
	if got := r.round(); got.Note == "" {
		t.Error("nothing is said of a mirror without topics")
	}
	resume := func(f *fakeMirrors) {
		m := f.mirrors["m"]
		m.Topics, m.Held = []Topic{{Name: "orders", ID: ids.UUID{1}}}, nil
		f.mirrors["m"] = m
	}
	r.mirrors.set(resume)
	r.round()
	r.wants("g", 0, -1)
	r.mirrors.set(func(f *fakeMirrors) {
		m := f.mirrors["m"]
		m.Topics, m.Held = nil, nil
		f.mirrors["m"] = m
	})
	r.round()
	r.mirrors.set(resume)
	r.round()
	r.wants("g", 0, 13)

	// Another topic of that name: its offsets went with the old one.
	r.remove(r.dst, "g")
	r.mirrors.set(func(f *fakeMirrors) { f.mirrors["m"].Topics[0].ID = ids.UUID{2} })
	r.round()
	r.wants("g", 0, 13)
}

// Between the plan and the commit the consumers of a group may come here.
func TestGroupsThatBecomeActiveAreNamed(t *testing.T) {
	r := newGroupRig(t)
	r.commit(r.src, "g", 0, 10)
	r.here.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)    //nolint:forcetypeassert // it answers this request
		for _, t := range req.(*kmsg.OffsetCommitRequest).Topics { //nolint:forcetypeassert // its key says so
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetCommitResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.UnknownMemberID.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	got := r.round()
	if len(got.Skipped) != 1 || got.Skipped[0] != (Skip{"g", offsets.ErrActive.Error()}) || len(got.Changes) != 0 {
		t.Errorf("%+v", got)
	}
	if n := r.owned(); n != 0 {
		t.Errorf("%d items are the mirror's: a group that was not written to would be taken for deleted", n)
	}
	r.round()
	r.wants("g", 0, 10)
}

// A topic that was stopped since the round began is not committed for.
func TestGroupsOfATopicStoppedMeanwhileAreLeft(t *testing.T) {
	r := newGroupRig(t)
	r.commit(r.src, "g", 0, 10)
	m, err := r.mirrors.Mirror(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	r.mirrors.set(func(f *fakeMirrors) {
		now := f.mirrors["m"]
		now.Topics = nil
		f.mirrors["m"] = now
	})
	if _, err := r.sync.Sync(t.Context(), m, r.src, policyv1.Round_REFRESH); err != nil {
		t.Fatal(err)
	}
	r.wants("g", 0, -1)
	// The last round of a stop comes before anything is written.
	if _, err := r.sync.Sync(t.Context(), m, r.src, policyv1.Round_STOP); err != nil {
		t.Fatal(err)
	}
	r.wants("g", 0, 10)
}

// Nobody knows what was written: the next round finds it, and takes it for its own.
func TestGroupsAreOwnedOnceThatIsWrittenDown(t *testing.T) {
	r := newGroupRig(t)
	r.commit(r.src, "g", 0, 10)
	r.mirrors.set(func(f *fakeMirrors) { f.ownErr = errors.New("the state cannot be written") })
	m, _ := r.mirrors.Mirror(t.Context(), "m")
	if _, err := r.sync.Sync(t.Context(), m, r.src, policyv1.Round_REFRESH); err == nil {
		t.Error("no error")
	}
	r.wants("g", 0, 10)
	r.mirrors.set(func(f *fakeMirrors) { f.ownErr = nil })
	r.restart()
	r.round()
	r.remove(r.dst, "g")
	r.round()
	r.wants("g", 0, -1)
}

// owned counts the groups that are the mirror's in a topic.
func (r *groupRig) owned() (n int) {
	for item := range r.mirrors.Owned("m", policy.Groups) {
		if id, group := groupOfItem(item); item == id+"/"+group && group != "" {
			n++
		}
	}
	return n
}

// joined has a member of the classic protocol come and go here.
func (r *groupRig) joined(group string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.here.ListenAddrs()...), kgo.ConsumerGroup(group), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(),
		kgo.Balancers(kgo.RangeBalancer()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer cl.Close()
	if f := cl.PollFetches(ctx); f.Err() != nil {
		r.t.Fatal(f.Err())
	}
	if err := cl.LeaveGroupContext(ctx); err != nil {
		r.t.Fatal(err)
	}
	for {
		listed, err := offsets.List(ctx, r.dst, nil)
		if err != nil {
			r.t.Fatal(err)
		}
		if g := listed[group]; g.ProtocolType == "consumer" && !g.Active() {
			return
		}
	}
}

// Kafka lets the offsets of a group that once had members expire when it has had none for so long,
// however lately somebody else has committed them.
func TestGroupsThatMayHaveExpiredAreNotTakenForDeleted(t *testing.T) {
	r := newGroupRig(t)
	r.commit(r.src, "reader", 0, 10)
	r.commit(r.src, "g", 0, 10)
	r.round()
	r.joined("reader")
	for range 8 {
		r.round()
		r.wants("reader", 0, 10)
		r.later += 24 * time.Hour
	}
	r.restart()
	r.round()
	r.remove(r.dst, "reader")
	r.remove(r.dst, "g")
	r.round()
	r.wants("reader", 0, 10)
	r.wants("g", 0, -1)

	// It has no members now, and what is deleted of it is.
	r.round()
	r.remove(r.dst, "reader")
	r.round()
	r.wants("reader", 0, -1)

	// What was deleted stays so however long that takes, and whatever comes between.
	r.later += 8 * 24 * time.Hour
	r.round()
	r.restart()
	r.round()
	r.wants("reader", 0, -1)
	r.wants("g", 0, -1)

	// Nothing was done for long, and nothing is remembered.
	r.commit(r.src, "h", 0, 10)
	r.round()
	r.wants("h", 0, 10)
	r.later += 8 * 24 * time.Hour
	r.restart()
	r.remove(r.dst, "h")
	r.round()
	r.wants("h", 0, 10)
	r.wants("g", 0, -1)
}

// Consumers who were here for less than that, and a group that is deleted then.
func TestGroupsOfReadersThatAreDeletedStayDeleted(t *testing.T) {
	r := newGroupRig(t)
	r.commit(r.src, "reader", 0, 10)
	r.round()
	r.joined("reader")
	r.round()
	r.later += 2 * 24 * time.Hour
	r.round()
	r.remove(r.dst, "reader")
	r.round()
	r.wants("reader", 0, -1)
}

// Of a group that was here without members before anybody looked, or came and went between looks,
// nobody knows when it expires.
func TestGroupsOfReadersThatLeftUnseenAreNotTakenForDeleted(t *testing.T) {
	for name, before := range map[string]func(r *groupRig){
		"before the mirror": func(*groupRig) {},
		"between two rounds": func(r *groupRig) {
			r.round()
			r.later += 3 * 24 * time.Hour
		},
		"before a restart": func(r *groupRig) {
			r.round()
			r.restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newGroupRig(t)
			r.commit(r.src, "reader", 0, 10)
			before(r)
			r.joined("reader")
			for range 2 {
				r.round()
				r.wants("reader", 0, 10)
				r.later += 24 * time.Hour
			}
			r.restart()
			r.round()
			r.remove(r.dst, "reader")
			r.round()
			r.wants("reader", 0, 10)

			// What was copied anew has no readers of whom nothing is known.
			r.round()
			r.remove(r.dst, "reader")
			r.round()
			r.wants("reader", 0, -1)
		})
	}
}

// A group that cannot be looked at once more just before it is committed for is not this mirror's in
// a topic of which something is missing, although other partitions are as they should be.
func TestGroupsThatCannotBeLookedAtAgainAreCopiedLater(t *testing.T) {
	r := newGroupRig(t)
	r.commit(r.src, "g", 0, 11)
	r.commit(r.src, "g", 1, 11)
	r.commit(r.dst, "g", 0, 11)
	r.commit(r.dst, "g", 1, 18)
	failed := false
	r.here.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.here.KeepControl()
		if len(r.asked) == 0 || failed {
			return nil, nil, false
		}
		failed = true
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse) //nolint:forcetypeassert // it answers this request
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		for _, g := range req.(*kmsg.OffsetFetchRequest).Groups { //nolint:forcetypeassert // its key says so
			rg := kmsg.NewOffsetFetchResponseGroup()
			rg.Group, rg.ErrorCode = g.Group, kerr.GroupAuthorizationFailed.Code
			resp.Groups = append(resp.Groups, rg)
		}
		return resp, nil, true
	})
	m, _ := r.mirrors.Mirror(t.Context(), "m")
	if _, err := r.sync.Sync(t.Context(), m, r.src, policyv1.Round_REFRESH); err == nil || !strings.Contains(err.Error(), "its offsets here") {
		t.Errorf("the round says %v", err)
	}
	// The policies of this test tell the ledger nothing: what fails counts as left out.
	if e, _ := r.ledger.Get("m", policy.Groups, "g"); !strings.Contains(e.Why(), "its offsets here") || !e.LastApplied.IsZero() {
		t.Errorf("the ledger has %+v", e)
	}
	r.wants("g", 1, 18)
	r.round()
	r.wants("g", 0, 11)
	r.wants("g", 1, 11)
}

// What was deleted is told whatever else is kept: --switchover goes by it.
func TestGroupsTellOfWhatWasDeletedFirst(t *testing.T) {
	var kept []offsets.Kept
	for i := range int32(5) {
		kept = append(kept, offsets.Kept{Partition: offsets.Partition{Topic: "orders", Partition: i}, Reason: "of another"})
	}
	kept[4].Reason = offsets.DeletedHere + ", and stay so"
	if got, want := keptText(kept), "orders-4: "+kept[4].Reason+"; orders-0: of another; orders-1: of another; and 2 more"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What could not be copied at first is of before the mirror until it was.
func TestGroupsThatWereMissedAtFirstGiveWayLater(t *testing.T) {
	for name, c := range map[string]struct{ before, after func(r *groupRig) }{
		"the policies do not decide": {func(r *groupRig) { r.unsure = "g" }, func(r *groupRig) { r.unsure = "" }},
		"it is not committed": {func(r *groupRig) {
			failed := false
			r.here.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
				c := req.(*kmsg.OffsetCommitRequest) //nolint:forcetypeassert // its key says so
				if failed || c.Group != "g" || c.Topics[0].Partitions[0].Offset == 18 {
					r.here.KeepControl()
					return nil, nil, false
				}
				failed = true
				resp := req.ResponseKind().(*kmsg.OffsetCommitResponse) //nolint:forcetypeassert // it answers this request
				for _, t := range c.Topics {
					rt := kmsg.NewOffsetCommitResponseTopic()
					rt.Topic, rt.TopicID = t.Topic, t.TopicID
					for _, p := range t.Partitions {
						rp := kmsg.NewOffsetCommitResponseTopicPartition()
						rp.Partition, rp.ErrorCode = p.Partition, kerr.InvalidCommitOffsetSize.Code
						rt.Partitions = append(rt.Partitions, rp)
					}
					resp.Topics = append(resp.Topics, rt)
				}
				return resp, nil, true
			})
		}, func(*groupRig) {}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newGroupRig(t)
			r.commit(r.dst, "g", 0, 18)
			r.commit(r.src, "g", 0, 11)
			c.before(r)
			m, _ := r.mirrors.Mirror(t.Context(), "m")
			_, _ = r.sync.Sync(t.Context(), m, r.src, policyv1.Round_REFRESH)
			r.wants("g", 0, 18)
			c.after(r)
			r.round()
			r.wants("g", 0, 11)
		})
	}
}

// Nor does a group that cannot be copied hold up others.
func TestGroupsAreReadHereAlthoughAnotherIsNotCopied(t *testing.T) {
	r := newGroupRig(t)
	r.unsure = "other"
	r.commit(r.src, "other", 0, 11)
	r.commit(r.src, "g", 0, 11)
	r.commit(r.dst, "g", 0, 18)
	r.round()
	r.wants("g", 0, 11)
	r.commit(r.dst, "g", 0, 15)
	r.restart()
	r.round()
	r.wants("g", 0, 15)
}

// A partition that does not begin holds up no other one: what is read here then is not read again.
func TestGroupsAreReadHereAlthoughAPartitionDoesNotBegin(t *testing.T) {
	r := newGroupRig(t)
	r.mirrors.set(func(f *fakeMirrors) { f.mirrors["m"].Topics[0].Truncating = []int32{1} })
	for p := range int32(2) {
		r.commit(r.src, "g", p, 11)
		r.commit(r.dst, "g", p, 18)
	}
	r.round()
	r.wants("g", 0, 11)
	r.wants("g", 1, 18)
	r.commit(r.dst, "g", 0, 15)
	r.round()
	r.restart()
	r.round()
	r.wants("g", 0, 15)
	r.mirrors.set(func(f *fakeMirrors) { f.mirrors["m"].Topics[0].Truncating = nil })
	r.round()
	r.wants("g", 1, 11)
	r.commit(r.dst, "g", 1, 15)
	r.round()
	r.restart()
	r.round()
	r.wants("g", 1, 15)
}

// A list may lack a group once.
func TestGroupsAreGoneOnceTwoListsLackThem(t *testing.T) {
	m, now := newGroupMemory(), time.Now()
	lacking := func(groups ...string) map[string]bool {
		out := map[string]bool{}
		for _, g := range groups {
			out[g] = true
		}
		return m.gone(out, now)
	}
	for i, c := range []struct {
		lacks []string
		after time.Duration
		gone  int
	}{{[]string{"g"}, 0, 0}, {[]string{"g"}, time.Second, 0}, {nil, time.Minute, 0}, {[]string{"g"}, time.Minute, 0}, {[]string{"g", "h"}, goneAfter, 1}} {
		now = now.Add(c.after)
		if got := lacking(c.lacks...); len(got) != c.gone {
			t.Errorf("list %d: gone are %v", i, got)
		}
	}
}

// What a reader has committed here does not become the mirror's by being what the source has.
func TestGroupsOfReadersAreMovedForwardOnlyAfterARestart(t *testing.T) {
	r := newGroupRig(t)
	r.commit(r.src, "g", 0, 10)
	r.round()
	r.joined("g")
	r.restart()
	r.round()
	r.later += 4 * 24 * time.Hour // it is committed again
	r.round()
	r.commit(r.src, "g", 0, 4)
	r.round()
	r.wants("g", 0, 10)
}

// The source may be lost when a topic is stopped.
func TestGroupsAreGivenUpWithoutTheSource(t *testing.T) {
	r := newGroupRig(t)
	r.commit(r.src, "g", 0, 10)
	r.round()
	if r.owned() != 1 {
		t.Fatal("nothing is the mirror's")
	}
	r.mirrors.set(func(f *fakeMirrors) {
		m := f.mirrors["m"]
		m.Topics = nil
		f.mirrors["m"] = m
	})
	s := New(Config{Source: func(*config.Mirror) (*kgo.Client, error) { return nil, errors.New("it is lost") }}, r.mirrors, r.ledger, slog.New(slog.DiscardHandler), r.sync)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop(context.WithoutCancel(t.Context())) }()
	if _, err := s.Run(t.Context(), "m", policy.Groups, policyv1.Round_REFRESH); err == nil {
		t.Error("no error")
	}
	if n := len(r.mirrors.Owned("m", policy.Groups)); n != 0 {
		t.Errorf("%d items are the mirror's still", n)
	}
}

func TestGroupsWanted(t *testing.T) {
	for props, want := range map[[4]string]bool{
		{}:                                true,
		{"mirror.groups.include", ""}:     false,
		{"mirror.policy.groups", ""}:      false,
		{"mirror.policy.groups", "teams"}: true,
		{"mirror.policy.groups", "teams", "mirror.groups.include", ""}: true,
	} {
		var p []string
		for i := 0; i < len(props) && props[i] != ""; i += 2 {
			p = append(p, props[i], props[i+1])
		}
		if got := (&Groups{}).Wanted(testMirror(t, "m", "there", p...)); got != want {
			t.Errorf("%v: %t", p, got)
		}
	}
}

func TestGroupMemory(t *testing.T) {
	const keep = 7 * 24 * time.Hour
	p := offsets.Partition{Topic: "orders"}
	m, now := newGroupMemory(), time.Now()
	m.committed("g", p, 5, now)
	for _, c := range []struct {
		after time.Duration
		at    int64
		due   bool
	}{{time.Hour, 5, false}, {keep/3 + time.Second, 5, true}, {keep, 6, false}} {
		if got := m.due("g", p, c.at, now.Add(c.after), keep); got != c.due {
			t.Errorf("offset %d after %s: due %t", c.at, c.after, got)
		}
	}
	// Found after a restart: again within the hour, and not all groups at once.
	early := 0
	for i := range 100 {
		g := string(rune('a'+i%26)) + string(rune('a'+i/26))
		m.found(g, p, 5, now, keep, true)
		if m.due(g, p, 5, now.Add(30*time.Minute), keep) {
			early++
		}
		if m.due(g, p, 5, now, keep) || !m.due(g, p, 5, now.Add(time.Hour), keep) {
			t.Errorf("group %s is not committed again within the hour", g)
		}
	}
	if early < 20 || early > 80 {
		t.Errorf("%d of 100 within half of the time", early)
	}
	// Nobody has committed for half of the time: that they are gone says nothing.
	m.saw("i", now)
	m.begin(map[string]int64{fmt.Sprintf("%s%d/", roundPrefix, now.UnixMilli()): 0})
	for _, item := range []string{"i", "of before a restart"} {
		if m.expired(item, now.Add(keep/3), keep) || !m.expired(item, now.Add(keep/2), keep) {
			t.Errorf("%s: what expires is taken for deleted, or the reverse", item)
		}
	}
}

// One round copies thousands of groups, exactly; the next has nothing to do.
func TestGroupsByTheThousands(t *testing.T) {
	r := newGroupRig(t)
	const groups = 1000 // test/policies has more
	name := func(i int) string { return fmt.Sprintf("g-%04d", i) }
	want := func(i int) int64 { return int64(i%20 + 1) }
	var names []string
	var writers errgroup.Group
	writers.SetLimit(8)
	for i := range groups {
		names = append(names, name(i))
		writers.Go(func() error {
			o := kadm.Offsets{}
			o.Add(kadm.Offset{Topic: "orders", Partition: int32(i % 2), At: want(i), LeaderEpoch: -1})
			return kadm.NewClient(r.src).CommitAllOffsets(t.Context(), name(i), o)
		})
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if got := r.round(); len(got.Changes) != groups {
		t.Errorf("%d groups were changed", len(got.Changes))
	}
	t.Logf("%d groups took %s", groups, time.Since(begun).Round(time.Millisecond))
	fetched := kadm.NewClient(r.dst).FetchManyOffsets(t.Context(), names...)
	for i := range groups {
		o, ok := fetched[name(i)].Fetched.Lookup("orders", int32(i%2))
		if !ok || o.At != want(i) {
			t.Fatalf("group %d stands at %d (%t), want %d", i, o.At, ok, want(i))
		}
	}
	n := r.commits()
	if got := r.round(); len(got.Changes)+*n != 0 {
		t.Errorf("the second round has changed %d groups with %d commits", len(got.Changes), *n)
	}
}

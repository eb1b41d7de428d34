package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// none is no offset at all.
const none = int64(-1)

// at is an offset in a partition.
type at struct {
	partition int32
	offset    int64
}

// commit commits for a group without members.
func commit(t *testing.T, adm *kadm.Client, group, topic string, all ...at) {
	t.Helper()
	o := kadm.Offsets{}
	for _, a := range all {
		o.Add(kadm.Offset{Topic: topic, Partition: a.partition, At: a.offset, LeaderEpoch: -1, Metadata: "of " + group})
	}
	if err := adm.CommitAllOffsets(t.Context(), group, o); err != nil {
		t.Fatalf("commit for group %s: %v", group, err)
	}
}

// here returns what a group has committed for a partition of this cluster.
func (e *env) here(ctx context.Context, group, topic string, partition int32) (kadm.Offset, error) {
	got, err := e.dstAdmin.FetchOffsets(ctx, group)
	if err != nil {
		return kadm.Offset{}, err
	}
	o, ok := got.Lookup(topic, partition)
	if !ok {
		return kadm.Offset{At: none}, nil
	}
	return o.Offset, o.Err
}

// arrives returns when a group stands where it should here.
func (e *env) arrives(t *testing.T, group, topic string, all ...at) {
	t.Helper()
	harness.AwaitT(t, patience, "group "+group+" is copied", func(ctx context.Context) error {
		for _, a := range all {
			o, err := e.here(ctx, group, topic, a.partition)
			if err == nil && o.At != a.offset {
				err = fmt.Errorf("it stands at %d in %s-%d, want %d", o.At, topic, a.partition, a.offset)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// rounds returns when the groups of a mirror have been looked at at least once from now on: a group
// that was committed for meanwhile has come.
func (e *env) rounds(t *testing.T, topic string) {
	t.Helper()
	for range 2 { // the first may have begun before
		witness := fmt.Sprintf("witness-%s-%d", topic, time.Now().UnixNano())
		commit(t, e.srcAdmin, witness, topic, at{0, 1})
		e.arrives(t, witness, topic, at{0, 1})
	}
}

// step is what --explain says.
type explained struct {
	Mirror   string `json:"mirror"`
	Mirrored bool   `json:"mirrored"`
	Steps    []struct {
		Rule   string `json:"rule"`
		Plugin string `json:"plugin"`
		Passed bool   `json:"passed"`
		Reason string `json:"reason"`
	} `json:"steps"`
}

func (e *env) explainGroup(ctx context.Context, mirror, group string) (explained, string, error) {
	out, err := e.dst.CLI(ctx, "--explain", "--group", group, "--mirror", mirror, "--json")
	var all []explained
	if err == nil {
		err = json.Unmarshal([]byte(out), &all)
	}
	if err == nil && len(all) != 1 {
		err = errors.New("not one explanation")
	}
	if err != nil {
		return explained{}, out, fmt.Errorf("%w: %s", err, out)
	}
	return all[0], out, nil
}

// explains returns when --explain has words of a group.
func (e *env) explains(t *testing.T, mirror, group string, mirrored bool, words ...string) {
	t.Helper()
	harness.AwaitT(t, patience, "why group "+group+" is or is not copied", func(ctx context.Context) error {
		x, out, err := e.explainGroup(ctx, mirror, group)
		if err != nil {
			return err
		}
		for _, w := range words {
			if !strings.Contains(out, w) || x.Mirrored != mirrored {
				return fmt.Errorf("mirrored: %t, without %q: %s", x.Mirrored, w, out)
			}
		}
		return nil
	})
}

// prepare makes a mirror of topics of the given name with the default configuration, and more.
func (e *env) prepare(t *testing.T, name string, partitions int32, records int, more map[string]string) {
	t.Helper()
	e.sourceTopic(t, name, partitions, records)
	e.mirror(t, name, more)
	e.begin(t, name, name)
}

// reader is a member of a group here that reads through the proxies.
func (e *env) reader(t *testing.T, group, topic string) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(quick(
		kgo.SeedBrokers(e.dst.Proxies()...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// reads reads so many records at least and commits that.
func reads(t *testing.T, cl *kgo.Client, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for got := 0; got < n; {
		f := cl.PollFetches(ctx)
		if err := f.Err0(); err != nil {
			t.Fatalf("read: %v, %d of %d have come", err, got, n)
		}
		got += f.NumRecords()
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
}

// Complaint 1: offsets of groups that are active at the target are rewound.
func TestComplaint01GroupsActiveHereAreNotRewound(t *testing.T) {
	t.Parallel()
	e := start(t)
	const name = "c01-active"
	e.prepare(t, name, 1, 50, nil)
	cl := e.reader(t, name, name)
	reads(t, cl, 50)
	commit(t, e.srcAdmin, name, name, at{0, 10})
	e.rounds(t, name)
	e.arrives(t, name, name, at{0, 50})
	e.explains(t, name, name, false, "active here: Stable")

	cl.Close()
	harness.AwaitT(t, patience, "the group is left", func(ctx context.Context) error {
		g, err := e.dstAdmin.DescribeGroups(ctx, name)
		if err == nil && g[name].State != "Empty" {
			err = errors.New(g[name].State)
		}
		return err
	})
	commit(t, e.srcAdmin, name, name, at{0, 20})
	e.rounds(t, name)
	e.arrives(t, name, name, at{0, 50})
	e.explains(t, name, name, false, "50 is committed here by another than the mirror", "the source has 20")

	e.write(t, name, 0, 50)
	e.mirrored(t, name)
	commit(t, e.srcAdmin, name, name, at{0, 60})
	e.arrives(t, name, name, at{0, 60})
}

// Complaint 2: offsets lie ahead of the log, lag is negative downstream.
func TestComplaint02OffsetsAreNeverAheadOfTheLog(t *testing.T) {
	t.Parallel()
	e := start(t)
	const name = "c02-ahead"
	e.prepare(t, name, 1, 50, nil)
	commit(t, e.srcAdmin, name, name, at{0, 1000})
	e.arrives(t, name, name, at{0, 50})
	e.write(t, name, 0, 30)
	e.arrives(t, name, name, at{0, 80})
}

// Complaint 3: groups that are far behind get no usable offset; here the numbers are the same. One
// that stands before the log begins is at its beginning.
func TestComplaint03GroupsFarBehindKeepTheirOffset(t *testing.T) {
	t.Parallel()
	e := start(t)
	const name = "c03-behind"
	e.sourceTopic(t, name, 2, 50)
	cut := kadm.Offsets{}
	cut.Add(kadm.Offset{Topic: name, Partition: 1, At: 20})
	if _, err := e.srcAdmin.DeleteRecords(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	commit(t, e.srcAdmin, name, name, at{0, 3}, at{1, 7})
	e.mirror(t, name, nil)
	e.begin(t, name, name)
	e.arrives(t, name, name, at{0, 3}, at{1, 20})
}

// Complaint 4: a restart interrupts the copying of offsets for good.
func TestComplaint04OffsetsAreCopiedAfterARestart(t *testing.T) {
	harness.SkipShort(t)
	if !harness.Full() {
		t.Skip("MIRROR_FULL=1 runs it: nothing runs beside it")
	}
	e := start(t)
	const name = "c04-restart"
	e.prepare(t, name, 1, 50, nil)
	commit(t, e.srcAdmin, name, name, at{0, 10})
	e.arrives(t, name, name, at{0, 10})
	who := e.coordinates(t, name)
	if err := who.Kill(); err != nil {
		t.Fatal(err)
	}
	commit(t, e.srcAdmin, name, name, at{0, 20})
	e.arrives(t, name, name, at{0, 20})
	if err := who.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	commit(t, e.srcAdmin, name, name, at{0, 30})
	e.arrives(t, name, name, at{0, 30})
}

// Complaint 5: where little is written the lag never reaches zero.
func TestComplaint05LagOfSlowTopicsReachesZero(t *testing.T) {
	t.Parallel()
	e := start(t)
	const name = "c05-slow"
	e.prepare(t, name, 1, 1, nil)
	commit(t, e.srcAdmin, name, name, at{0, 1})
	harness.AwaitT(t, patience, "the lag is zero", func(ctx context.Context) error {
		lags, err := e.dstAdmin.Lag(ctx, name)
		if err == nil {
			err = lags.Error()
		}
		if err != nil {
			return err
		}
		l, ok := lags[name].Lag.Lookup(name, 0)
		if !ok || l.Commit.At != 1 || l.Lag != 0 {
			return fmt.Errorf("the lag is %+v", l)
		}
		return nil
	})
}

// Complaint 6: the source's offset is written for empty partitions.
func TestComplaint06NothingIsCommittedForEmptyPartitions(t *testing.T) {
	t.Parallel()
	e := start(t)
	const name = "c06-empty"
	e.sourceTopic(t, name, 3, 0)
	e.write(t, name, 0, 5)
	e.mirror(t, name, nil)
	e.begin(t, name, name)
	commit(t, e.srcAdmin, name, name, at{0, 5}, at{1, 0}, at{2, 7})
	e.arrives(t, name, name, at{0, 5})
	e.rounds(t, name)
	// Partition 2 has no records either: its group begins where it ends.
	e.arrives(t, name, name, at{0, 5}, at{1, none}, at{2, 0})
}

// Complaint 14: offsets are not copied although the sync is on, and nobody says why.
func TestComplaint14OffsetsAreCopiedWithoutConfigurationOrItIsSaidWhy(t *testing.T) {
	t.Parallel()
	e := start(t)
	const name = "c14-default"
	e.prepare(t, name, 1, 50, nil)
	commit(t, e.srcAdmin, name, name, at{0, 17})
	e.arrives(t, name, name, at{0, 17})
	e.explains(t, name, name, true, `included by the pattern \".*\"`)
	e.cli(t, "--alter", "--mirror", name, "--add-config", "mirror.groups.exclude=c14-.*")
	e.explains(t, name, name, false, "mirror.groups.exclude", `excluded by the pattern \"c14-.*\"`)
	commit(t, e.srcAdmin, name, name, at{0, 20})
	e.rounds(t, name)
	e.arrives(t, name, name, at{0, 17})
	e.cli(t, "--alter", "--mirror", name, "--delete-config", "mirror.groups.exclude")
	e.arrives(t, name, name, at{0, 20})
}

// Complaint 22: of 4000 groups 2054 are copied.
func TestComplaint22AllOfThousandsOfGroupsAreCopiedExactly(t *testing.T) {
	t.Parallel()
	e := start(t)
	const name = "c22-many"
	groups := 500
	if harness.Full() {
		groups = 4000
	}
	e.prepare(t, name, 2, 1000, map[string]string{"mirror.groups.include": name + ".*,witness.*"})
	group := func(i int) string { return fmt.Sprintf("%s-%04d", name, i) }
	commitAll := func(shift int64) {
		t.Helper()
		var writers errgroup.Group
		writers.SetLimit(8)
		for i := range groups {
			writers.Go(func() error {
				o := kadm.Offsets{}
				for p := range int32(2) {
					o.Add(kadm.Offset{Topic: name, Partition: p, At: (int64(i)+shift)%1000 + 1, LeaderEpoch: -1})
				}
				return e.srcAdmin.CommitAllOffsets(t.Context(), group(i), o)
			})
		}
		if err := writers.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(shift int64) {
		t.Helper()
		var names []string
		for i := range groups {
			names = append(names, group(i))
		}
		begun := time.Now()
		harness.AwaitT(t, 2*patience, "all groups", func(ctx context.Context) error {
			got := e.dstAdmin.FetchManyOffsets(ctx, names...)
			wrong := 0
			for i := range groups {
				for p := range int32(2) {
					o, ok := got[group(i)].Fetched.Lookup(name, p)
					if !ok || o.At != (int64(i)+shift)%1000+1 {
						wrong++
					}
				}
			}
			if wrong > 0 {
				return fmt.Errorf("%d of %d offsets are not as at the source", wrong, 2*groups)
			}
			return nil
		})
		t.Logf("%d groups were there %s after they were committed at the source", groups, time.Since(begun).Round(10*time.Millisecond))
	}
	commitAll(0)
	check(0)
	commitAll(7)
	check(7)
}

// coordinates gives the sidecar that coordinates a mirror.
func (e *env) coordinates(t *testing.T, mirror string) (who interface {
	Kill() error
	Start(ctx context.Context) error
},
) {
	t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = 3, []string{mirror}
	resp, err := e.proxyCl.SeedBrokers()[0].Request(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range resp.(*kmsg.FindCoordinatorResponse).Coordinators { //nolint:forcetypeassert // it answers this request
		if err := kerr.ErrorForCode(c.ErrorCode); err != nil {
			t.Fatal(err)
		}
		for _, s := range e.dst.Sidecars {
			if s.Broker == c.NodeID || s.VirtualID() == c.NodeID {
				return s
			}
		}
		t.Fatalf("the mirror is coordinated by %d", c.NodeID)
	}
	t.Fatal("no coordinator")
	return nil
}

// What a group has committed is carried over as it is: with its metadata, and with the epoch of the
// batch before the offset in the log here.
func TestGroupsKeepMetadataAndHaveEpochsOfThisCluster(t *testing.T) {
	t.Parallel()
	e := start(t)
	const name = "groups-epochs"
	e.prepare(t, name, 1, 50, nil)
	commit(t, e.srcAdmin, name, name, at{0, 33})
	e.arrives(t, name, name, at{0, 33})
	o, err := e.here(t.Context(), name, name, 0)
	if err != nil {
		t.Fatal(err)
	}
	log, err := e.dst.Cluster.Brokers()[0].ReadLog(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := int32(-1)
	for _, b := range log.Batches {
		if b.BaseOffset <= 32 {
			want = b.LeaderEpoch
		}
	}
	if o.Metadata != "of "+name || o.LeaderEpoch != want || want < 0 {
		t.Errorf("metadata %q, epoch %d; the log has epoch %d there", o.Metadata, o.LeaderEpoch, want)
	}
}

// A reset at the source is a reset here, as long as nobody reads here.
func TestGroupsFollowResetsAtTheSource(t *testing.T) {
	t.Parallel()
	e := start(t)
	const name = "groups-reset"
	e.prepare(t, name, 1, 50, nil)
	commit(t, e.srcAdmin, name, name, at{0, 40})
	e.arrives(t, name, name, at{0, 40})
	commit(t, e.srcAdmin, name, name, at{0, 5})
	e.arrives(t, name, name, at{0, 5})
}

// A group that is deleted here stays so until the operator says otherwise, and one that is deleted
// at the source is not deleted here.
func TestGroupsThatAreDeletedHereAreNotResurrected(t *testing.T) {
	t.Parallel()
	e := start(t)
	const name = "groups-deleted"
	e.prepare(t, name, 1, 50, nil)
	commit(t, e.srcAdmin, name, name, at{0, 10})
	e.arrives(t, name, name, at{0, 10})
	e.rounds(t, name)
	if r, err := e.dstAdmin.DeleteGroups(t.Context(), name); err != nil || r[name].Err != nil {
		t.Fatal(err, r[name].Err)
	}
	commit(t, e.srcAdmin, name, name, at{0, 20})
	e.rounds(t, name)
	e.arrives(t, name, name, at{0, none})
	e.explains(t, name, name, false, "its offsets were deleted here")

	// It is gone at the source for two refreshes that are 10 s apart, and comes back.
	if r, err := e.srcAdmin.DeleteGroups(t.Context(), name); err != nil || r[name].Err != nil {
		t.Fatal(err, r[name].Err)
	}
	for gone := time.Now(); time.Since(gone) < 12*time.Second; {
		e.rounds(t, name)
	}
	e.rounds(t, name)
	commit(t, e.srcAdmin, name, name, at{0, 30})
	e.arrives(t, name, name, at{0, 30})

	if r, err := e.srcAdmin.DeleteGroups(t.Context(), name); err != nil || r[name].Err != nil {
		t.Fatal(err, r[name].Err)
	}
	e.rounds(t, name)
	e.arrives(t, name, name, at{0, 30})
}

// Groups of which all topics are stopped are their users'. The last round of the stop has what was
// committed just before.
func TestGroupsAreCopiedOnStopAndNeverAfter(t *testing.T) {
	t.Parallel()
	e := start(t)
	const name = "groups-stop"
	e.prepare(t, name, 1, 50, nil)
	for i := range int64(3) {
		commit(t, e.srcAdmin, fmt.Sprint(name, i), name, at{0, 10 + i})
	}
	e.cli(t, "--stop", "--wait", "--mirror", name, "--topics", name)
	for i := range int64(3) {
		if o, err := e.here(t.Context(), fmt.Sprint(name, i), name, 0); err != nil || o.At != 10+i {
			t.Errorf("group %d stands at %d: %v", i, o.At, err)
		}
	}
	commit(t, e.srcAdmin, name+"0", name, at{0, 40})
	deadline, cancel := context.WithTimeout(t.Context(), 3*refresh)
	defer cancel()
	for deadline.Err() == nil {
		if o, err := e.here(t.Context(), name+"0", name, 0); err != nil || o.At != 10 {
			t.Fatalf("it stands at %d: %v", o.At, err)
		}
		select {
		case <-deadline.Done():
		case <-time.After(refresh / 4):
		}
	}
}

// Share groups have a start instead of committed offsets.
func TestGroupsOfTypeShare(t *testing.T) {
	t.Parallel()
	e := start(t)
	const name = "groups-share"
	e.prepare(t, name, 1, 50, nil)
	alter := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	alter.GroupID = name
	topic := kmsg.NewAlterShareGroupOffsetsRequestTopic()
	topic.Topic = name
	p := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
	p.StartOffset = 12
	topic.Partitions = append(topic.Partitions, p)
	alter.Topics = append(alter.Topics, topic)
	harness.AwaitT(t, patience, "a share group at the source", func(ctx context.Context) error {
		resp, err := alter.RequestWith(ctx, e.srcCl) // its coordinator may be loading
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
	harness.AwaitT(t, patience, "the share group is copied", func(ctx context.Context) error {
		ask := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
		g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
		g.GroupID = name
		ask.Groups = append(ask.Groups, g)
		resp, err := ask.RequestWith(ctx, e.dstCl)
		if err != nil {
			return err
		}
		for _, g := range resp.Groups {
			for _, rt := range g.Topics {
				for _, rp := range rt.Partitions {
					if rt.Topic == name && rp.StartOffset == 12 {
						return nil
					}
				}
			}
		}
		_, out, err := e.explainGroup(ctx, name, name)
		return fmt.Errorf("%+v; %s: %w", resp.Groups, out, err)
	})
}

// A consumer group moves while it is in use: no record is skipped, and none is read twice beyond
// its last commit.
func TestGroupsMigrateLive(t *testing.T) {
	t.Parallel()
	e := start(t)
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			name := "groups-move-" + protocol
			e.prepare(t, name, 2, 60, nil)
			consume := func(c *harness.Cluster, bootstrap []string, count int, idle time.Duration) []harness.JavaRecord {
				t.Helper()
				records, err := c.Installation().Consume(t.Context(), harness.JavaConsume{
					Bootstrap: bootstrap, Group: name, Topic: name, Count: count, Idle: idle,
					Properties: map[string]string{"group.protocol": protocol, "max.poll.records": "7"},
				})
				if err != nil {
					t.Fatal(err)
				}
				return records
			}
			before := consume(e.src, e.src.Bootstrap(harness.ListenerInternal), 50, patience)
			e.write(t, name, 0, 20)
			out := e.cli(t, "--switchover", "--mirror", name, "--quiet-period", "500ms", "--timeout", "80s")
			if !strings.Contains(out, name+"  ") || !strings.Contains(out, "Switchover of mirror "+name+" done.") {
				t.Errorf("the report does not say where the group stands: %s", out)
			}
			if err := e.produceHere(t, name, 1, 10); err != nil {
				t.Fatal(err)
			}
			after := consume(e.dst.Cluster, e.dst.Proxies(), 60+60+20+10-len(before), patience)
			seen := map[int32][]int64{}
			for _, r := range slices.Concat(before, after) {
				seen[r.Partition] = append(seen[r.Partition], r.Offset)
			}
			ends := map[int32]int64{0: 80, 1: 70}
			// The markers and restarts of nobody are between: the offsets are all there are.
			for p, end := range ends {
				slices.Sort(seen[p])
				for i, o := range seen[p] {
					if int64(i) != o {
						t.Fatalf("partition %d: record %d is %d: %v", p, i, o, seen[p])
					}
				}
				if int64(len(seen[p])) != end {
					t.Errorf("partition %d: %d of %d records", p, len(seen[p]), end)
				}
			}
			t.Logf("%d records were read at the source, %d here", len(before), len(after))
		})
	}
}

// produceHere writes to a topic here, through the proxies.
func (e *env) produceHere(t *testing.T, topic string, partition int32, n int) error {
	t.Helper()
	return harness.Await(t.Context(), patience, func(ctx context.Context) error {
		var all []*kgo.Record
		for range n {
			all = append(all, &kgo.Record{Topic: topic, Partition: partition, Value: []byte("here")})
		}
		return e.proxyCl.ProduceSync(ctx, all...).FirstErr()
	})
}

// Offsets that nobody commits again expire: those of a group that stands still at the source are
// committed again in time, and not taken for deleted.
func TestGroupsDoNotExpire(t *testing.T) {
	if !harness.Full() {
		t.Skip("takes two minutes; TestGroupMemory of package syncs has the rule")
	}
	e := *start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var err error
	e.dst, err = stack.Start(ctx, stack.Config{
		Kafka: harness.Config{Name: "forgetful", Brokers: 1, Properties: map[string]string{
			"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "2000",
		}},
		Bin:     stack.Binaries(),
		Sidecar: map[string]string{"mirror.metadata.refresh.interval.ms": fmt.Sprint(refresh.Milliseconds())},
	})
	t.Cleanup(func() {
		if e.dst != nil {
			if err := e.dst.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	e.dstCl = e.dst.Cluster.ClientT(t, quick()...)
	proxy, err := kgo.NewClient(quick(kgo.SeedBrokers(e.dst.Proxies()...))...)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	e.proxyCl, e.dstAdmin, e.dstProxy = proxy, kadm.NewClient(e.dstCl), kadm.NewClient(proxy)
	const name = "groups-expire"
	e.prepare(t, name, 1, 50, nil)
	commit(t, e.srcAdmin, name, name, at{0, 10})
	commit(t, e.dstAdmin, name+"-local", name, at{0, 5})
	e.arrives(t, name, name, at{0, 10})
	harness.AwaitT(t, 3*patience, "offsets expire here", func(ctx context.Context) error {
		o, err := e.here(ctx, name+"-local", name, 0)
		if err == nil && o.At != none {
			err = errors.New("not yet")
		}
		return err
	})
	for begun := time.Now(); time.Since(begun) < time.Minute; {
		if o, err := e.here(t.Context(), name, name, 0); err != nil || o.At != 10 {
			t.Fatalf("the group stands at %d: %v", o.At, err)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(refresh):
		}
	}
}

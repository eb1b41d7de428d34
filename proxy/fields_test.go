package proxy

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fate is what becomes of a field that names a broker, or where one is, at a client listener.
// The zero value says nothing: a field without a fate is not in the table.
type fate struct {
	by string // the function that rewrites it
	is string // or why it is shown as it is
}

func by(function string) fate { return fate{by: function} }
func asIs(why string) fate    { return fate{is: why} }

// fields is the table of all fields of all responses that may hold a broker's host, port, id or
// rack, or a leader, by API and path. table.go says where the functions come in.
func fields() map[string]fate {
	const (
		rackOf     = "the rack of a real broker, which clients choose replicas by"
		group      = "the leader of a group is a member"
		ofMember   = "a member's rack, as the member says it"
		hostMember = "where the broker sees a member's connection come from: the sidecar"
		hostACL    = "a rule that the administrators wrote"
		hostStream = "where an application's own instances are"
		quorum     = "the controllers, whom the proxy does not stand before; virtual brokers are not among the observers, since they read the metadata log without an id"
		inside     = "served by controllers and coordinators to brokers, or gone since Kafka 4.0"
	)
	t := map[string]fate{
		"Metadata.Brokers.NodeID":                    by("hideBrokers"),
		"Metadata.Brokers.Host":                      by("address"),
		"Metadata.Brokers.Port":                      by("address"),
		"Metadata.Brokers.Rack":                      asIs(rackOf),
		"Metadata.ControllerID":                      by("controller"),
		"Metadata.Topics.Partitions.Leader":          by("leader"),
		"Metadata.Topics.Partitions.Replicas":        by("hide"),
		"Metadata.Topics.Partitions.ISR":             by("hide"),
		"Metadata.Topics.Partitions.OfflineReplicas": by("hide"),

		"DescribeCluster.ControllerID":   by("controller"),
		"DescribeCluster.Brokers.NodeID": by("hideBrokers"),
		"DescribeCluster.Brokers.Host":   by("address"),
		"DescribeCluster.Brokers.Port":   by("address"),
		"DescribeCluster.Brokers.Rack":   asIs(rackOf),

		"FindCoordinator.NodeID":              by("rewriteFindCoordinator"),
		"FindCoordinator.Host":                by("rewriteFindCoordinator"),
		"FindCoordinator.Port":                by("rewriteFindCoordinator"),
		"FindCoordinator.Coordinators.NodeID": by("rewriteFindCoordinator"),
		"FindCoordinator.Coordinators.Host":   by("rewriteFindCoordinator"),
		"FindCoordinator.Coordinators.Port":   by("rewriteFindCoordinator"),

		"DescribeTopicPartitions.Topics.Partitions.LeaderID":               by("leader"),
		"DescribeTopicPartitions.Topics.Partitions.Replicas":               by("hide"),
		"DescribeTopicPartitions.Topics.Partitions.ISR":                    by("hide"),
		"DescribeTopicPartitions.Topics.Partitions.EligibleLeaderReplicas": by("hide"),
		"DescribeTopicPartitions.Topics.Partitions.LastKnownELR":           by("hide"),
		"DescribeTopicPartitions.Topics.Partitions.OfflineReplicas":        by("hide"),

		"Fetch.Topics.Partitions.PreferredReadReplica": by("preferred"),

		"ListPartitionReassignments.Topics.Partitions.Replicas":         by("hide"),
		"ListPartitionReassignments.Topics.Partitions.AddingReplicas":   by("hide"),
		"ListPartitionReassignments.Topics.Partitions.RemovingReplicas": by("hide"),

		"ListConfigResources.ConfigResources.Name": by("rewriteListConfigResources"),
		"DescribeConfigs.Resources.Configs.Value":  asIs("what a broker is configured with is what its administrators want to see, also where it listens"),

		"JoinGroup.LeaderID":                                               asIs(group),
		"DescribeGroups.Groups.Members.ClientHost":                         asIs(hostMember),
		"ConsumerGroupDescribe.Groups.Members.RackID":                      asIs(ofMember),
		"ShareGroupDescribe.Groups.Members.RackID":                         asIs(ofMember),
		"StreamsGroupDescribe.Groups.Members.RackID":                       asIs(ofMember),
		"DescribeACLs.Resources.ACLs.Host":                                 asIs(hostACL),
		"DeleteACLs.Results.MatchingACLs.Host":                             asIs(hostACL),
		"ConsumerGroupDescribe.Groups.Members.ClientHost":                  asIs(hostMember),
		"ShareGroupDescribe.Groups.Members.ClientHost":                     asIs(hostMember),
		"StreamsGroupDescribe.Groups.Members.ClientHost":                   asIs(hostMember),
		"StreamsGroupDescribe.Groups.Members.UserEndpoint.Host":            asIs(hostStream),
		"StreamsGroupDescribe.Groups.Members.UserEndpoint.Port":            asIs(hostStream),
		"StreamsGroupHeartbeat.PartitionsByUserEndpoint.UserEndpoint.Host": asIs(hostStream),
		"StreamsGroupHeartbeat.PartitionsByUserEndpoint.UserEndpoint.Port": asIs(hostStream),

		"DescribeQuorum.Topics.Partitions.LeaderID":                asIs(quorum),
		"DescribeQuorum.Topics.Partitions.CurrentVoters.ReplicaID": asIs(quorum),
		"DescribeQuorum.Topics.Partitions.Observers.ReplicaID":     asIs(quorum),
		"DescribeQuorum.Nodes.NodeID":                              asIs(quorum),
		"DescribeQuorum.Nodes.Listeners.Host":                      asIs(quorum),
		"DescribeQuorum.Nodes.Listeners.Port":                      asIs(quorum),

		"UpdateRaftVoter.CurrentLeader.LeaderID":    asIs(quorum),
		"UpdateRaftVoter.CurrentLeader.Host":        asIs(quorum),
		"UpdateRaftVoter.CurrentLeader.Port":        asIs(quorum),
		"AlterPartition.Topics.Partitions.LeaderID": asIs(inside),
		"AlterPartition.Topics.Partitions.ISR":      asIs(inside),
	}
	// KIP-951: who has asked the wrong broker is told the leader, and where it is.
	for api, nodes := range map[string]string{"Produce": "Brokers", "Fetch": "Brokers", "ShareFetch": "NodeEndpoints", "ShareAcknowledge": "NodeEndpoints"} {
		t[api+".Topics.Partitions.CurrentLeader.LeaderID"] = by("hint")
		t[api+"."+nodes+".NodeID"] = by("hideBrokers")
		t[api+"."+nodes+".Host"] = by("address")
		t[api+"."+nodes+".Port"] = by("address")
		t[api+"."+nodes+".Rack"] = asIs(rackOf)
	}
	for _, api := range []string{"Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot"} {
		for _, field := range []string{"NodeID", "Host", "Port"} {
			t[api+".NodeEndpoints."+field] = asIs(inside)
		}
		t[api+".Topics.Partitions.LeaderID"] = asIs(inside)
	}
	delete(t, "FetchSnapshot.Topics.Partitions.LeaderID")
	t["FetchSnapshot.Topics.Partitions.CurrentLeader.LeaderID"] = asIs(inside)
	return t
}

// tellsOfBrokers tells by its name and type whether a field may hold what the table is about.
func tellsOfBrokers(f reflect.StructField) bool {
	switch f.Type {
	case reflect.TypeFor[int32](), reflect.TypeFor[uint16](), reflect.TypeFor[[]int32](),
		reflect.TypeFor[string](), reflect.TypeFor[*string](), reflect.TypeFor[[]string]():
	default:
		return false
	}
	parts := words(f.Name)
	if parts[len(parts)-1] == "Epoch" {
		return false
	}
	return slices.ContainsFunc(parts, func(w string) bool {
		return slices.Contains([]string{
			"Host", "Hosts", "Port", "Address", "Addresses", "Endpoint", "Endpoints", "Listener", "Listeners", "Rack", "Racks",
			"Leader", "Leaders", "Controller", "Controllers", "Coordinator", "Node", "Nodes", "Broker", "Brokers",
			"Replica", "Replicas", "ISR", "ELR", "Voter", "Voters", "Observer", "Observers", "Candidate",
		}, w)
	})
}

// words splits a name at its capitals; ISR and ID are words.
func words(name string) []string {
	var out []string
	r := []rune(name)
	from := 0
	for i := 1; i < len(r); i++ {
		begins := unicode.IsUpper(r[i]) && (!unicode.IsUpper(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1]))
		if begins {
			out = append(out, string(r[from:i]))
			from = i
		}
	}
	return append(out, string(r[from:]))
}

// leaves calls fn for every field of a response that is none with fields of its own; slices of
// structs are gone through, and a type stands for their elements.
func leaves(path string, t reflect.Type, fn func(path string, f reflect.StructField)) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "UnknownTags" || f.Name == "Version" {
			continue
		}
		p := path + "." + f.Name
		if inner := structOf(f.Type); inner != nil {
			leaves(p, inner, fn)
		} else {
			fn(p, f)
		}
	}
}

func structOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		return t
	}
	return nil
}

func eachResponse(fn func(key int16, name string, resp kmsg.Response)) {
	for key := range int16(kmsg.MaxKey + 1) {
		if resp := kmsg.ResponseForKey(key); resp != nil {
			fn(key, kmsg.NameForKey(key), resp)
		}
	}
}

// notInTable lists the fields that should be in a table and are not, and those that are but
// do not exist.
func notInTable(table map[string]fate) []string {
	var out []string
	known := make(map[string]bool)
	eachResponse(func(_ int16, name string, resp kmsg.Response) {
		leaves(name, reflect.TypeOf(resp).Elem(), func(path string, f reflect.StructField) {
			known[path] = true
			if _, ok := table[path]; !ok && tellsOfBrokers(f) {
				out = append(out, path)
			}
		})
	})
	for path := range table {
		if !known[path] {
			out = append(out, path+" does not exist")
		}
	}
	slices.Sort(out)
	return out
}

func TestEveryAddressAndLeaderIsInTheTable(t *testing.T) {
	table := fields()
	for _, path := range notInTable(table) {
		t.Errorf("%s: what do clients see of it?", path)
	}
	for path, f := range table {
		if (f.by == "") == (f.is == "") {
			t.Errorf("%s is rewritten or shown as it is, not both, not neither", path)
		}
	}
	// A row that is taken out is missed, unless the table has it beyond what names give away.
	beyond := []string{"ListConfigResources.ConfigResources.Name", "DescribeConfigs.Resources.Configs.Value"}
	for path := range table {
		less := maps.Clone(table)
		delete(less, path)
		if missed := notInTable(less); !slices.Equal(missed, []string{path}) && !slices.Contains(beyond, path) {
			t.Errorf("without the row of %s the test finds %v", path, missed)
		}
	}
}

// upstreamPort is above all ports that clients may be told; a broker's is the sum with its id.
const upstreamPort = 30000

func upstreamAt(node int32) HostPort {
	return HostPort{fmt.Sprintf("up-%d.internal", node), upstreamPort + node%1000}
}

// filled makes a response that names virtual brokers and addresses wherever there is a place for
// them.
func filled(key, version int16) kmsg.Response {
	resp := kmsg.ResponseForKey(key)
	resp.SetVersion(version)
	v := reflect.ValueOf(resp).Elem()
	fill(v, 10001, []int32{1, 10001, 2, 10002})
	resp.SetVersion(version)
	switch resp := resp.(type) {
	case *kmsg.ListConfigResourcesResponse:
		if version == 0 { // client metrics only
			break
		}
		for i := range resp.ConfigResources {
			resp.ConfigResources[i].Name = strconv.Itoa(10000 + i)
			resp.ConfigResources[i].Type = 4
		}
	case *kmsg.ProduceResponse:
		if version < 10 { // brokers do not name leaders yet; kmsg writes every tagged field in every flexible version
			*resp = kmsg.ProduceResponse{Version: version}
		}
	}
	return resp
}

// fill puts node, with its address, into every field that may tell of one; of an outer slice's
// elements each has another.
func fill(v reflect.Value, node int32, nodes []int32) {
	at := upstreamAt(node)
	for i := range v.NumField() {
		f, sf := v.Field(i), v.Type().Field(i)
		if sf.Name == "UnknownTags" || sf.Name == "Version" {
			continue
		}
		switch {
		case sf.Type.Kind() == reflect.Slice && structOf(sf.Type) != nil:
			f.Set(reflect.MakeSlice(sf.Type, len(nodes), len(nodes)))
			for j, n := range nodes {
				fill(defaults(f.Index(j)), n, []int32{10001})
			}
		case sf.Type.Kind() == reflect.Struct:
			fill(f, node, nodes)
		case sf.Type.Kind() == reflect.Pointer && structOf(sf.Type) != nil:
			f.Set(reflect.New(sf.Type.Elem()))
			fill(defaults(f.Elem()), node, nodes)
		case !tellsOfBrokers(sf):
		case sf.Type == reflect.TypeFor[[]int32]():
			f.Set(reflect.ValueOf([]int32{10001, 1, 10002, 2}))
		case strings.Contains(sf.Name, "Port"):
			if f.CanUint() {
				f.SetUint(uint64(at.Port))
			} else {
				f.SetInt(int64(at.Port))
			}
		case f.CanInt():
			f.SetInt(int64(node))
		case sf.Type == reflect.TypeFor[*string]():
			f.Set(reflect.ValueOf(&at.Host))
		case f.Kind() == reflect.String:
			f.SetString(at.Host)
		}
	}
}

func defaults(v reflect.Value) reflect.Value {
	if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
		d.Default()
	}
	return v
}

// leaks lists what a response still says of virtual brokers and, if addresses are mapped, of
// where brokers really are.
func leaks(path string, v reflect.Value, table map[string]fate, mapped bool) []string {
	var out []string
	for i := range v.NumField() {
		f, sf := v.Field(i), v.Type().Field(i)
		p := path + "." + sf.Name
		if sf.Name == "UnknownTags" || sf.Name == "Version" || table[p].is != "" {
			continue
		}
		switch {
		case sf.Type.Kind() == reflect.Slice && structOf(sf.Type) != nil:
			for j := range f.Len() {
				out = append(out, leaks(p, f.Index(j), table, mapped)...)
			}
		case sf.Type.Kind() == reflect.Struct:
			out = append(out, leaks(p, f, table, mapped)...)
		case sf.Type.Kind() == reflect.Pointer && structOf(sf.Type) != nil:
			if !f.IsNil() {
				out = append(out, leaks(p, f.Elem(), table, mapped)...)
			}
		case !tellsOfBrokers(sf) && table[p].by == "":
		default:
			text := fmt.Sprint(reflect.Indirect(f))
			n, err := strconv.Atoi(text)
			isPort := strings.Contains(sf.Name, "Port")
			switch {
			case strings.Contains(text, "1000"): // an id, also in a list
			case mapped && strings.Contains(text, "up-"), mapped && err == nil && isPort && n > upstreamPort:
			default:
				continue
			}
			out = append(out, fmt.Sprintf("%s = %s", p, text))
		}
	}
	return out
}

// fieldsBroker answers each request with a filled response.
func fieldsBroker(records int) script {
	return func(_ net.Conn, h header, _ []byte) []byte {
		resp := filled(h.key, h.version)
		if f, ok := resp.(*kmsg.FetchResponse); ok {
			for i := range f.Topics {
				for j := range f.Topics[i].Partitions {
					f.Topics[i].Partitions[j].RecordBatches = pattern(records)
				}
			}
		}
		return appendResponse(nil, resp, h.correlation)
	}
}

// fieldModes are the ways in which clients may be told of brokers.
func fieldModes() map[string]Config {
	told := func(node int32) HostPort { return HostPort{"proxy.example.com", 1000 + node} }
	return map[string]Config{
		"advertised": {},
		"by node":    {Hosts: map[int32]HostPort{1: told(1), 2: told(2)}},
		"one only":   {Hosts: map[int32]HostPort{1: told(1)}},
		"by address": {Advertised: map[HostPort]HostPort{upstreamAt(1): told(1), upstreamAt(2): told(2)}},
		"computed":   {Compute: func(node int32, _ HostPort) (HostPort, bool) { return told(node), true }},
		"none":       {Compute: func(int32, HostPort) (HostPort, bool) { return HostPort{}, false }},
	}
}

// askFilled gets an API's response through a proxy; nil if it is not answered there.
func askFilled(t *testing.T, c *client, key, version int16) kmsg.Response {
	t.Helper()
	req := kmsg.RequestForKey(key)
	if d, ok := req.(interface{ Default() }); ok {
		d.Default()
	}
	req.SetVersion(version)
	if p, ok := req.(*kmsg.ProduceRequest); ok {
		p.Acks = 1
	}
	return c.ask(req)
}

// Every response of every version, with virtual brokers and upstream addresses wherever there is a
// field for them, is rid of all of them at a client listener.
func TestNothingIsToldOfVirtualBrokersAndUpstreamAddresses(t *testing.T) {
	table := fields()
	for name, cfg := range fieldModes() {
		for _, records := range []int{10, readBuffer} {
			t.Run(fmt.Sprintf("%s, records of %d bytes", name, records), func(t *testing.T) {
				b := startBroker(t, fieldsBroker(records))
				s := setup{cfg: cfg, view: newFakeView(mirrorPart("m", topicID(1), 0))}
				s.deps.Log = discardLog()
				p, addr := s.start(t, b)
				eachResponse(func(key int16, api string, _ kmsg.Response) {
					if records > 10 && key != int16(kmsg.Fetch) || p.cfg.mapped() && p.rewriter(key, 0) == nil {
						return
					}
					c := dial(t, addr)
					defer c.Close()
					for version := range maxVersion(key) + 1 {
						resp := askFilled(t, c, key, version)
						for _, leak := range leaks(api, reflect.ValueOf(resp).Elem(), table, p.cfg.mapped()) {
							t.Errorf("v%d: %s", version, leak)
						}
					}
				})
			})
		}
	}
}

func maxVersion(key int16) int16 { return kmsg.RequestForKey(key).MaxVersion() }

// Each row of the table of APIs that rewrites is needed: without it something shows, where
// brokers advertise their proxies or where they do not.
func TestWithoutARowSomethingIsTold(t *testing.T) {
	table := fields()
	rewritten := make(map[string]bool)
	for path, f := range table {
		if f.by != "" {
			api, _, _ := strings.Cut(path, ".")
			rewritten[api] = true
		}
	}
	for _, r := range table_() {
		api := kmsg.NameForKey(r.key)
		if (r.rewrite != nil) != rewritten[api] && r.at&atClient != 0 {
			t.Errorf("%s: rewritten by the table of APIs: %t, by the table of fields: %t", api, r.rewrite != nil, rewritten[api])
		}
	}
	b := startBroker(t, fieldsBroker(10))
	for name, cfg := range fieldModes() {
		if name != "advertised" && name != "by node" {
			continue
		}
		s := setup{cfg: cfg}
		s.deps.Log = discardLog()
		p, addr := s.start(t, b)
		for _, key := range slices.Sorted(maps.Keys(p.rows)) {
			r := p.rows[key]
			if r.rewrite == nil {
				continue
			}
			delete(p.rows, key) // between two connections
			c := dial(t, addr)
			found := 0
			for version := range maxVersion(key) + 1 {
				found += len(leaks(kmsg.NameForKey(key), reflect.ValueOf(askFilled(t, c, key, version)).Elem(), table, p.cfg.mapped()))
			}
			c.Close()
			if found == 0 {
				t.Errorf("%s: nobody notices that the row of %s is missing", name, kmsg.NameForKey(key))
			}
			p.rows[key] = r
		}
	}
}

// table_ is the table of APIs, a row for each API at client listeners.
func table_() []row {
	return slices.CompactFunc(slices.SortedFunc(slices.Values(table()), func(a, b row) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at))
	}), func(a, b row) bool { return a.key == b.key })
}

package placement

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// Broker is a real broker that may be given replicas.
type Broker struct {
	ID   int32
	Rack string
	// Down: it is registered, but not alive. It is chosen only when there are not enough
	// others.
	Down bool
}

// Brokers returns the real ones among the registered that may be given replicas: not those
// that have no log directory left that is not cordoned.
func Brokers(registered []metadata.Broker, v ids.Virtual) []Broker {
	var out []Broker
	for _, b := range registered {
		cordoned := len(b.LogDirs) > 0 && !slices.ContainsFunc(b.LogDirs, func(d ids.UUID) bool { return !slices.Contains(b.CordonedDirs, d) })
		if !v.Is(b.ID) && !cordoned {
			out = append(out, Broker{ID: b.ID, Rack: b.Rack, Down: b.Fenced || b.ShuttingDown})
		}
	}
	return out
}

// Live returns those that are alive.
func Live(brokers []Broker) []Broker {
	return slices.DeleteFunc(slices.Clone(brokers), func(b Broker) bool { return b.Down })
}

// Spread returns the replicas of so many partitions, or nil if there are not enough
// brokers. The leaders, which come first, are dealt in turn from start on, the followers
// shifted with each turn, so that no broker takes over all of another's partitions. A rack
// gets a second replica of a partition only once every rack has one.
func Spread(brokers []Broker, partitions, replicas, start int) [][]int32 {
	live, down := ring(Live(brokers)), ring(slices.DeleteFunc(slices.Clone(brokers), func(b Broker) bool { return !b.Down }))
	n := len(live)
	if n == 0 || replicas < 1 || replicas > n+len(down) {
		return nil
	}
	out := make([][]int32, partitions)
	for p := range out {
		at := start + p
		order := []Broker{live[at%n]}
		for j := range n - 1 {
			order = append(order, live[(at+1+(at/n+j)%(n-1))%n])
		}
		for j := range down {
			order = append(order, down[(at+j)%len(down)])
		}
		out[p] = choose(nil, nil, order, replicas)
	}
	return out
}

// Add returns have with further brokers behind, until there are as many as wanted or no
// more are alive. Those that are preferred come first, the others in turn from start on,
// all by racks as in Spread.
func Add(brokers []Broker, have, preferred []int32, wanted, start int) []int32 {
	live := ring(Live(brokers))
	var order []Broker
	for _, id := range preferred {
		if i := slices.IndexFunc(live, func(b Broker) bool { return b.ID == id }); i >= 0 {
			order = append(order, live[i])
		}
	}
	if want := min(wanted, len(have)+len(order)); want > len(have) {
		have = choose(brokers, have, order, want) // where they were, whatever the racks
	}
	order = nil
	for i := range live {
		order = append(order, live[(start+i)%len(live)])
	}
	return choose(brokers, have, order, wanted)
}

// choose takes brokers from order until there are as many replicas as wanted: first those
// in racks that have fewest.
func choose(brokers []Broker, have []int32, order []Broker, wanted int) []int32 {
	out := slices.Clone(have)
	count := map[string]int{}
	for _, b := range order {
		count[b.Rack] += 0
	}
	for _, b := range brokers {
		if slices.Contains(have, b.ID) {
			count[b.Rack]++
		}
	}
	for len(out) < wanted {
		best := -1
		for i, b := range order {
			if !slices.Contains(out, b.ID) && (best < 0 || count[b.Rack] < count[order[best].Rack] && b.Down == order[best].Down) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		out = append(out, order[best].ID)
		count[order[best].Rack]++
	}
	return out
}

// ring puts brokers of different racks next to each other, so that whoever goes round it
// changes racks with each step.
func ring(brokers []Broker) []Broker {
	racks := map[string][]Broker{}
	for _, b := range slices.SortedFunc(slices.Values(brokers), func(a, b Broker) int { return cmp.Compare(a.ID, b.ID) }) {
		racks[b.Rack] = append(racks[b.Rack], b)
	}
	names := slices.Sorted(maps.Keys(racks))
	out := make([]Broker, 0, len(brokers))
	for i := 0; len(out) < len(brokers); i++ {
		for _, name := range names {
			if i < len(racks[name]) {
				out = append(out, racks[name][i])
			}
		}
	}
	return out
}

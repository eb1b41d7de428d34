package harness

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Listener names of every cluster. INTERNAL is where brokers talk to each
// other, and always advertises the broker's own address. CLIENT is for clients;
// what it advertises may be somebody else's address, such as a proxy's.
const (
	ListenerInternal   = "INTERNAL"
	ListenerClient     = "CLIENT"
	ListenerController = "CONTROLLER"
)

// ControllerIDOffset is added to Config.FirstID for the first separate controller.
const ControllerIDOffset = 100

// Config describes a cluster. Its zero value with Brokers set is a good test cluster.
type Config struct {
	Name         string        // in messages; "kafka" when empty
	Version      string        // DefaultVersion when empty, VersionHome for KAFKA_HOME's
	Installation *Installation // instead of Version, when jars are at hand

	Brokers     int
	Controllers int // separate controllers; 0: every broker is a controller too
	// ZooKeeper has the brokers use a ZooKeeper of the harness's own instead of KRaft, which is
	// what clusters before 3.3 do, and those before 4.0 can. Its JVM is started and stopped with
	// the cluster.
	ZooKeeper bool
	FirstID   int32 // id of the first broker, the others follow; 1 when 0
	ClusterID string

	// Properties go to every node, NodeProperties to one; both override what the
	// harness sets, and the latter the former. broker.session.timeout.ms is
	// Kafka's own, 9 s: that is what a restart of a broker takes, see [Node.Start].
	Properties     map[string]string
	NodeProperties func(id int32) map[string]string
	// Advertise gives the host:port that a broker's CLIENT listener advertises;
	// nil or "" means its own address.
	Advertise func(id int32) string
	// Network, if any, stands between the nodes and whoever calls them, each other included: others
	// are told its addresses. The harness's own clients start at the nodes' own ones.
	Network Network
	// ReplicaLagTimeMax is replica.lag.time.max.ms, Kafka's own when 0.
	ReplicaLagTimeMax time.Duration
	// LogDirs is how many log directories a broker has; 1 when 0.
	LogDirs int

	// Format adds arguments to StorageTool's format, such as --release-version
	// 4.3 or --feature eligible.leader.replicas.version=1 or --add-scram ….
	Format []string

	// ForbidConfigs are topic configs that an alter.config.policy does not let be set.
	ForbidConfigs []string

	// HeapMB is -Xmx, 350 when 0.
	HeapMB int
	// FullJIT leaves out the flags that make a JVM start fast and run slow.
	FullJIT  bool
	JVMFlags []string

	Dir     string // holds a folder for each node; a new temporary one when empty
	KeepDir bool   // Stop leaves the nodes' folders in place

	// ClientOpts let the harness's own clients in when INTERNAL has been given
	// another security protocol.
	ClientOpts []kgo.Opt
	// StartTimeout bounds the start of a cluster, and of one node; two minutes when 0.
	StartTimeout time.Duration
	Log          *slog.Logger // nil: none

	zooKeeperAt string // host:port, once it is known
}

// Network can put itself between the processes of a test; package test/links has one.
type Network interface {
	// Expose gives the address at which others reach a party that listens at addr.
	Expose(party, addr string) (string, error)
	// Start starts a process by start, which gives its pid, and knows it by the party's name.
	Start(party string, start func() (pid int, err error)) error
}

// Role of a node.
type Role string

// The roles that process.roles knows.
const (
	RoleBroker     Role = "broker"
	RoleController Role = "controller"
	RoleCombined   Role = "broker,controller"
)

func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		c.Name = "kafka"
	}
	if c.Brokers < 1 || c.Controllers < 0 {
		return c, fmt.Errorf("%d brokers and %d controllers make no cluster", c.Brokers, c.Controllers)
	}
	if c.ZooKeeper && c.Controllers > 0 {
		return c, errors.New("a cluster with ZooKeeper has no KRaft controllers")
	}
	if c.FirstID == 0 {
		c.FirstID = 1
	}
	if c.Brokers > ControllerIDOffset {
		return c, fmt.Errorf("%d brokers: their ids would reach the controllers'", c.Brokers)
	}
	if c.HeapMB == 0 {
		c.HeapMB = 350
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 2 * time.Minute
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.ClusterID == "" {
		id, err := newClusterID()
		if err != nil {
			return c, err
		}
		c.ClusterID = id
	}
	return c, nil
}

// newClusterID makes an id in Kafka's form that no command line takes for an option.
func newClusterID() (string, error) {
	for {
		var raw [16]byte
		if _, err := rand.Read(raw[:]); err != nil {
			return "", fmt.Errorf("make a cluster id: %w", err)
		}
		if id := base64.RawURLEncoding.EncodeToString(raw[:]); !strings.HasPrefix(id, "-") {
			return id, nil
		}
	}
}

// nodePlan is a node as configured, before it runs.
type nodePlan struct {
	id    int32
	role  Role
	ports map[string]int // by listener name
	dir   string
	told  map[string]string // what others are told instead, by listener name
}

func (n nodePlan) addr(listener string) string {
	port, ok := n.ports[listener]
	if !ok {
		return ""
	}
	return net.JoinHostPort(loopback, strconv.Itoa(port))
}

// advertised is the address that others are told.
func (n nodePlan) advertised(listener string) string {
	if a := n.told[listener]; a != "" {
		return a
	}
	return n.addr(listener)
}

// party is the node's name in the network.
func (c Config) party(id int32) string { return fmt.Sprintf("%s-%d", c.Name, id) }

// expose gives every listener an address in the network. That of CONTROLLER is a party of its own,
// for a node that is cut off as a controller may be reached as a broker.
func (c Config) expose(n *nodePlan) error {
	if c.Network == nil {
		return nil
	}
	n.told = map[string]string{}
	for name := range n.ports {
		party := c.party(n.id)
		if name == ListenerController {
			party = "controller." + party
		}
		var err error
		if n.told[name], err = c.Network.Expose(party, n.addr(name)); err != nil {
			return err
		}
	}
	return nil
}

const loopback = "127.0.0.1"

func (c Config) plan(dir string) ([]nodePlan, error) {
	var nodes []nodePlan
	for i := range int32(c.Brokers) {
		n := nodePlan{id: c.FirstID + i, role: RoleBroker, ports: map[string]int{ListenerInternal: 0, ListenerClient: 0}}
		if c.Controllers == 0 && !c.ZooKeeper {
			n.role = RoleCombined
			n.ports[ListenerController] = 0
		}
		nodes = append(nodes, n)
	}
	for i := range int32(c.Controllers) {
		nodes = append(nodes, nodePlan{
			id: c.FirstID + ControllerIDOffset + i, role: RoleController,
			ports: map[string]int{ListenerController: 0},
		})
	}
	wanted := 0
	for _, n := range nodes {
		wanted += len(n.ports)
	}
	ports, err := FreePorts(wanted)
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		n := &nodes[i]
		n.dir = filepath.Join(dir, fmt.Sprintf("node-%d", n.id))
		for _, name := range sortedKeys(n.ports) {
			n.ports[name], ports = ports[0], ports[1:]
		}
		if err := c.expose(n); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

func voters(nodes []nodePlan) string {
	var out []string
	for _, n := range nodes {
		if n.role != RoleBroker {
			out = append(out, fmt.Sprintf("%d@%s", n.id, n.advertised(ListenerController)))
		}
	}
	return strings.Join(out, ",")
}

// properties gives one node's whole server.properties.
func (c Config) properties(n nodePlan, voters string) map[string]string {
	rf := strconv.Itoa(min(3, c.Brokers))
	p := map[string]string{
		"listener.security.protocol.map": ListenerInternal + ":PLAINTEXT," + ListenerClient + ":PLAINTEXT," + ListenerController + ":PLAINTEXT",
		"log.dirs":                       strings.Join(c.logDirs(n), ","),

		// Small and quick: a test has few groups and few transactions.
		"offsets.topic.num.partitions":                     "2",
		"offsets.topic.replication.factor":                 rf,
		"transaction.state.log.num.partitions":             "2",
		"transaction.state.log.replication.factor":         rf,
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.num.partitions":     "1",
		"share.coordinator.state.topic.replication.factor": rf,
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
		"num.network.threads":                              "2",
		"num.io.threads":                                   "4",
		"log.cleaner.dedupe.buffer.size":                   "4194304", // 128 MB would be allocated at once
		"replica.fetch.backoff.ms":                         "200",     // followers find a new leader sooner

		// What a test must not trip over: topics made by a typo, and producers
		// that set timestamps of their own.
		"auto.create.topics.enable":           "false",
		"log.message.timestamp.after.max.ms":  "9223372036854775807",
		"log.message.timestamp.before.max.ms": "9223372036854775807",
	}
	if c.ZooKeeper {
		p["broker.id"] = strconv.Itoa(int(n.id))
		p["zookeeper.connect"] = c.zooKeeperAt
		p["zookeeper.session.timeout.ms"] = "9000" // as long as a session with KRaft
	} else {
		p["process.roles"] = string(n.role)
		p["node.id"] = strconv.Itoa(int(n.id))
		p["controller.quorum.voters"] = voters
		p["controller.listener.names"] = ListenerController
	}
	var listeners, advertised []string
	for _, name := range sortedKeys(n.ports) {
		own := n.addr(name)
		listeners = append(listeners, name+"://"+own)
		if name == ListenerController {
			continue
		}
		own = n.advertised(name)
		if name == ListenerClient && c.Advertise != nil {
			if a := c.Advertise(n.id); a != "" {
				own = a
			}
		}
		advertised = append(advertised, name+"://"+own)
	}
	p["listeners"] = strings.Join(listeners, ",")
	if n.role != RoleController {
		p["advertised.listeners"] = strings.Join(advertised, ",")
		p["inter.broker.listener.name"] = ListenerInternal
	}
	if n.role != RoleController && c.LogDirs > 1 {
		// A node without the directory of the metadata log cannot go on.
		p["metadata.log.dir"] = filepath.Join(n.dir, "metadata")
	}
	if c.ReplicaLagTimeMax > 0 {
		p["replica.lag.time.max.ms"] = strconv.FormatInt(c.ReplicaLagTimeMax.Milliseconds(), 10)
	}
	if len(c.ForbidConfigs) > 0 {
		p["alter.config.policy.class.name"] = "ForbidConfigs"
		p["harness.forbidden.configs"] = strings.Join(c.ForbidConfigs, ",")
	}
	maps.Copy(p, c.Properties)
	if c.NodeProperties != nil {
		maps.Copy(p, c.NodeProperties(n.id))
	}
	return p
}

// logDirs are the node's log.dirs.
func (c Config) logDirs(n nodePlan) []string {
	dirs := []string{filepath.Join(n.dir, "data")}
	if n.role == RoleController {
		return dirs
	}
	for i := 2; i <= c.LogDirs; i++ {
		dirs = append(dirs, filepath.Join(n.dir, fmt.Sprintf("data-%d", i)))
	}
	return dirs
}

// propertiesText writes a Java properties file.
func propertiesText(p map[string]string) string {
	var b strings.Builder
	for _, k := range sortedKeys(p) {
		fmt.Fprintf(&b, "%s=%s\n", k, escapeProperty(p[k]))
	}
	return b.String()
}

// escapeProperty writes a value so that Java reads it back as it is. Such files
// are ASCII; anything else is written as UTF-16 escapes.
func escapeProperty(value string) string {
	var b strings.Builder
	for i, r := range value {
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == ' ' && i == 0: // leading white space is dropped otherwise
			b.WriteString(`\ `)
		case r < ' ' || r > '~':
			for _, u := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, u)
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func (c Config) jvmFlags() []string {
	flags := []string{
		fmt.Sprintf("-Xmx%dm", c.HeapMB), "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true",
	}
	if !c.FullJIT {
		flags = append(flags, fastStart...)
	}
	return append(flags, c.JVMFlags...)
}

// fastStart suits JVMs that live for seconds on few cores.
var fastStart = []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}

// Ports are taken below the ranges that systems hand out to outgoing
// connections, so that nothing takes a stopped node's port before it is back.
const (
	lowestPort  = 12000
	highestPort = 32000
	portTries   = 200
)

// FreePorts picks n different ports that nobody listens on. Another process may
// still be quicker to use one; [Start] tries again when that happens.
func FreePorts(n int) ([]int, error) {
	var ports []int
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for tries := 0; len(ports) < n; tries++ {
		if tries > n+portTries {
			return nil, fmt.Errorf("found only %d of %d free ports", len(ports), n)
		}
		r, err := rand.Int(rand.Reader, big.NewInt(highestPort-lowestPort))
		if err != nil {
			return nil, fmt.Errorf("pick a port: %w", err)
		}
		port := lowestPort + int(r.Int64())
		if !reserve(port) {
			continue // promised
		}
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err != nil {
			continue // taken
		}
		held = append(held, l)
		ports = append(ports, port)
	}
	return ports, nil
}

// PortsFolder is where, below the folder for temporary files, processes say which ports they have
// promised to somebody. It is shared, and stays.
const PortsFolder = "kafka-harness-ports"

// reserve promises a port to this process for as long as it lives, since whoever was told of it
// listens there a while later only, and other tests' processes look for ports at the same time.
func reserve(port int) bool {
	dir := filepath.Join(os.TempDir(), PortsFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return true // then by chance only
	}
	// Not an *os.File, which would be closed when nobody refers to it: the kernel lets go of the lock.
	fd, err := syscall.Open(filepath.Join(dir, strconv.Itoa(port)), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return true
	}
	if syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		_ = syscall.Close(fd)
		return false
	}
	return true
}

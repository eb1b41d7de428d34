package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// zooKeeper is the single ZooKeeper node of a cluster without KRaft.
type zooKeeper struct {
	addr string
	dir  string
	proc *Process
}

const zooKeeperClass = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

// startZooKeeper starts one from the cluster's jars and returns when it takes connections.
func startZooKeeper(ctx context.Context, in *Installation, dir, java string) (_ *zooKeeper, err error) {
	ports, err := FreePorts(1)
	if err != nil {
		return nil, err
	}
	z := &zooKeeper{addr: net.JoinHostPort(loopback, strconv.Itoa(ports[0])), dir: filepath.Join(dir, "zookeeper")}
	if err := os.RemoveAll(z.dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(z.dir, 0o755); err != nil {
		return nil, err
	}
	config := filepath.Join(z.dir, "zoo.cfg")
	text := propertiesText(map[string]string{
		"dataDir": filepath.Join(z.dir, "data"), "clientPort": strconv.Itoa(ports[0]), "clientPortAddress": loopback,
		"tickTime": "1000", "maxClientCnxns": "0", "admin.enableServer": "false",
	})
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	argv := append([]string{java, "-Xmx128m"}, fastStart...)
	argv = append(argv, in.loggingFlags()...)
	argv = append(argv, "-cp", in.Classpath(), zooKeeperClass, config)
	logFile := filepath.Join(z.dir, "zookeeper.log")
	if z.proc, err = StartProcess(ctx, "zookeeper", argv, nil, logFile); err != nil {
		return nil, err
	}
	err = Await(ctx, time.Minute, func(ctx context.Context) error {
		if !z.proc.Running() {
			return errors.New("zookeeper has ended")
		}
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", z.addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		tail := z.proc.LogTail()
		return nil, errors.Join(fmt.Errorf("zookeeper does not answer: %w; the end of its log:\n%s", err, tail), z.stop())
	}
	return z, nil
}

func (z *zooKeeper) stop() error {
	if z == nil {
		return nil
	}
	return z.proc.Kill()
}

// askID asks a broker for the cluster's id, which without KRaft the cluster has chosen itself.
func (c *Cluster) askID(ctx context.Context) (string, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none
	resp, err := c.ask(ctx, c.Brokers()[0].Addr(ListenerInternal), req)
	if err != nil {
		return "", fmt.Errorf("ask for the cluster id: %w", err)
	}
	id := resp.(*kmsg.MetadataResponse).ClusterID
	if id == nil {
		return "", errors.New("ask for the cluster id: the broker does not tell it")
	}
	return *id, nil
}

package links

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"slices"
	"sync"
	"time"
)

// Client is the name of every caller that [Fabric.Start] did not start.
const Client = "client"

// Fabric is the network of one test. It is safe for concurrent use.
type Fabric struct {
	// naming is held while a process starts, so that a connection of its first moment is not taken
	// for a client's.
	naming  sync.RWMutex
	callers map[string]int // pid by name, guarded by naming

	mu     sync.Mutex
	fronts []*front
	links  map[pairOf]*Link
	closed bool
	wg     sync.WaitGroup // accept loops and connections
}

type pairOf struct{ from, to string }

// front is an address that others are told instead of the real one.
type front struct {
	party, upstream string
	listener        net.Listener
}

// New returns a network without parties. Close it when all that uses it has ended.
func New() *Fabric {
	return &Fabric{callers: map[string]int{Client: os.Getpid()}, links: map[pairOf]*Link{}}
}

// Expose gives the address at which others reach a party's addr (host:port) from now on. A party
// may have several; nobody need listen at addr yet.
func (f *Fabric) Expose(party, addr string) (string, error) {
	var cfg net.ListenConfig
	l, err := cfg.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("links: front of %s: %w", party, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return "", errors.Join(fmt.Errorf("links: front of %s: %w", party, net.ErrClosed), l.Close())
	}
	fr := &front{party: party, upstream: addr, listener: l}
	f.fronts = append(f.fronts, fr)
	f.wg.Go(func() { f.accept(fr) })
	return l.Addr().String(), nil
}

// Start starts a process by start, which returns its pid, and knows it by that name from its first
// connection on. A later process of the name takes its place.
func (f *Fabric) Start(party string, start func() (pid int, err error)) error {
	f.naming.Lock()
	defer f.naming.Unlock()
	pid, err := start()
	if err == nil {
		f.callers[party] = pid
	}
	return err
}

// Between gives the links of every caller whose name matches from to every party whose name matches
// to, in the manner of [path.Match]. That there is none is an error: a fault that hits nothing
// proves nothing.
func (f *Fabric) Between(from, to string) (Links, error) {
	for _, p := range []string{from, to} {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("links: %q: %w", p, err)
		}
	}
	f.naming.RLock()
	var callers []string
	for name := range f.callers {
		if ok, _ := path.Match(from, name); ok {
			callers = append(callers, name)
		}
	}
	f.naming.RUnlock()
	slices.Sort(callers)

	f.mu.Lock()
	defer f.mu.Unlock()
	var parties []string
	for _, fr := range f.fronts {
		if ok, _ := path.Match(to, fr.party); ok && !slices.Contains(parties, fr.party) {
			parties = append(parties, fr.party)
		}
	}
	var out Links
	for _, c := range callers {
		for _, p := range parties {
			out = append(out, f.link(c, p))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("links: none from %q to %q", from, to)
	}
	return out, nil
}

// All gives every link that was ever used or asked for.
func (f *Fabric) All() Links {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out Links
	for _, l := range f.links {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b *Link) int {
		return slices.Compare([]string{a.From, a.To}, []string{b.From, b.To})
	})
	return out
}

// link is called with mu held.
func (f *Fabric) link(from, to string) *Link {
	key := pairOf{from, to}
	l := f.links[key]
	if l == nil {
		l = newLink(from, to)
		f.links[key] = l
	}
	return l
}

// Close ends every connection and front and waits until all are gone.
func (f *Fabric) Close() error {
	f.mu.Lock()
	f.closed = true
	fronts, links := f.fronts, f.links
	f.mu.Unlock()
	var errs []error
	for _, fr := range fronts {
		errs = append(errs, fr.listener.Close())
	}
	for _, l := range links {
		l.Cut()
	}
	f.wg.Wait()
	return errors.Join(errs...)
}

func (f *Fabric) accept(fr *front) {
	for {
		c, err := fr.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, say: others must end first
			time.Sleep(50 * time.Millisecond)
			continue
		}
		f.wg.Go(func() { f.serve(fr, c.(*net.TCPConn)) })
	}
}

func (f *Fabric) serve(fr *front, c *net.TCPConn) {
	caller := f.caller(c)
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		reset(c)
		return
	}
	l := f.link(caller, fr.party)
	f.mu.Unlock()
	l.serve(c, fr.upstream)
}

// caller tells who holds the other end.
func (f *Fabric) caller(c *net.TCPConn) string {
	f.naming.RLock()
	defer f.naming.RUnlock()
	theirs, ours := c.RemoteAddr().(*net.TCPAddr), c.LocalAddr().(*net.TCPAddr)
	if name, ok := holder(theirs.Port, ours.Port, f.callers); ok {
		return name
	}
	return Client
}

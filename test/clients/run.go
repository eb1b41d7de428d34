package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// together is how many scripts run at a time: they wait more than they compute.
	together = 3
	// scriptLimit bounds one script on one way.
	scriptLimit = 6 * time.Minute
)

// matrix is every client.
func matrix() []*client {
	return slices.Concat(franzClients(), saramaClients(), librdkafkaClients(), javaClients(), toolsClients())
}

// run goes both ways with every client and compares.
func run(ctx context.Context, opt options) (_ *report, err error) {
	var clients []*client
	for _, c := range matrix() {
		if len(opt.only) > 0 && !slices.Contains(opt.only, c.ID) || opt.quick && !c.Quick {
			continue
		}
		clients = append(clients, c)
	}
	if len(clients) == 0 {
		return nil, errors.New("no such client")
	}
	w := &world{opt: opt}
	defer func() { err = errors.Join(err, w.stop()) }()
	var group errgroup.Group
	group.Go(func() (err error) {
		clients, err = prepare(ctx, clients, w)
		return err
	})
	group.Go(func() error { return w.start(ctx) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	opt.say("the clusters run, no sidecar yet")
	direct, err := w.runAll(ctx, clients, w.direct())
	if err != nil {
		return nil, err
	}
	second := w.control()
	if !opt.control {
		if err := w.join(ctx); err != nil {
			return nil, err
		}
		opt.say("the sidecars run, %s is mirrored", mirrored)
		second = w.proxied()
	}
	proxied, err := w.runAll(ctx, clients, second)
	if err != nil {
		return nil, err
	}
	w.keepLogs()
	r := newReport(opt)
	used := map[string]int{}
	for i, c := range clients {
		applyKnown(used, false, c, direct[i])
		applyKnown(used, true, c, proxied[i])
		cells := compare(direct[i], proxied[i])
		r.Rows = append(r.Rows, row{Client: c.Name, Version: c.Version, ID: c.ID, Tools: c.Tools, Cells: cells})
	}
	r.sum(used, opt)
	return r, nil
}

// errNotHere says that a client cannot be had on this machine.
var errNotHere = errors.New("cannot be had here")

// prepare fetches what clients need. The short form does without one that cannot be had.
func prepare(ctx context.Context, clients []*client, w *world) (ready []*client, err error) {
	for _, c := range clients {
		if c.prepare != nil {
			err = c.prepare(ctx, c, w)
		}
		switch {
		case errors.Is(err, errNotHere) && w.opt.quick:
			w.opt.say("%s %s is left out: %v", c.Name, c.Version, err)
			err = nil
		case err != nil:
			return nil, fmt.Errorf("%s %s: %w", c.Name, c.Version, err)
		default:
			ready = append(ready, c)
		}
	}
	return ready, nil
}

func applyKnown(used map[string]int, proxied bool, c *client, t *transcript) {
	for _, k := range knownDifferences() {
		for _, p := range t.Parts {
			for i := range p.Seen {
				if k.apply(proxied, c, p.Name, &p.Seen[i]) {
					used[k.ID]++
				}
			}
		}
	}
}

// runAll runs every script on one way.
func (w *world) runAll(ctx context.Context, clients []*client, l leg) ([]*transcript, error) {
	var topics []string
	for _, c := range clients {
		topics = append(topics, l.topicsOf(c)...)
	}
	if err := w.createTopics(ctx, topics); err != nil {
		return nil, err
	}
	n := w.normaliser(l)
	out := make([]*transcript, len(clients))
	var group errgroup.Group
	group.SetLimit(together)
	for i, c := range clients {
		group.Go(func() error {
			begun := time.Now()
			ctx, cancel := context.WithTimeout(ctx, scriptLimit)
			defer cancel()
			t, err := c.run(ctx, c, w, l)
			if t == nil {
				t = &transcript{}
			}
			if err != nil {
				t.Broken = err.Error()
			}
			w.keep(c, l, t)
			for _, p := range t.Parts {
				n.part(p)
			}
			out[i] = t
			w.opt.say("%s %s %s in %s", c.Name, c.Version, l.Name, time.Since(begun).Round(100*time.Millisecond))
			return nil
		})
	}
	return out, group.Wait()
}

// keepLogs keeps what the sidecars said.
func (w *world) keepLogs() {
	if w.opt.keep == "" {
		return
	}
	for _, c := range w.dst.Sidecars {
		text, err := os.ReadFile(c.LogFile())
		if err == nil {
			err = os.WriteFile(filepath.Join(w.opt.keep, filepath.Base(c.LogFile())), text, 0o644)
		}
		if err != nil && !w.opt.control {
			w.opt.say("keep a log: %v", err)
		}
	}
}

// keep writes a transcript for those who want to read it.
func (w *world) keep(c *client, l leg, t *transcript) {
	if w.opt.keep == "" {
		return
	}
	var b strings.Builder
	for _, p := range t.Parts {
		fmt.Fprintf(&b, "== %s\n", p.Name)
		for _, o := range p.Seen {
			fmt.Fprintf(&b, "%s: %s\n", o.Step, o.Value)
		}
		if p.Broken != "" {
			fmt.Fprintf(&b, "BROKEN %s\n", p.Broken)
		}
	}
	if t.Broken != "" {
		fmt.Fprintf(&b, "BROKEN %s\n", t.Broken)
	}
	err := os.MkdirAll(w.opt.keep, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(w.opt.keep, c.ID+"-"+l.Name+".txt"), []byte(b.String()), 0o644)
	}
	if err != nil {
		w.opt.say("keep a transcript: %v", err)
	}
}

package syncs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// This file holds what the runs of all syncs have in common.

// ownTimeout is how long a round that is over may still write down what it has done.
const ownTimeout = 10 * time.Second

// Here is what every sync needs of this cluster, and where it tells what it does.
type Here struct {
	// Destination is a client of this cluster, around the proxies.
	Destination *kgo.Client
	ClusterID   string
	Mirrors     Mirrors
	Ledger      *policy.Ledger
	Log         *slog.Logger
}

// round is one run of a sync for one mirror.
type round struct {
	Here
	kind   policy.Kind
	m      Mirror
	why    policyv1.Round_Why
	report Report
}

// acts tells whether anything is to be changed.
func (r *round) acts() bool {
	return r.why != policyv1.Round_DRY_RUN && r.why != policyv1.Round_EXPLAIN
}

// question is what the policies are asked with. They leave a run the time to do what they decide: one
// that ended while they are asked would never do anything of a long list.
func (r *round) question() policy.Question {
	q := r.m.Question(r.ClusterID, r.why)
	if r.why == policyv1.Round_REFRESH {
		q.Within = runTimeout / 3
	}
	return q
}

// skip tells that something is left out although it is accepted.
func (r *round) skip(item, why string) {
	r.report.Skipped = append(r.report.Skipped, Skip{item, why})
	if r.acts() {
		r.Ledger.Skipped(r.m.Name, r.kind, item, why)
	}
}

// leaveOut is skip of what the policies are not asked about.
func (r *round) leaveOut(item, rule, why string) {
	r.report.Skipped = append(r.report.Skipped, Skip{item, why})
	if r.acts() {
		r.Ledger.LeftOut(r.m.Name, r.kind, item, rule, why)
	}
}

// applied tells the ledger what became of an item.
func (r *round) applied(item string, err error) {
	if err != nil {
		r.Ledger.Failed(r.m.Name, r.kind, item, err)
	} else {
		r.Ledger.Applied(r.m.Name, r.kind, item)
	}
}

func (r *round) tell(verb string, items []string, detail string) {
	for _, i := range items {
		r.report.Changes = append(r.report.Changes, Change{Item: i, Verb: verb, Detail: detail})
	}
}

// own writes down what has become the mirror's and what has ceased to be, also when the round was
// given up.
func (r *round) own(ctx context.Context, add, remove []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ownTimeout)
	defer cancel()
	return r.Mirrors.Own(ctx, r.m.Name, r.kind, add, remove)
}

// asks tells whether a mirror's configuration asks for a kind at all: without rules of its own, which
// are given or not, the built-in policy has nothing to say; others may.
func (m Mirror) asks(kind policy.Kind, given bool) bool {
	q := m.Question("", policyv1.Round_REFRESH)
	return len(policy.Names(q.Config, kind)) > 0 && (given || !policy.BuiltInOnly(q.Config, kind))
}

// firstErrors joins the first errors, and counts the others: of a round in which everything fails not
// all is told.
func firstErrors(errs []error, most int) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if more := len(errs) - most; more > 0 {
		errs = append(errs[:most:most], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

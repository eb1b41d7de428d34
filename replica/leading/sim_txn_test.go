package leading

// Transactions. The machine sees batches, and markers are batches: what is looked at here is
// what a reader of committed records sees, and how a stop ends what the source has left open.

type simTxn int8

const (
	txnNone simTxn = iota
	txnData
	txnCommit
	txnAbort
)

// open returns the transactions that a log leaves open, by producer.
func (l *simLog) open(yield func(pid int8)) {
	var open [4]bool
	for _, b := range l.batches {
		open[b.pid] = b.txn == txnData
	}
	for pid, is := range open {
		if is && pid > 0 {
			yield(int8(pid))
		}
	}
}

// transact makes a batch of the source one of a transaction, or its end.
func (w *simWorld) transact(b *simBatch, n int) {
	pid := int8(1 + n/2%2)
	open := false
	w.source.open(func(p int8) { open = open || p == pid })
	switch n / 4 % 4 {
	case 0:
		return
	case 1:
		b.txn = txnData
	case 2:
		b.txn = txnCommit
	case 3:
		b.txn = txnAbort
	}
	if !open {
		b.txn = txnData
	}
	b.pid = pid
	if b.txn != txnData {
		b.last = b.base
	}
}

// forget: with a marker that the source lost, what it said of its transaction is open again.
func (w *simWorld) forget(b simBatch) {
	if b.txn == txnNone {
		return
	}
	w.fate = [maxOffset]uint8{}
}

// tellFates takes what r shows to a reader of committed records. What one replica has shown as
// committed no other may show as aborted, nor the other way round.
func (w *simWorld) tellFates(r *simReal) {
	if !w.cfg.txn {
		return
	}
	var open [4][]int
	for _, b := range r.log.batches {
		if b.last >= r.hw {
			return
		}
		switch b.txn {
		case txnNone:
		case txnData:
			open[b.pid] = append(open[b.pid], b.id)
		default:
			for _, id := range open[b.pid] {
				if w.gone.has(id) {
					continue
				}
				if f := w.fate[id]; f != 0 && f != uint8(b.txn) {
					w.fail("T1: batch %d was shown as committed by one replica and as aborted by another", id)
				}
				w.fate[id] = uint8(b.txn)
			}
			open[b.pid] = nil
		}
	}
}

// abortOpen ends what the source has left open, at the real broker that leads. It tells whether
// that is done.
func (w *simWorld) abortOpen() (did, done bool) {
	l := w.byID(w.meta.leader)
	if l == nil || !l.leads() || l.view.le != w.meta.le {
		return false, false
	}
	l.log.open(func(pid int8) {
		w.nextID++
		w.local.add(w.nextID)
		l.log.append(simBatch{base: l.log.end, last: l.log.end, epoch: l.view.le, id: w.nextID, pid: pid, txn: txnAbort})
		did = true
	})
	if did {
		w.leaderMark(l)
		w.expose(l)
		return true, false
	}
	// A marker that is not on enough replicas may go with this one.
	return false, l.hw >= l.log.end
}

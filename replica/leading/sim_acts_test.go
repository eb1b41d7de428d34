package leading

import (
	"fmt"
	"strings"
	"time"
)

// simAct is one step of a walk: who does what, and a number that any choice in it is
// taken from.
type simAct struct {
	kind simKind
	who  int
	n    int
}

type simKind int

const (
	actRealView simKind = iota
	actRealSend
	actRealAnswer
	actRealTake
	actRealTimeout
	actRealKill
	actRealStop
	actRealPower
	actRealWipe
	actRealUp
	actRealFence
	actUnfenceReal
	actUnfenceVirt
	actVirtView
	actVirtMessage
	actVirtLose
	actVirtTwice
	actVirtPull
	actVirtEvict
	actVirtFetch
	actVirtTick
	actVirtStart
	actVirtCrash
	actVirtFence
	actAppend
	actUnclean
	actEpoch
	actRetain
	actElect
	actStop
	actCoordinate
	actCoordinatorDies
	actReassign
	actReassignLost
	actMin
	actPause
	actNotice
	actWrite
	actGiveUp
	actForever
	actRestore
	actAllow
	actRetry
	actSilent
	actTime
	actMoment
	actKinds
)

// simKinds names the acts, and says how often a random walk tries them.
var simKinds = [actKinds]struct {
	name   string
	weight int
}{
	actRealView:        {"real views", 18},
	actRealSend:        {"real sends", 30},
	actRealAnswer:      {"real's request is answered", 30},
	actRealTake:        {"real takes the answer", 30},
	actRealTimeout:     {"real's request times out", 2},
	actRealKill:        {"real is killed", 1},
	actRealStop:        {"real stops cleanly", 1},
	actRealPower:       {"real loses power", 1},
	actRealWipe:        {"real is wiped", 1},
	actRealUp:          {"real starts", 8},
	actRealFence:       {"real is fenced", 6},
	actUnfenceReal:     {"real is unfenced", 12},
	actUnfenceVirt:     {"virtual is unfenced", 8},
	actVirtView:        {"virtual views", 14},
	actVirtMessage:     {"message of virtual moves", 50},
	actVirtLose:        {"message of virtual is lost", 3},
	actVirtTwice:       {"message of virtual is late", 2},
	actVirtPull:        {"virtual pulls", 20},
	actVirtEvict:       {"virtual evicts", 3},
	actVirtFetch:       {"virtual fetches", 12},
	actVirtTick:        {"virtual ticks", 3},
	actVirtStart:       {"virtual starts", 8},
	actVirtCrash:       {"virtual dies", 1},
	actVirtFence:       {"virtual is fenced", 2},
	actAppend:          {"source appends", 16},
	actUnclean:         {"source elects uncleanly", 2},
	actEpoch:           {"source elects", 2},
	actRetain:          {"source retains or compacts", 2},
	actElect:           {"preferred election", 2},
	actStop:            {"operator stops", 1},
	actCoordinate:      {"coordinator acts", 6},
	actCoordinatorDies: {"coordinator dies", 2},
	actReassign:        {"reassignment arrives", 6},
	actReassignLost:    {"reassignment is lost", 1},
	actMin:             {"min.insync.replicas changes", 2},
	actPause:           {"operator pauses or resumes", 2},
	actNotice:          {"virtual notices what is wanted", 6},
	actWrite:           {"client writes", 4},
	actGiveUp:          {"operator gives up", 6},
	actForever:         {"real is gone for ever", 1},
	actRestore:         {"source is restored", 2},
	actAllow:           {"operator allows truncation", 1},
	actRetry:           {"virtual retries", 3},
	actSilent:          {"real's fetcher gives up", 2},
	actTime:            {"time passes", 1},
	actMoment:          {"a moment passes", 1},
}

func (a simAct) String() string { return fmt.Sprintf("%s %d (%d)", simKinds[a.kind].name, a.who, a.n) }

// parseActs reads what String has written, one act a line; what a line has beside is
// skipped, and so are lines without an act.
func parseActs(text string) (acts []simAct) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		for k := range actKinds {
			a := simAct{kind: k}
			// One name may be the beginning of another.
			if rest, ok := strings.CutPrefix(line, simKinds[k].name+" "); ok {
				if _, err := fmt.Sscanf(rest, "%d (%d)", &a.who, &a.n); err == nil {
					acts = append(acts, a)
				}
			}
		}
	}
	return acts
}

// possible leaves out what the configuration never has.
func (c *simConfig) possible(k simKind) bool {
	b := c.budget
	switch k {
	case actRealKill, actRealStop:
		return b.crash > 0
	case actRealPower, actRealWipe:
		return b.power > 0
	case actRealUp, actRealFence, actUnfenceReal:
		return b.crash+b.power+b.forever > 0
	case actVirtLose:
		return b.lost != 0
	case actReassignLost:
		return b.lost != 0 && b.coord > 0
	case actVirtTwice:
		return b.twice > 0
	case actVirtCrash, actVirtFence:
		return b.virt > 0
	case actAppend:
		return b.appends > 0
	case actUnclean:
		return b.unclean > 0
	case actEpoch:
		return b.elect > 0
	case actRetain:
		return b.retain > 0
	case actElect:
		return b.moves != 0
	case actStop:
		return b.stop > 0
	case actCoordinatorDies:
		return b.coord > 0
	case actMin:
		return b.min > 0
	case actPause:
		return b.pause > 0
	case actNotice:
		return b.pause+b.stop+b.giveUp+b.restore > 0
	case actWrite:
		return b.writes+b.rogue > 0
	case actGiveUp:
		return b.giveUp > 0
	case actForever:
		return b.forever > 0
	case actRestore, actAllow, actRetry:
		return b.restore > 0
	case actSilent:
		return b.silent > 0
	case actTime:
		return b.ticks > 0
	case actMoment:
		return c.frozen
	}
	return true
}

// simTick is how far time passes at once where it is frozen, simMoment less than anything
// that is waited for but a retry.
const (
	simTick   = 1000 * time.Hour
	simMoment = time.Second
)

// step does one act; false if there was nothing to do. Only then does no time pass, so that
// a walk replays without the acts that did nothing.
func (w *simWorld) step(a simAct) bool {
	before := w.now
	if !w.frozen {
		w.now = before.Add(time.Second)
	}
	did := w.do(a)
	if !did {
		w.now = before
		return false
	}
	w.stats.steps++
	return true
}

func (w *simWorld) do(a simAct) bool {
	real, virt := w.real[a.who%len(w.real)], w.virt[a.who%len(w.virt)]
	switch a.kind {
	case actRealView:
		return w.realView(real)
	case actRealSend:
		return w.realSend(real)
	case actRealAnswer:
		return w.realAnswer(real, a.n)
	case actRealTake:
		return w.realTake(real)
	case actRealTimeout:
		had := real.req != nil || real.ans != nil
		if had && w.left.lost == 0 {
			return false
		}
		if had && w.left.lost > 0 {
			w.left.lost--
		}
		real.req, real.ans = nil, nil
		return had
	case actRealKill:
		return w.realDown(real, endKilled, a.n)
	case actRealStop:
		return w.realDown(real, endClean, a.n)
	case actRealPower:
		return w.realDown(real, endPower, a.n)
	case actRealWipe:
		return w.realDown(real, endWiped, a.n)
	case actRealUp:
		return w.realUp(real)
	case actRealFence:
		if real.up || !w.meta.active(real.id) {
			return false
		}
		w.fence(real.id)
		return true
	case actUnfenceReal:
		return w.unfence(real.id)
	case actUnfenceVirt:
		return w.unfence(virt.id)
	case actVirtView:
		return w.virtView(virt)
	case actVirtMessage:
		return w.message(virt, a.n)
	case actVirtLose:
		return w.loseMessage(virt, a.n, false)
	case actVirtTwice:
		return w.loseMessage(virt, a.n, true)
	case actVirtPull:
		return w.pull(virt, a.n)
	case actVirtEvict:
		return w.evict(virt)
	case actVirtFetch:
		return w.fetchVirtual(virt)
	case actVirtTick:
		if !virt.up || virt.m.phase == Off {
			return false
		}
		virt.m.Tick(w.now)
		w.act(virt)
		return true
	case actVirtStart:
		return w.virtStart(virt)
	case actVirtCrash:
		return w.virtCrash(virt)
	case actVirtFence:
		if !w.meta.active(virt.id) || virt.up && w.left.virt <= 0 {
			return false
		}
		if virt.up {
			w.left.virt--
		}
		w.fence(virt.id)
		return true
	case actAppend:
		if w.left.appends <= 0 {
			return false
		}
		w.left.appends--
		w.append(int64(a.n))
		return true
	case actUnclean:
		return w.unclean(a.n)
	case actEpoch:
		if w.left.elect <= 0 {
			return false
		}
		w.left.elect--
		w.sle++
		w.said()
		w.append(int64(a.n))
		return true
	case actRetain:
		return w.retain(a.n)
	case actElect:
		if w.left.moves == 0 || w.meta.leader < 0 {
			return false
		}
		old := w.meta.leader
		w.change(w.meta.isr, nil, true)
		if w.left.moves > 0 {
			w.left.moves--
		}
		return old != w.meta.leader
	case actStop:
		if w.left.stop <= 0 || w.stopped != stMirroring {
			return false
		}
		w.left.stop--
		w.stopped = stStopping
		return true
	case actCoordinate:
		return w.coordinate()
	case actCoordinatorDies:
		return w.coordinatorDies()
	case actReassign:
		return w.reassignArrives(a.n, false)
	case actReassignLost:
		return w.reassignArrives(a.n, true)
	case actMin:
		if w.left.min <= 0 || w.stopped != stMirroring {
			return false
		}
		w.left.min--
		w.own = w.cfg.own + (w.own-w.cfg.own+1)%2
		return true
	case actPause:
		// Resumed is what is PAUSED, paused what is not on its way back from a pause.
		if w.left.pause <= 0 || w.paused != w.rests || w.stopped != stMirroring {
			return false
		}
		w.left.pause--
		w.paused = !w.paused
		return true
	case actNotice:
		return w.notice(virt)
	case actWrite:
		return w.write(real)
	case actGiveUp:
		return w.operatorGivesUp()
	case actForever:
		return w.realForever(real)
	case actRestore:
		return w.restore(a.n)
	case actAllow:
		return w.operatorAllows()
	case actRetry:
		return w.virtRetry(virt)
	case actSilent:
		if w.left.silent <= 0 || !real.follows() || real.ans != nil || !simVirtual.Is(real.view.leader) {
			return false
		}
		w.left.silent--
		real.req, real.failed = nil, true
		return true
	case actTime:
		if w.left.ticks <= 0 || !w.frozen {
			return false
		}
		w.left.ticks--
		w.now = w.now.Add(simTick)
		return true
	case actMoment:
		if !w.frozen || !w.now.Before(virt.m.alterAfter) {
			return false
		}
		w.now = w.now.Add(simMoment)
		return true
	default:
		panic("no such act")
	}
}

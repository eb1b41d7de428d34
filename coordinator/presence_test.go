package coordinator

import (
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

func TestPresence(t *testing.T) {
	begin := time.Unix(1000, 0)
	var p presence
	known := false
	at := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
	see := func(s float64, b metadata.Broker, registered bool) {
		p, known = p.see(at(s), known, b, registered), true
	}
	live, fenced := func(epoch int64) metadata.Broker { return metadata.Broker{Epoch: epoch} }, func(epoch int64) metadata.Broker { return metadata.Broker{Epoch: epoch, Fenced: true} }

	see(0, live(1), true)
	if got := p.settles(at(1), electAfter); got != 2*time.Second || p.trust(at(1)) != fresh || p.trust(at(10)) != steady {
		t.Errorf("one that is seen first: %v %v", got, p.trust(at(10)))
	}
	see(20, fenced(1), true)
	see(21, fenced(1), true)
	if got := p.gone(at(22)); got != 2*time.Second || !p.there(at(22)) || p.there(at(26)) {
		t.Errorf("one that is gone: for %v", got)
	}
	see(24, metadata.Broker{}, false)
	if got := p.gone(at(24)); got != 4*time.Second {
		t.Errorf("one that unregistered while it was gone: for %v", got)
	}
	see(27, fenced(5), true)
	if got := p.gone(at(28)); got != time.Second || !p.there(at(28)) {
		t.Errorf("a new process has registered: gone for %v", got)
	}
	see(28, live(5), true)
	if got := p.settles(at(28), electAfter); got != electAfter || p.trust(at(29)) != fresh || p.gone(at(29)) != 0 {
		t.Errorf("one that came back once: %v %v", got, p.trust(at(29)))
	}
	see(40, live(9), true)
	if got := p.settles(at(40), electAfter); got != 2*electAfter || p.trust(at(41)) != shaky {
		t.Errorf("one that came back twice, unseen between: %v %v", got, p.trust(at(41)))
	}
	for i := range 20 {
		see(50+float64(i), live(10+int64(i)), true)
	}
	if got := p.settles(at(69), electAfter); got != electAfter<<flapDoublings {
		t.Errorf("one that flaps: %v", got)
	}
	see(69+flapWindow.Seconds()+1, live(100), true)
	if got := p.settles(at(69+flapWindow.Seconds()+1), electAfter); got != electAfter {
		t.Errorf("what is long ago is forgotten: %v", got)
	}
}

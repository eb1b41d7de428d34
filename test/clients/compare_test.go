package main

import (
	"strings"
	"testing"
)

func seen(pairs ...string) []observation {
	var out []observation
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, observation{pairs[i], pairs[i+1]})
	}
	return out
}

func whole(parts ...*part) *transcript { return &transcript{Parts: parts} }

func TestCompare(t *testing.T) {
	base := seen("a", "1", "b", "one\ntwo\nthree")
	for _, c := range []struct {
		name            string
		direct, proxied *transcript
		outcomes        string
		detail          string
	}{
		{"equal", whole(&part{"p", base, ""}), whole(&part{"p", base, ""}), "equal", ""},
		{"another value", whole(&part{"p", base, ""}), whole(&part{"p", seen("a", "2", "b", "one\ntwo\nthree"), ""}), "DIFFERENT", "direct  1"},
		{"another line", whole(&part{"p", base, ""}), whole(&part{"p", seen("a", "1", "b", "one\ntwo\nfour"), ""}), "DIFFERENT", "(line 3) four"},
		{"less was seen", whole(&part{"p", base, ""}), whole(&part{"p", base[:1], ""}), "DIFFERENT", "seen by direct only"},
		{"more was seen", whole(&part{"p", base[:1], ""}), whole(&part{"p", base, ""}), "DIFFERENT", "through the proxy only"},
		{"another order", whole(&part{"p", seen("a", "1", "b", "1"), ""}), whole(&part{"p", seen("b", "1", "a", "1"), ""}), "DIFFERENT", "step 0 is a direct, b through the proxy"},
		{"broken alike", whole(&part{"p", base, "no"}), whole(&part{"p", base, "no"}), "BROKEN", "direct: no"},
		{"nothing seen", whole(&part{"p", nil, ""}), whole(&part{"p", nil, ""}), "BROKEN", "nothing was observed"},
		{"a part is missing", whole(&part{"p", base, ""}, &part{"q", base, ""}), whole(&part{"p", base, ""}), "equal BROKEN", "not reached"},
		{"a part more", whole(&part{"p", base, ""}), whole(&part{"p", base, ""}, &part{"q", base, ""}), "equal BROKEN", "not reached"},
		{"the script died", &transcript{Broken: "died"}, whole(&part{"p", base, ""}), "BROKEN BROKEN", "direct: died"},
		{"no part", whole(), whole(), "BROKEN", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var outcomes, details []string
			for _, cell := range compare(c.direct, c.proxied) {
				outcomes = append(outcomes, cell.Outcome)
				details = append(details, cell.Details...)
			}
			if got := strings.Join(outcomes, " "); got != c.outcomes {
				t.Errorf("outcomes %q, want %q", got, c.outcomes)
			}
			if got := strings.Join(details, "\n"); !strings.Contains(got, c.detail) {
				t.Errorf("details %q lack %q", got, c.detail)
			}
		})
	}
}

func TestParseTranscript(t *testing.T) {
	got := parseTranscript("noise\nP\tmetadata\nO\tstep one\ta\\tb\\nc\\\\n\nP\tproduce\nF\tit failed\nD\n")
	if got.Broken != "" || len(got.Parts) != 2 {
		t.Fatalf("parsed %+v", got)
	}
	if p := got.Parts[0]; p.Name != "metadata" || len(p.Seen) != 1 || p.Seen[0] != (observation{"step one", "a\tb\nc\\n"}) {
		t.Errorf("first part %+v", p)
	}
	if p := got.Parts[1]; p.Broken != "it failed" {
		t.Errorf("second part %+v", p)
	}
	if parseTranscript("P\tmetadata\n").Broken == "" {
		t.Error("a script that did not come to its end passes for one that did")
	}
}

func TestNormalise(t *testing.T) {
	direct := newNormaliser(leg{Token: "rund"}, map[string]string{"127.0.0.1:1111": "<broker-1>"})
	proxied := newNormaliser(leg{Token: "runp"}, map[string]string{"127.0.0.1:2222": "<broker-1>"})
	for _, c := range []struct {
		name           string
		a, b           string // seen on the ways
		wantsDifferent bool
	}{
		{"addresses and names", "x-rund at 127.0.0.1:1111", "x-runp at 127.0.0.1:2222", false},
		{"a broker's own address", "at 127.0.0.1:1111", "at 127.0.0.1:1111", true},
		{"uuids", "consumer-fe3a2c9e-0b1d-4c55-9f67-6f3f0d1c2b3a", "consumer-00000000-0b1d-4c55-9f67-6f3f0d1c2b3a", false},
		{"topic ids", "id mSMfBQkjT3Szg0QwIt6Kcw.", "id aRt5QOVTTJGBVI1tJ4Bcug.", false},
		{"one id that was two", "mSMfBQkjT3Szg0QwIt6Kcw mSMfBQkjT3Szg0QwIt6Kcw", "mSMfBQkjT3Szg0QwIt6Kcw aRt5QOVTTJGBVI1tJ4Bcug", true},
		{"values", "retention.ms=1", "retention.ms=2", true},
		{"ids without digits", "a MVYbraPsSWusztmlCxGokA, b -_YbraPsSWusztmlCxGokA", "a mSMfBQkjTxSzgxQwItxKcw, b M_YbraPsSWusztmlCxGokA", false},
		{"words that are as long", "unclean-leader-electio", "unclean-leader-electia", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := &part{Seen: seen("s", c.a)}, &part{Seen: seen("s", c.b)}
			direct.part(a)
			proxied.part(b)
			if different := a.Seen[0].Value != b.Seen[0].Value; different != c.wantsDifferent {
				t.Errorf("%q and %q", a.Seen[0].Value, b.Seen[0].Value)
			}
		})
	}
}

// TestPlanted: a row of a run with a planted difference passes if it was noticed there, and nowhere else.
func TestPlanted(t *testing.T) {
	different := cell{Part: "metadata", Outcome: outcomeDifferent, Details: []string{"rack planted"}}
	r := report{Rows: []row{{Cells: []cell{different, {Part: "produce", Outcome: outcomeEqual}, {Part: "group", Outcome: outcomeDifferent, Details: []string{"at planted"}}}}}}
	r.sum(nil, options{plant: true})
	if r.Passed != 3 || r.Failed != 0 {
		t.Errorf("noticed: %d passed, %d failed", r.Passed, r.Failed)
	}
	r = report{Rows: []row{{Cells: []cell{{Part: "metadata", Outcome: outcomeEqual}, {Part: "produce", Outcome: outcomeDifferent, Details: []string{"planted", "another"}}}}}}
	r.sum(nil, options{plant: true})
	if r.Passed != 0 || r.Failed != 2 {
		t.Errorf("not noticed: %d passed, %d failed", r.Passed, r.Failed)
	}
}

// TestWithoutTouched: that another script has set its config on the broker, or has not yet, is no difference; what nobody
// sets is one.
func TestWithoutTouched(t *testing.T) {
	const untouched = "  log.retention.ms=1 sensitive=false\n  max.connections=2147483647 sensitive=false synonyms={DEFAULT_CONFIG:max.connections=2147483647}\n  max.connections.per.ip.overrides=\n"
	for _, c := range []struct {
		name, other string
		different   bool
	}{
		{"set meanwhile", "  log.retention.ms=1 sensitive=false\n  max.connections=97654321 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:max.connections=97654321}\n  max.connections.per.ip.overrides=\n", false},
		{"nobody's own", "  log.retention.ms=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=2}\n  max.connections.per.ip.overrides=\n", true},
		{"a name that begins alike", "  log.retention.ms=1 sensitive=false\n  max.connections.per.ip.overrides=1\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if a, b := withoutTouched(untouched), withoutTouched(c.other); (a != b) != c.different {
				t.Errorf("%q and %q", a, b)
			}
		})
	}
}

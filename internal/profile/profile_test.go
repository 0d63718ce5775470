package profile

import (
	"strings"
	"testing"
	"time"

	"netemd/qdisc"
)

// Every number has a source with an address, and what is made of it is valid.
func TestBuiltins(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Builtins() {
		if !ValidName(p.Name) || seen[p.Name] || p.Summary == "" {
			t.Errorf("%q: %+v", p.Name, p)
		}
		seen[p.Name] = true
		if len(p.Sources) == 0 {
			t.Errorf("%s has no source", p.Name)
		}
		for _, s := range p.Sources {
			if s.Title == "" || !strings.HasPrefix(s.URL, "https://") || s.Year == "" || s.Says == "" {
				t.Errorf("%s: %+v", p.Name, s)
			}
		}
		for side, n := range map[string]qdisc.Netem{"uplink": p.Uplink, "downlink": p.Downlink} {
			if err := n.Validate(); err != nil || n.IsZero() {
				t.Errorf("%s, %s: %v, %v", p.Name, side, n, err)
			}
			// A TCP's first flight fits, and what waits for the rate waits no longer than was said.
			if n.Rate > 0 && (n.Limit < leastQueue || n.Limit > leastQueue && n.QueueTime()-n.Delay > queue) {
				t.Errorf("%s, %s: limit %d, %v in the queue", p.Name, side, n.Limit, n.QueueTime())
			}
		}
		if p.Uplink.Rate > p.Downlink.Rate {
			t.Errorf("%s: up %v, down %v", p.Name, p.Uplink.Rate, p.Downlink.Rate)
		}
	}
	for _, name := range []string{"3g", "lte", "dsl", "satellite", "lossy-wifi", "transatlantic", "cross-az"} {
		if _, ok := Find(name); !ok {
			t.Errorf("no %s", name)
		}
	}
	if _, ok := Find("5g"); ok {
		t.Error("5g is known")
	}
}

// A delay is one way: half of the round trip in each direction. The client's uplink is what
// packets to the target meet.
func TestToward(t *testing.T) {
	p, _ := Find("3g")
	to, from := p.Toward(false)
	if to.Delay != 150*time.Millisecond || to.Rate.String() != "768kbit" || from.Delay != 150*time.Millisecond || from.Rate.String() != "1600kbit" {
		t.Errorf("to %v, from %v", to, from)
	}
	if a, b := p.Toward(true); a != from || b != to {
		t.Errorf("of the target: to %v, from %v", a, b)
	}
	if p.Symmetric() {
		t.Error("3g is symmetric")
	}
	if q, _ := Find("cross-az"); !q.Symmetric() || q.Uplink.Delay != time.Millisecond {
		t.Errorf("%+v", q)
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{"3g": true, "my_own-4.5": true, "": false, "a/b": false, "x.yaml": false, "x.yml": false, "é": false, strings.Repeat("a", 65): false} {
		if ValidName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

package fault

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"netemd/internal/content"
	"netemd/internal/target"
	"netemd/qdisc"
)

func TestValidateOutage(t *testing.T) {
	one, three := []string{"lab/a"}, []string{"lab/a", "lab/b", "lab/c"}
	many := make([]string, MaxOutageServices+1)
	for i := range many {
		many[i] = fmt.Sprintf("lab/s%d", i)
	}
	for name, c := range map[string]struct {
		spec Spec
		want string // in the error; empty for none
	}{
		"kill once":        {Spec{Outage: &Outage{Action: Kill, Services: one, Down: DefaultDown}}, ""},
		"until the end":    {Spec{Outage: &Outage{Action: Stop, Services: one}}, ""},
		"restart":          {Spec{Outage: &Outage{Action: Restart, Services: one, Every: time.Second}}, ""},
		"schedule":         {Spec{Outage: &Outage{Action: Kill, Services: three, Down: time.Second, Every: time.Second, Jitter: 20, Count: 8, AtMost: 2}}, ""},
		"as many as room":  {Spec{Outage: &Outage{Action: Kill, Services: three, Down: 3 * time.Second, Every: time.Second, AtMost: 3}}, ""},
		"engine":           {Spec{Engine: Process, Outage: &Outage{Action: Kill, Services: one}}, ""},
		"no action":        {Spec{Outage: &Outage{Services: one}}, `action: want kill, stop or restart`},
		"no service":       {Spec{Outage: &Outage{Action: Kill}}, `services "0": want 1 to 64 services`},
		"too many":         {Spec{Outage: &Outage{Action: Kill, Services: many}}, `services "65"`},
		"no lab":           {Spec{Outage: &Outage{Action: Kill, Services: []string{"a"}}}, ""},
		"a list":           {Spec{Outage: &Outage{Action: Kill, Services: []string{"a/b, c"}}}, `services "a/b, c": want a lab's service, as LAB/SERVICE`},
		"half a name":      {Spec{Outage: &Outage{Action: Kill, Services: []string{"a/"}}}, `services "a/"`},
		"a path":           {Spec{Outage: &Outage{Action: Kill, Services: []string{"a/b/c"}}}, `services "a/b/c"`},
		"twice":            {Spec{Outage: &Outage{Action: Kill, Services: []string{"l/a", "l/a"}}}, `services "l/a": want each service once`},
		"down too long":    {Spec{Outage: &Outage{Action: Kill, Services: one, Down: 25 * time.Hour}}, `down "25h"`},
		"down below 0":     {Spec{Outage: &Outage{Action: Kill, Services: one, Down: -1}}, `down "-1ns"`},
		"every too short":  {Spec{Outage: &Outage{Action: Kill, Services: one, Down: time.Millisecond, Every: time.Millisecond}}, `every "1ms": want 0s, or a time from 10ms`},
		"jitter":           {Spec{Outage: &Outage{Action: Kill, Services: one, Down: 1e6, Every: time.Second, Jitter: 51}}, `jitter "51%": want a share of each time from 0% to 50%`},
		"jitter once":      {Spec{Outage: &Outage{Action: Kill, Services: one, Jitter: 5}}, `jitter "5%": want none without every`},
		"count once":       {Spec{Outage: &Outage{Action: Kill, Services: one, Count: 2}}, `count "2": want 1 without every`},
		"count":            {Spec{Outage: &Outage{Action: Kill, Services: one, Down: 1e6, Every: time.Second, Count: MaxOutages + 1}}, `count "100001"`},
		"at most":          {Spec{Outage: &Outage{Action: Kill, Services: one, AtMost: 2}}, `at-most "2": want 1 to the number of services, which is 1`},
		"down for ever":    {Spec{Outage: &Outage{Action: Kill, Services: one, Every: time.Second}}, `down "0s": want a time above 0s with every`},
		"no room":          {Spec{Outage: &Outage{Action: Kill, Services: three, Down: 2 * time.Second, Every: time.Second}}, `down "2s": want at most 1s`},
		"and a target":     {Spec{Target: "pg", Outage: &Outage{Action: Kill, Services: one}}, `target "lab/a": want none`},
		"and a device":     {Spec{Selector: &target.Selector{Device: "v0"}, Outage: &Outage{Action: Kill, Services: one}}, `target`},
		"and an impair":    {Spec{Packet: &qdisc.Netem{Loss: 1}, Outage: &Outage{Action: Kill, Services: one}}, "fault: want an outage of services alone"},
		"and a rule":       {Spec{Content: &content.Rule{Kind: content.SYN}, Outage: &Outage{Action: Kill, Services: one}}, "fault: want an outage of services alone"},
		"and a toxic":      {Spec{Toxics: []Toxic{{Kind: Down}}, Outage: &Outage{Action: Kill, Services: one}}, "fault: want an outage of services alone"},
		"another engine":   {Spec{Engine: EBPF, Outage: &Outage{Action: Kill, Services: one}}, `engine "ebpf": want process`},
		"direction":        {Spec{Direction: Both, Outage: &Outage{Action: Kill, Services: one}}, `direction "both"`},
		"offload":          {Spec{Offload: OffloadOff, Outage: &Outage{Action: Kill, Services: one}}, `offload "off"`},
		"force":            {Spec{Force: []string{ForceSSH}, Outage: &Outage{Action: Kill, Services: one}}, `force "ssh"`},
		"reattach":         {Spec{Reattach: true, Outage: &Outage{Action: Kill, Services: one}}, `reattach "true"`},
		"a packet's fault": {Spec{Target: "pg", Engine: Process, Packet: &qdisc.Netem{Loss: 1}}, `engine "process": want auto, netem or ebpf`},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.spec.Validate()
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, qdisc.ErrInvalid)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// The timetable is the same for the same seed, keeps to its limit, and draws all services.
func TestStrikes(t *testing.T) {
	o := Outage{Action: Kill, Services: []string{"l/a", "l/b", "l/c"}, Down: 600 * time.Millisecond, Every: 1500 * time.Millisecond, Jitter: 20, Count: 2000, Seed: 7}
	all := slices.Collect(o.Strikes())
	if again := slices.Collect(o.Strikes()); !slices.Equal(all, again) {
		t.Error("the same seed gives another timetable")
	}
	other := o
	other.Seed = 8
	if slices.Equal(all, slices.Collect(other.Strikes())) {
		t.Error("another seed gives the same timetable")
	}
	if len(all) != o.Count || all[0].At != 0 || all[0].Number != 1 {
		t.Fatalf("%d strikes, the first %+v; want %d, the first at once", len(all), all[0], o.Count)
	}
	times := map[string]int{}
	for i, s := range all {
		times[s.Service]++
		if i == 0 {
			continue
		}
		if gap := s.At - all[i-1].At; gap < 1200*time.Millisecond || gap > 1800*time.Millisecond {
			t.Fatalf("strike %d is %v after the one before, want 1.2s to 1.8s", s.Number, gap)
		}
	}
	// 2000 draws of three: 667 each, standard deviation 21; five of them to either side.
	for _, name := range o.Services {
		if n := times[name]; n < 560 || n > 774 {
			t.Errorf("%s was drawn %d times of %d", name, n, o.Count)
		}
	}
	// The mean of 1999 intervals, uniform from 1.2 to 1.8 s: deviation 0.173 s / sqrt(1999).
	if mean := all[len(all)-1].At / time.Duration(len(all)-1); mean < 1480*time.Millisecond || mean > 1520*time.Millisecond {
		t.Errorf("the mean interval is %v, want 1.5s", mean)
	}
}

// However tight, no more are down at once than is allowed, and none fails that is down.
func TestStrikesKeepTheLimit(t *testing.T) {
	for limit := 1; limit <= 3; limit++ {
		for seed := range uint64(20) {
			o := Outage{Action: Stop, Services: []string{"l/a", "l/b", "l/c"}, Every: time.Second, Jitter: 50, Count: 300, AtMost: limit, Seed: seed}
			o.Down = time.Duration(limit) * o.Every
			if errs := o.Validate(); len(errs) > 0 {
				t.Fatal(errs)
			}
			back := map[string]time.Duration{}
			var last time.Duration
			for s := range o.Strikes() {
				if s.At < last {
					t.Fatalf("strike %d at %v is before the one at %v", s.Number, s.At, last)
				}
				last = s.At
				if back[s.Service] > s.At {
					t.Fatalf("strike %d hits %s, which is down until %v", s.Number, s.Service, back[s.Service])
				}
				back[s.Service] = s.At + o.Down
				down := 0
				for _, until := range back {
					if until > s.At {
						down++
					}
				}
				if down > limit {
					t.Fatalf("%d are down at %v, want at most %d", down, s.At, limit)
				}
			}
			if length, ends := o.Length(); !ends || length != last+o.Down {
				t.Errorf("the length is %v, %t; want %v", length, ends, last+o.Down)
			}
		}
	}
}

func TestStrikesWithoutEnd(t *testing.T) {
	o := Outage{Action: Restart, Services: []string{"l/a"}, Every: time.Second}
	n := 0
	for s := range o.Strikes() {
		if s.At != time.Duration(n)*time.Second {
			t.Fatalf("strike %d at %v", s.Number, s.At)
		}
		if n++; n == 5000 {
			break
		}
	}
	if _, ends := o.Length(); ends || o.Total() != 0 {
		t.Error("it has an end")
	}
	once := Outage{Action: Kill, Services: []string{"l/a"}, Down: time.Second}
	if all := slices.Collect(once.Strikes()); len(all) != 1 || all[0] != (Strike{Number: 1, Service: "l/a"}) {
		t.Errorf("once: %+v", all)
	}
	if _, ends := (Outage{Action: Kill, Services: []string{"l/a"}}).Length(); ends {
		t.Error("one that is down until the fault ends has a length")
	}
}

func TestRecordStrikes(t *testing.T) {
	var r OutageRun
	for n := 1; n <= MaxStrikes+5; n++ {
		r.Record(StrikeRecord{Number: n})
	}
	before := r.Strikes
	r.Record(StrikeRecord{Number: 7, PID: 1})
	if len(r.Strikes) != MaxStrikes || r.Strikes[0].Number != 6 || r.Strikes[1].PID != 1 || before[1].PID != 0 {
		t.Errorf("%d strikes from %+v; before %+v", len(r.Strikes), r.Strikes[:2], before[1])
	}
	s := StrikeRecord{Down: Instant{Monotonic: 5}, Ready: Instant{Monotonic: 9}}
	if s.Took() != 4 || (StrikeRecord{Ready: s.Ready}).Took() != 0 {
		t.Errorf("took %v", s.Took())
	}
}

func TestOutageWords(t *testing.T) {
	for want, o := range map[string]Outage{
		"kill for 600ms":             {Action: Kill, Services: []string{"a/b"}, Down: DefaultDown},
		"stop until the fault ends":  {Action: Stop, Services: []string{"a/b"}},
		"restart":                    {Action: Restart, Services: []string{"a/b"}},
		"restart, 1s down, every 5s": {Action: Restart, Services: []string{"a/b"}, Down: time.Second, Every: 5 * time.Second},
		"kill one of 2 services for 1s, every 2s +-20%, 8 times":     {Action: Kill, Services: []string{"a/b", "a/c"}, Down: time.Second, Every: 2 * time.Second, Jitter: 20, Count: 8},
		"kill one of 2 services for 1s, every 2s, at most 2 at once": {Action: Kill, Services: []string{"a/b", "a/c"}, Down: time.Second, Every: 2 * time.Second, AtMost: 2},
	} {
		if got := o.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

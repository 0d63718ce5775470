package catalogue

import (
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"netemd/internal/experiment/plan"
	"netemd/internal/kpi"
	"netemd/internal/lab/labfile"
	"netemd/internal/policyfile"
	"netemd/qdisc"
)

func TestPlans(t *testing.T) {
	told := map[string]bool{}
	for _, g := range groups {
		for _, name := range order[g] {
			told["plans/"+g+"/"+name+".yaml"] = true
			text, ok := Text(g + "/" + name)
			p, err := plan.Parse(name+".yaml", text)
			if !ok || err != nil {
				t.Errorf("%s/%s: %v", g, name, err)
				continue
			}
			check(t, p, g+"/"+name)
		}
	}
	err := fs.WalkDir(files, "plans", func(path string, d fs.DirEntry, err error) error {
		if !d.IsDir() && !told[path] {
			t.Errorf("%s is not in the order", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if !t.Failed() && len(Plans()) != len(told) {
		t.Errorf("%d plans of %d", len(Plans()), len(told))
	}
}

func check(t *testing.T, p plan.Plan, name string) {
	t.Helper()
	if p.Name != name || !strings.HasSuffix(p.Question, "?") {
		t.Errorf("%s: is called %q, asks %q", name, p.Name, p.Question)
	}
	d, ok := labfile.Builtin(p.Lab)
	if !ok {
		t.Errorf("%s: no lab %q", name, p.Lab)
	}
	targets := map[string]bool{}
	for _, x := range d.Targets {
		targets[x.Name] = true
	}
	services := map[string]bool{}
	for _, n := range d.Nodes {
		for _, s := range n.Services {
			services[s.Name] = true
		}
	}
	for _, c := range p.Cases {
		if !targets[c.Load.Target] {
			t.Errorf("%s, %s: no target %q in lab %s", name, c.Name, c.Load.Target, p.Lab)
		}
		if _, builtin := policyfile.Text(c.Policy); c.Policy != "" && !builtin && p.Policies[c.Policy] == nil {
			t.Errorf("%s, %s: no policy %q", name, c.Name, c.Policy)
		}
		for _, f := range c.Faults {
			if f.Outage == nil && !targets[f.Target] {
				t.Errorf("%s, %s: no target %q", name, c.Name, f.Target)
			}
			if f.Outage != nil && slices.ContainsFunc(f.Outage.Services, func(s string) bool { return !services[s] }) {
				t.Errorf("%s, %s: no service of %v", name, c.Name, f.Outage.Services)
			}
		}
		for _, s := range c.Services() {
			if err := d.CheckSettings(s, c.Servers[s]); err != nil {
				t.Errorf("%s, %s: servers.%s: %v", name, c.Name, s, err)
			}
		}
	}
	for _, k := range p.KPIs {
		// A condition that holds whatever the numbers are holds nothing.
		draw := rand.New(rand.NewPCG(1, 2))
		fails := slices.ContainsFunc(make([]int, 200), func(int) bool {
			return k.Judge(func(kpi.Ref) (kpi.Value, error) {
				return kpi.Value{Number: math.Exp(20*draw.Float64() - 5)}, nil
			}).Verdict == kpi.Failed
		})
		if !fails {
			t.Errorf("%s: %s cannot fail", name, k.Text)
		}
	}
}

func TestMatch(t *testing.T) {
	for pattern, want := range map[string]int{"pg/*": len(order["pg"]), "pg/loss-tail": 1, "*/*": len(Plans()), "pg/l*": 2} {
		if got, err := Match(pattern); err != nil || len(got) != want {
			t.Errorf("%s: %d, %v, want %d", pattern, len(got), err, want)
		}
	}
	for pattern, want := range map[string]string{"pg/los-tail": "did you mean pg/loss-tail?", "[": "a pattern such as", "pg": "one of netemctl catalogue", "": "want"} {
		_, err := Match(pattern)
		var field *qdisc.FieldError
		if !errors.As(err, &field) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// TestTakes: how long a quick run takes is said, it is no less than the phases of all repeats and
// no more than calls that use up all their timeouts, and that of all is at most 35 minutes.
func TestTakes(t *testing.T) {
	// At most, of the time that a run says: its lab, and of each case the beginning of its calls
	// and the second in which their causes are found.
	const lab, each = 10 * time.Second, 3 * time.Second
	all := time.Duration(0)
	for _, p := range Plans() {
		short := p.Shortened()
		takes := short.Takes
		short.Takes = 0
		least, most := short.Bounds()
		most += lab + time.Duration(len(p.Cases))*each
		if takes < least || takes > most {
			t.Errorf("%s: takes %v, want %v to %v", p.Name, takes, least, most)
		}
		all += takes
	}
	if all > 35*time.Minute {
		t.Errorf("all take %v", all)
	}
}

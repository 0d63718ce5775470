package report

import (
	"time"

	"netemd/internal/experiment"
	"netemd/internal/suite"
)

// CommandRun is one run of the user's command.
type CommandRun struct {
	Case   string    `json:"case"`
	Phase  string    `json:"phase"`
	Repeat int       `json:"repeat"`
	Began  time.Time `json:"began"`
	// Seconds that it took.
	Seconds float64 `json:"seconds"`
	// Exit is its code; 124 at its limit.
	Exit int `json:"exit"`
	// The tests that it told of; those that never ended are among Failed.
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
	// Void says why the run counts for nothing; empty otherwise.
	Void string `json:"void,omitempty"`
}

// Test is one of the command's tests, and what became of it in each phase.
type Test struct {
	Group  string      `json:"group,omitempty"`
	Name   string      `json:"name"`
	Phases []TestPhase `json:"phases"`
}

// Failed reports whether it failed anywhere.
func (t Test) Failed() bool {
	for _, p := range t.Phases {
		if p.Failed > 0 {
			return true
		}
	}
	return false
}

// TestPhase is how often a test ended how in a phase of all repeats.
type TestPhase struct {
	Case    string `json:"case"`
	Phase   string `json:"phase"`
	Passed  int    `json:"passed"`
	Failed  int    `json:"failed"`
	Skipped int    `json:"skipped"`
}

func (p *TestPhase) add(s suite.State) {
	switch {
	case s.Bad():
		p.Failed++
	case s == suite.Skipped:
		p.Skipped++
	default:
		p.Passed++
	}
}

// Commanded are the runs of the command, and its tests by phase. Both are nil where no command
// ran.
func Commanded(o experiment.Observations) (runs []CommandRun, tests []Test) {
	for _, t := range o.Tests() {
		tests = append(tests, Test{Group: t.Group, Name: t.Name})
	}
	type key struct{ group, name string }
	at := map[key]*Test{}
	for i := range tests {
		at[key{tests[i].Group, tests[i].Name}] = &tests[i]
	}
	for _, x := range o {
		if x.Command == nil {
			continue
		}
		var sum TestPhase
		for _, t := range x.Command.Tests {
			sum.add(t.State)
			of := at[key{t.Group, t.Name}]
			n := len(of.Phases)
			for i, p := range of.Phases {
				if p.Case == x.Case && p.Phase == x.Phase {
					n = i
				}
			}
			if n == len(of.Phases) {
				of.Phases = append(of.Phases, TestPhase{Case: x.Case, Phase: x.Phase})
			}
			of.Phases[n].add(t.State)
		}
		runs = append(runs, CommandRun{
			Case: x.Case, Phase: x.Phase, Repeat: x.Repeat, Began: x.Command.Began, Seconds: x.Command.Ended.Sub(x.Command.Began).Seconds(),
			Exit: x.Command.Exit, Passed: sum.Passed, Failed: sum.Failed, Skipped: sum.Skipped, Void: x.Void,
		})
	}
	return runs, tests
}

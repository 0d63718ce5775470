package agent

import (
	"context"
	"errors"
	"fmt"

	"netemd/internal/fault"
	"netemd/internal/journal"
)

// openJournal begins this life's journal and returns what the lives before left in it.
func (a *Agent) openJournal() (journal.Last, error) {
	j, last, err := journal.Open(a.cfg.StateDir)
	if err != nil {
		return last, err
	}
	a.journal = j
	if last.Torn+last.Damaged > 0 {
		a.cfg.Log.Warn("the journal of an earlier agent was damaged; what could be read counts, and all devices are looked at anyway",
			"torn", last.Torn, "damaged", last.Damaged)
	}
	return last, nil
}

// closeJournal leaves the journal where somebody still has to know what is in it.
func closeJournal(j *journal.Journal) error {
	switch {
	case j == nil:
		return nil
	case j.Empty():
		return j.Remove()
	}
	return j.Close()
}

// settle writes down that nothing is left of what the lives before did, once it was looked
// for everywhere.
func settle(ctx context.Context, j *journal.Journal, open []journal.Entry) error {
	var errs []error
	for _, e := range open {
		errs = append(errs, j.End(ctx, e.Fault.ID, fault.Cleared))
	}
	return errors.Join(errs...)
}

// putBack restores the faults that a graceful stop handed over. One that cannot be is
// said, and stays for the next start until its time is over.
func (a *Agent) putBack(ctx context.Context, kept []fault.Fault) {
	for _, f := range kept {
		got, err := a.leases.Restore(ctx, f)
		words := inWords("restored", []fault.Fault{f})
		switch {
		case err != nil:
			a.cfg.Log.Error("a fault that was kept could not be put back", "fault", f.ID, "owner", f.Spec.Owner, "err", err)
		case got.State == fault.Expired:
			a.cfg.Log.Info("a fault that was kept has expired meanwhile", "fault", f.ID, "owner", f.Spec.Owner)
			continue // the event is recorded
		default:
			a.cfg.Log.Info("a fault that was kept is back", "fault", f.ID, "owner", f.Spec.Owner, "until", got.Expires)
		}
		a.recordRemoved("restored", words, err)
	}
}

// inWords names faults for log and audit.
func inWords(what string, fs []fault.Fault) []string {
	var words []string
	for _, f := range fs {
		words = append(words, fmt.Sprintf("%s fault %s of %s to %s", what, f.ID, f.Spec.Owner, f.Spec.TargetName()))
	}
	return words
}

// openInWords names the faults that a killed agent left.
func openInWords(open []journal.Entry) []string {
	var words []string
	for _, e := range open {
		how := "which was being applied"
		if e.Held {
			how = "which was in force"
		}
		if !e.SameBoot {
			how += " before this machine was started"
		}
		words = append(words, fmt.Sprintf("fault %s of %s to %s, %s", e.Fault.ID, e.Fault.Spec.Owner, e.Fault.Spec.TargetName(), how))
	}
	return words
}

// damagedInWords says that there were faults of which nobody knows.
func damagedInWords(last journal.Last) []string {
	n := last.Torn + last.Damaged
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d damaged records of the journal, of which nobody knows what they said; all devices were looked at all the same", n)}
}

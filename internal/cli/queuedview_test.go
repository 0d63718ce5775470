package cli

import (
	"encoding/json"
	"testing"
	"time"

	"netemd/internal/content"
	"netemd/internal/fault"
)

// heldAtEnd is a fault of a hold, with packets that it holds.
func heldAtEnd(state fault.State, n uint64) fault.Fault {
	return fault.Fault{
		ID: "f1", State: state, Queued: n,
		Spec: fault.Spec{Target: "pg", Content: &content.Rule{Kind: content.Every, N: 1, Hold: time.Minute}},
	}
}

// What a cleared hold still holds is said, with the time when it has left.
func TestClearedHoldSaysWhatItHolds(t *testing.T) {
	for _, c := range []struct {
		f    fault.Fault
		want string
	}{
		{heldAtEnd(fault.Cleared, 20), "; 20 held packets leave within 1m"},
		{heldAtEnd(fault.Expired, 1), "; 1 held packet leaves within 1m"},
		{heldAtEnd(fault.Cleared, 0), ""},
		{heldAtEnd(fault.Active, 20), ""},
		{fault.Fault{State: fault.Cleared, Queued: 5, Spec: fault.Spec{Target: "pg"}}, ""},
	} {
		if got := queuedText(c.f); got != c.want {
			t.Errorf("%s with %d: %q, want %q", c.f.State, c.f.Queued, got, c.want)
		}
		b, err := json.Marshal(viewFault(c.f, noon))
		if err != nil {
			t.Fatal(err)
		}
		var v struct {
			Queued *uint64    `json:"queued_packets"`
			Until  *time.Time `json:"queued_until"`
		}
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		if c.f.Spec.Content != nil && (v.Queued == nil || *v.Queued != c.f.Queued) || (v.Until != nil) != (c.want != "") {
			t.Errorf("%s with %d: %s", c.f.State, c.f.Queued, b)
		}
		if v.Until != nil && !v.Until.Equal(noon.Add(time.Minute)) {
			t.Errorf("until %s", v.Until)
		}
	}
	w := world{agent: &fakeAgent{queued: 20}}
	w.run(t.Context(), "hold", "every:1", "--for", "1m", "--target", "pg")
	w.stdout.Reset()
	if code := w.run(t.Context(), "clear", "f1"); code != 0 || w.stdout.String() != "f1 cleared: hold every:1 for 1m to pg; 20 held packets leave within 1m\n" {
		t.Errorf("exit code %d: %s", code, w.stdout.String())
	}
}

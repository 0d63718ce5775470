package testenv

import (
	"testing"
	"time"
)

func TestWorst(t *testing.T) {
	var w worst
	start := time.Unix(1000, 0)
	if got := w.at(start); got != 0 {
		t.Errorf("before the first: %s", got)
	}
	w.add(start, 3*time.Millisecond)
	w.add(start, 2*time.Millisecond)
	w.add(start.Add(4*time.Second), time.Millisecond)
	for _, tt := range []struct {
		after time.Duration
		want  time.Duration
	}{
		{0, 3 * time.Millisecond},
		{9 * time.Second, 3 * time.Millisecond},
		{10 * time.Second, time.Millisecond},
		{13 * time.Second, time.Millisecond},
		{14 * time.Second, 0},
	} {
		if got := w.at(start.Add(tt.after)); got != tt.want {
			t.Errorf("after %s: %s, want %s", tt.after, got, tt.want)
		}
	}
	w.add(start.Add(10*time.Second), time.Microsecond) // in the first one's place
	if got := w.at(start.Add(14 * time.Second)); got != time.Microsecond {
		t.Errorf("after a round: %s", got)
	}
}

func TestLateFactor(t *testing.T) {
	for _, tt := range []struct {
		late time.Duration
		vm   bool
		want float64
	}{
		{0, false, 1},
		{5 * time.Millisecond, false, 2},
		{20 * time.Millisecond, false, 5},
		{time.Second, false, 20},
		{0, true, 5},
		{45 * time.Millisecond, true, 10},
		{time.Minute, true, 20},
	} {
		if got := lateFactor(tt.late, tt.vm); got != tt.want {
			t.Errorf("late by %s, in a VM %t: %v times, want %v", tt.late, tt.vm, got, tt.want)
		}
	}
}

// A thread that sleeps is never early, and the first answer is a measurement.
func TestLateness(t *testing.T) {
	late := Lateness()
	t.Logf("late by %s", late)
	if late <= 0 {
		t.Errorf("late by %s in %s of sleeping", late, lateFirst)
	}
	if d := Slower(time.Second); d < time.Second || d > lateMost*time.Second {
		t.Errorf("a second is %s", d)
	}
}

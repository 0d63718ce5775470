package ebpf

import "testing"

// The thread wakes before the due time by what wake-ups are late, and runs the rest.
func TestSpin(t *testing.T) {
	const us = 1000
	var s spin
	if got := s.wait(0, 500*us); got != 500*us {
		t.Errorf("nothing learnt: sleeps %d of 500 us", got/us)
	}
	for range 100 {
		s.woke(60 * us)
	}
	if s.late < 55*us || s.late > 60*us {
		t.Fatalf("wake-ups that are 60 us late are taken for %d", s.late)
	}
	now := int64(1_000_000)
	slept := s.wait(now, 500*us)
	if slept != 500*us-s.late {
		t.Errorf("sleeps %d", slept)
	}
	// Woken up early, it runs until the due time, whatever else becomes due.
	for at := now + slept; at < now+500*us; at += 10 * us {
		if got := s.wait(at, now+500*us-at); got != 0 {
			t.Fatalf("sleeps %d at %d of 500 us", got, (at-now)/us)
		}
	}
	// It has had its share: what is due soon after is slept for.
	if got := s.wait(now+501*us, 50*us); got != 50*us {
		t.Errorf("spins again at once, %d", got)
	}
	// A stall teaches no more than the bound.
	for range 100 {
		s.woke(1_000_000 * us)
	}
	if s.late > maxSpin {
		t.Errorf("late by %d", s.late)
	}
	for range 1000 {
		s.woke(5 * us)
	}
	if s.late > 6*us {
		t.Errorf("precise wake-ups are taken to be %d late", s.late)
	}
}

// However often something is due, a fifth of the time at most is spent waiting awake.
func TestSpinIsBounded(t *testing.T) {
	for _, every := range []int64{5_000, 50_000, 120_000, 1_000_000} {
		s := spin{late: maxSpin}
		var awake, now int64
		for due := every; due < 1_000_000_000; due += every {
			for now < due {
				w := s.wait(now, due-now)
				if w == 0 {
					awake += 1000
					now += 1000
					continue
				}
				now += w
			}
		}
		if share := float64(awake) / float64(now); share > .21 {
			t.Errorf("due every %d ns: awake for %.2f of the time", every, share)
		}
	}
}

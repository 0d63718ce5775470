package fidelity

import (
	"strings"
	"testing"
)

func TestOptionsValidate(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want string // in the error; empty for none
	}{
		{Options{}, ""},
		{Options{Packets: MaxPackets, Rate: MaxRate}, ""},
		{Options{Packets: MinPackets - 1}, "packets: 99"},
		{Options{Packets: MaxPackets + 1, Rate: MaxRate + 1}, "rate: 20001"},
		{Options{Rate: -1}, "rate: -1"},
		{Options{Packets: 3600, Rate: 1}, ""},
		{Options{Packets: 3601, Rate: 1}, "take 1h0m1s: want 1h0m0s at most"},
	} {
		switch err := tt.o.Validate(); {
		case err == nil && tt.want != "":
			t.Errorf("%+v was accepted", tt.o)
		case err != nil && (tt.want == "" || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
}

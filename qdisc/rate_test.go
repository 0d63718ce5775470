package qdisc

import (
	"errors"
	"strings"
	"testing"
)

func TestParseRate(t *testing.T) {
	for in, want := range map[string]struct {
		rate Rate
		text string
	}{
		"8bit":      {1, "8bit"},
		"1kbit":     {125, "1kbit"},
		"1mbit":     {125000, "1mbit"},
		"1Mbit":     {125000, "1mbit"},
		"1MBIT":     {125000, "1mbit"},
		"1mbit/s":   {125000, "1mbit"},
		"1mibit":    {131072, "1mibit"},
		"1Mibit":    {131072, "1mibit"},
		"1.5mbit":   {187500, "1500kbit"},
		"10gbit":    {1250000000, "10gbit"},
		"1gibit":    {134217728, "1gibit"},
		"100tbit":   {MaxRate, "100tbit"},
		"1MBps":     {1000000, "8mbit"},
		"1MB/s":     {1000000, "8mbit"},
		"1kBps":     {1000, "8kbit"},
		"1KiB/s":    {1024, "8kibit"},
		"1MiBps":    {1048576, "8mibit"},
		"1B/s":      {1, "8bit"},
		"1Bps":      {1, "8bit"},
		"0.5MBps":   {500000, "4mbit"},
		"100000bit": {12500, "100kbit"},
	} {
		r, err := ParseRate(in)
		if err != nil || r != want.rate {
			t.Errorf("ParseRate(%q) = %d, %v, want %d", in, uint64(r), err, want.rate)
		}
		if got := r.String(); got != want.text {
			t.Errorf("%q: String %q, want %q", in, got, want.text)
		}
		if back, err := ParseRate(r.String()); err != nil || back != r {
			t.Errorf("%q: %s reads back as %d, %v", in, r, uint64(back), err)
		}
	}
	for _, in := range []string{
		"", "1", "100", "1m", "1M", "7bit", "0bit", "0.9bit", "-1mbit", "1,5mbit", "NaNbit", "Infbit", "1e3bit",
		"mbit", "1xbit", "1MB", "101tbit", "1 mbit", "1mbit/h", "1bit/s/s", "1pbit",
	} {
		r, err := ParseRate(in)
		refused(t, in, r, err, "8bit to 100tbit")
	}
}

// Both readings of an ambiguous unit stand in the message.
func TestParseRateAmbiguous(t *testing.T) {
	for in, want := range map[string]string{
		"1mbps":   "1mbit (bits, 125000 B/s) or 1MBps (bytes, 1000000 B/s)",
		"1Mbps":   "1mbit (bits, 125000 B/s) or 1MBps (bytes, 1000000 B/s)",
		"1MBPS":   "1mbit (bits, 125000 B/s) or 1MBps (bytes, 1000000 B/s)",
		"10kbps":  "10kbit (bits, 1250 B/s) or 10kBps (bytes, 10000 B/s)",
		"1.5gbps": "1.5gbit (bits, 187500000 B/s) or 1.5GBps (bytes, 1500000000 B/s)",
		"1mibps":  "1mibit (bits, 131072 B/s) or 1MiBps (bytes, 1048576 B/s)",
		"1mb/s":   "1mbit (bits, 125000 B/s) or 1MBps (bytes, 1000000 B/s)",
		"8bps":    "8bit (bits, 1 B/s) or 8Bps (bytes, 8 B/s)",
	} {
		r, err := ParseRate(in)
		var fe *FieldError
		if !errors.As(err, &fe) || !strings.HasPrefix(fe.Want, want) {
			t.Errorf("ParseRate(%q) = %d, %v, want an error with %q", in, uint64(r), err, want)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for in, want := range map[string]struct {
		bytes Bytes
		text  string
	}{
		"0B":     {0, "0B"},
		"1500B":  {1500, "1500B"},
		"64kB":   {64000, "64kB"},
		"64KB":   {64000, "64kB"},
		"64KiB":  {65536, "64KiB"},
		"1.5MB":  {1500000, "1500kB"},
		"1GB":    {1000000000, "1GB"},
		"1000TB": {MaxBytes, "1000TB"},
	} {
		b, err := ParseBytes(in)
		if err != nil || b != want.bytes || b.String() != want.text {
			t.Errorf("ParseBytes(%q) = %d %q, %v, want %d %q", in, uint64(b), b, err, want.bytes, want.text)
		}
	}
	for _, in := range []string{"", "1500", "64k", "64kb", "64kbit", "-1B", "0.5B", "1,5kB", "NaNB", "1001TB", "B", "1 kB"} {
		b, err := ParseBytes(in)
		refused(t, in, b, err, "64KiB")
	}
}

func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"1mbit", "1MBps", "1mbps", "7bit", "1", "1.5gibit/s", "1B/s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRate(s)
		if err != nil {
			return
		}
		if r < 1 || r > MaxRate {
			t.Errorf("%q is read as %d", s, uint64(r))
		}
		if back, err := ParseRate(r.String()); err != nil || back != r {
			t.Errorf("%q: %s reads back as %d, %v", s, r, uint64(back), err)
		}
	})
}

package qdisc

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// MaxSamples is the largest table that the kernel takes (NETEM_DIST_MAX in
// include/uapi/linux/pkt_sched.h).
const MaxSamples = 16384

// maxTables bounds both tables of a Netem together: they are sent inside one netlink
// attribute, whose length is a 16-bit number.
const maxTables = 32_000

const wantSamples = "whole numbers from -32768 to 32767, 1 to 16384 of them, in units of jitter/8192, with white space between; lines with # are comments"

// ParseSamples reads a table as the files of tc's distributions have it: whole
// numbers with white space between them, in units of jitter/TableScale; lines that
// begin with # are comments. The kernel draws each with the same chance, so the table
// is the inverse of the distribution function at equal steps; their order is of no
// matter. There are 1 to MaxSamples of them, from -32768 to 32767 each. What is wrong
// is a *FieldError without a Field; an error of r is returned as it is.
func ParseSamples(r io.Reader) (Samples, error) {
	const longest = 1 << 20 // bytes of a line: far above what MaxSamples need
	var samples []byte
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		for word := range strings.FieldsSeq(line) {
			v, err := strconv.ParseInt(word, 10, 16)
			if err != nil {
				return "", &FieldError{Value: word, Want: wantSamples}
			}
			if len(samples) == 2*MaxSamples {
				return "", &FieldError{Value: "more than 16384 numbers", Want: wantSamples}
			}
			samples = order.AppendUint16(samples, uint16(v))
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("read distribution: %w", err)
	}
	if len(samples) == 0 {
		return "", &FieldError{Value: "no number", Want: wantSamples}
	}
	return Samples(samples), nil
}

// SamplesOf packs a table.
func SamplesOf(table []int16) Samples {
	b := make([]byte, 0, 2*len(table))
	for _, v := range table {
		b = order.AppendUint16(b, uint16(v))
	}
	return Samples(b)
}

// Len is the number of samples.
func (s Samples) Len() int { return len(s) / 2 }

// Table unpacks s.
func (s Samples) Table() []int16 {
	if len(s) < 2 {
		return nil
	}
	b := []byte(s)
	table := make([]int16, len(b)/2)
	for k := range table {
		table[k] = int16(order.Uint16(b[2*k:]))
	}
	return table
}

// String says how many samples there are, since they are no text.
func (s Samples) String() string { return fmt.Sprintf("%d samples", s.Len()) }

func (s Samples) valid() bool { return len(s)%2 == 0 && s.Len() >= 1 && s.Len() <= MaxSamples }

// tableOf is the table of a shape, nil for Uniform and none.
func tableOf(d Distribution, s Samples) []int16 {
	if d == Custom {
		return s.Table()
	}
	return d.Table()
}

// JitterTable returns the samples that n's delays are drawn from, in units of
// Jitter/TableScale, or nil for a uniform jitter or none. The caller must not change
// it.
func (n Netem) JitterTable() []int16 {
	if n.Jitter == 0 {
		return nil
	}
	return tableOf(n.Distribution, n.Samples)
}

// Table returns the samples that the times between slots are drawn from, in units of
// s.Jitter/TableScale, or nil for times from MinDelay to MaxDelay. The caller must not
// change it.
func (s Slot) Table() []int16 { return tableOf(s.Distribution, s.Samples) }

// scaled is what netem makes of a sample: jitter*t/TableScale, rounded half away from
// zero in its low digits as tabledist of net/sched/sch_netem.c does.
func scaled(jitter int64, t int16) int64 {
	x := jitter % tableScale * int64(t)
	if x >= 0 {
		x += tableScale / 2
	} else {
		x -= tableScale / 2
	}
	return x/tableScale + jitter/tableScale*int64(t)
}

// samplesFit reports whether both tables can be sent in one message.
func (n Netem) samplesFit() bool {
	return len(n.JitterTable())+len(n.Slot.Table()) <= maxTables
}

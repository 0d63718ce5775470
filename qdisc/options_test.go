package qdisc

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tcFolder is where iproute2's tables are; the test is skipped where there are
// none.
func tcFolder(t *testing.T) string {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/*/tc", "/usr/lib/tc", "/usr/lib64/tc", "/usr/share/tc", "/lib/tc"} {
		if files, _ := filepath.Glob(filepath.Join(pattern, "normal.dist")); files != nil {
			return filepath.Dir(files[0])
		}
	}
	t.Skip("iproute2's tables are not installed; the sums in testdata/tc.txt cover them, too")
	return ""
}

// tc's tables, where iproute2 is installed, are those that are computed here.
func TestTablesEqualFiles(t *testing.T) {
	folder := tcFolder(t)
	for _, d := range []Distribution{Normal, Pareto, ParetoNormal} {
		b, err := os.ReadFile(filepath.Join(folder, string(d)+".dist"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := ParseSamples(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Table(), tables[d]()); diff != "" {
			t.Errorf("%s (-file +computed):\n%s", d, diff)
		}
	}
}

// Moments of the shapes: mean 0 and deviation 1 jitter, as far as 4096 samples
// in 16 bits allow; the uniform one has 1/sqrt(3).
func TestTableMoments(t *testing.T) {
	for d, want := range map[Distribution]float64{Normal: 1, Uniform: 1 / math.Sqrt(3)} {
		var sum, squares float64
		for _, s := range tables[d]() {
			x := float64(s) / tableScale
			sum, squares = sum+x, squares+x*x
		}
		if mean, deviation := sum/tableSize, math.Sqrt(squares/tableSize); math.Abs(mean) > .002 || math.Abs(deviation-want) > .005 {
			t.Errorf("%s: mean %.4f, deviation %.4f, want 0 and %.4f", d, mean, deviation, want)
		}
	}
}

// What tc of iproute2 6.1 cannot send or leaves out.
func TestMarshalOptionsBeyondTC(t *testing.T) {
	qopt := func(latency, jitter uint32) []byte {
		b := make([]byte, qoptSize)
		order.PutUint32(b, latency)
		order.PutUint32(b[4:], DefaultLimit)
		order.PutUint32(b[20:], jitter)
		return b
	}
	seconds := func(s uint64) []byte { return order.AppendUint64(nil, s*1e9) }
	duplicate := qopt(0, 0)
	order.PutUint32(duplicate[16:], 42949673)
	for name, c := range map[string]struct {
		n    Netem
		want []byte
	}{
		"finer than a tick":         {Netem{Delay: 20 * time.Microsecond}, appendAttr(qopt(312, 0), attrLatency64, order.AppendUint64(nil, 20000))},
		"longest legacy delay":      {Netem{Delay: math.MaxUint32 * tick}, qopt(math.MaxUint32, 0)},
		"saturated":                 {Netem{Delay: 300 * time.Second}, appendAttr(qopt(math.MaxUint32, 0), attrLatency64, seconds(300))},
		"largest jitter":            {Netem{Delay: 64 * time.Second, Jitter: MaxJitter}, appendAttr(qopt(1e9, 33554431), attrJitter64, order.AppendUint64(nil, math.MaxInt32))},
		"correlation of duplicates": {Netem{Duplicate: 1, DuplicateCorrelation: 50}, appendAttr(duplicate, attrCorr, appendUint32s(nil, 0, 0, Percent(50).Fraction()))},
		"shares of 100 % together": {
			Netem{LossState: LossState{P13: 50, P14: 50, P31: 50, P32: 50, P23: 100}},
			appendAttr(qopt(0, 0), 0x8000|attrLoss, appendAttr(nil, attrLossState, appendUint32s(nil, 1<<31-1, 1<<31-1, 1<<31, 1<<31, math.MaxUint32))),
		},
		"seed":                        {Netem{Seed: 42}, appendAttr(qopt(0, 0), attrSeed, []byte{42, 0, 0, 0, 0, 0, 0, 0})},
		"uniform is what no table is": {Netem{Delay: 64 * ms, Jitter: 64 * ms, Distribution: Uniform}, qopt(1e6, 1e6)},
	} {
		got, err := c.n.MarshalOptions()
		if err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s: %x, %v, want %x", name, got, err, c.want)
		}
		back, err := UnmarshalOptions(got)
		want := c.n.Normalize()
		if err != nil || back != want {
			t.Errorf("%s: reads back as %v, %v", name, back, err)
		}
	}
}

// sch_netem keeps what a change leaves out, so a change says what ends.
func TestMarshalChange(t *testing.T) {
	former := Netem{
		Delay: 64 * ms, Jitter: ms, Distribution: Normal, GilbertElliott: GilbertElliott{P: 1, R: 10}, ECN: true,
		LossCorrelation: 1, Reorder: 1, Gap: 1, Corrupt: 1, Rate: 1 << 33, CellSize: 48, Slot: Slot{MinDelay: ms}, Limit: 5,
	}
	plain, err := Netem{Loss: 20}.MarshalOptions()
	if err != nil {
		t.Fatal(err)
	}
	want := appendAttr(bytes.Clone(plain), attrCorr, make([]byte, 12))
	want = appendAttr(want, attrReorder, make([]byte, 8))
	want = appendAttr(want, attrECN, make([]byte, 4))
	want = appendAttr(want, attrCorrupt, make([]byte, 8))
	want = appendAttr(want, attrSlot, make([]byte, slotSize))
	want = appendAttr(want, attrRate, make([]byte, rateSize))
	got, err := Netem{Loss: 20}.marshal(&former)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %x, %v\nwant %x", got, err, want)
	}
	uniform, err := Netem{Delay: 64 * ms, Jitter: ms}.marshal(&former)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := UnmarshalOptions(uniform); err != nil || back.Distribution != Uniform {
		t.Errorf("after a normal distribution: %v, %v, want a uniform table", back, err)
	}
	if got, err := (Netem{Loss: 20}).marshal(&Netem{Limit: 1, Seed: 9, Loss: 3, Delay: ms}); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("nothing to end: %x, %v, want %x", got, err, plain)
	}
}

// A slot from MinDelay to MaxDelay overwrites the distribution that one before may
// have left, of which the kernel's dump says nothing.
func TestMarshalSlotChange(t *testing.T) {
	n := Netem{Slot: Slot{MinDelay: 10 * ms, MaxDelay: 20 * ms, Packets: 3}}
	b, err := n.marshal(&Netem{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	config := order.AppendUint64(order.AppendUint64(nil, uint64(10*ms)), uint64(20*ms))
	config = appendUint32s(config, 3, 0)
	config = order.AppendUint64(order.AppendUint64(config, uint64(15*ms)), uint64(5*ms))
	want := make([]byte, qoptSize)
	order.PutUint32(want[4:], DefaultLimit)
	want = appendTable(appendAttr(want, attrSlot, config), attrSlotDist, tables[Uniform]())
	if !bytes.Equal(b, want) {
		t.Errorf("got  %x\nwant %x", b, want)
	}
	if back, err := UnmarshalOptions(b); err != nil || back != n.Normalize() {
		t.Errorf("reads back as %v, %v", back, err)
	}
	// Equal times need no table: without one they are drawn from min to max, with one
	// the jitter of 0 leaves the delay.
	b, err = Netem{Slot: Slot{MinDelay: 10 * ms}}.marshal(&Netem{Limit: 1})
	if want := qoptSize + 4 + slotSize; err != nil || len(b) != want || order.Uint64(b[qoptSize+4+24:]) != uint64(10*ms) {
		t.Errorf("equal times: %x, %v, want %d bytes", b, err, want)
	}
}

func TestUnmarshalOptionsTolerates(t *testing.T) {
	plain, err := Netem{Loss: 20}.MarshalOptions()
	if err != nil {
		t.Fatal(err)
	}
	want := Netem{Loss: 20, Limit: DefaultLimit}
	b := appendAttr(bytes.Clone(plain), 999, []byte("later kernels"))
	b = appendAttr(b, attrRate, make([]byte, rateSize)) // always dumped; zero is off
	b = appendAttr(b, attrSlot, appendUint32s(make([]byte, 16), 5, 0, 0, 0, 0, 0))
	b = appendAttr(b, attrECN, make([]byte, 4))
	b = appendAttr(b, 0x8000|attrCorr, make([]byte, 16))
	n, other, err := unmarshal(b)
	if err != nil || n != want || other != nil {
		t.Errorf("%v, %v, %v", n, other, err)
	}
	for name, b := range map[string][]byte{
		"empty":           nil,
		"short":           plain[:20],
		"left over":       append(bytes.Clone(plain), 1, 2, 3),
		"length 3":        append(bytes.Clone(plain), 3, 0, 1, 0),
		"length too long": append(bytes.Clone(plain), 200, 0, 1, 0),
		"short attribute": appendAttr(bytes.Clone(plain), attrCorr, make([]byte, 11)),
		"short rate":      appendAttr(bytes.Clone(plain), attrRate, make([]byte, 15)),
		"short slot":      appendAttr(bytes.Clone(plain), attrSlot, make([]byte, 39)),
		"short model":     appendAttr(bytes.Clone(plain), attrLoss, appendAttr(nil, attrLossGemodel, make([]byte, 15))),
		"loss left over":  appendAttr(bytes.Clone(plain), attrLoss, make([]byte, 3)),
	} {
		if n, err := UnmarshalOptions(b); err == nil {
			t.Errorf("%s: read as %v", name, n)
		}
	}
}

// What the kernel takes from others and a Netem cannot say is named.
func TestUnmarshalOptionsOther(t *testing.T) {
	plain := make([]byte, qoptSize)
	nested := func(attr uint16, v ...uint32) []byte { return appendAttr(nil, attr, appendUint32s(nil, v...)) }
	for name, c := range map[string]struct {
		attr uint16
		v    []byte
	}{
		"loss model": {attrLoss, nested(7, 1)},
		"rate":       {attrRate, appendUint32s(nil, 1000, math.MaxUint32-999, 0, 0)},
		"slot":       {attrSlot, append(order.AppendUint64(make([]byte, 8), 5), appendUint32s(nil, math.MaxUint32, 0, 0, 0, 0, 0)...)},
	} {
		_, other, err := unmarshal(appendAttr(bytes.Clone(plain), c.attr, c.v))
		if diff := cmp.Diff([]string{name}, other); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	_, other, err := unmarshal(appendAttr(plain, attrLoss, nested(attrLossGemodel, 1, 2, math.MaxUint32, 9)))
	if diff := cmp.Diff([]string{otherLoss}, other); err != nil || diff != "" {
		t.Errorf("bad state without loss: %v (-want +got):\n%s", err, diff)
	}
}

func FuzzUnmarshalOptions(f *testing.F) {
	for _, n := range []Netem{
		{},
		{Loss: 20, LossCorrelation: 25, ECN: true},
		{Delay: 300 * time.Second, Jitter: 7, Reorder: 1, Corrupt: 1, Seed: 3},
		{LossState: LossState{P13: 1, P31: 99, P23: 100}, Rate: 1 << 40, PacketOverhead: -14, CellSize: 53, CellOverhead: 5},
		{GilbertElliott: GilbertElliott{P: 1, R: 10}, Slot: Slot{MinDelay: ms, MaxDelay: 2 * ms, Packets: 1, Bytes: 1}},
		{Delay: ms, Jitter: ms, Distribution: Custom, Samples: "1234", Slot: Slot{Distribution: Custom, Samples: "12", Delay: ms, Jitter: ms}},
	} {
		b, err := n.MarshalOptions()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(appendAttr(make([]byte, qoptSize), attrRate, []byte{1}))
	f.Add(appendAttr(make([]byte, qoptSize), attrDelayDist, []byte{1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, other, err := unmarshal(b)
		if err != nil || other != nil || n.Validate() != nil {
			return
		}
		again, err := n.MarshalOptions()
		if err != nil {
			t.Fatal(err)
		}
		back, err := UnmarshalOptions(again)
		want := n.Normalize()
		if n.Jitter == 0 {
			want.Distribution, want.Samples = "", ""
		}
		if n.Reorder == 0 {
			want.ReorderCorrelation = 0
		}
		if n.Corrupt == 0 {
			want.CorruptCorrelation = 0
		}
		if err != nil || back != want {
			t.Errorf("%+v reads back as %+v, %v", want, back, err)
		}
	})
}

package qdisc

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// dumped is a netem root as the kernel dumps it.
func dumped(t testing.TB, n Netem) []byte {
	t.Helper()
	options, err := n.MarshalOptions()
	if err != nil {
		t.Fatal(err)
	}
	var basic, queue []byte
	basic = order.AppendUint64(basic, 15140)
	basic = order.AppendUint32(basic, 10)
	for _, v := range []uint32{3, 4542, 2, 1, 7} {
		queue = order.AppendUint32(queue, v)
	}
	stats := appendAttr(appendAttr(nil, 1, append(basic, 0, 0, 0, 0)), 3, queue)
	stats = appendAttr(stats, 8, order.AppendUint64(nil, 1<<32+10))
	b := appendAttr(tcmsg(5, Handle), attrKind, []byte("netem\x00"))
	return appendAttr(appendAttr(b, attrOptions, options), attrStats2, stats)
}

func TestUnmarshalState(t *testing.T) {
	got, err := unmarshalState(dumped(t, Netem{Loss: 20}))
	want := State{
		Kind: "netem", Handle: Handle, Netem: Netem{Loss: 20, Limit: DefaultLimit},
		Stats: Stats{Bytes: 15140, Packets: 1<<32 + 10, Queued: 3, Backlog: 4542, Drops: 2, Requeues: 1, Overlimits: 7},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got.String() != "netem 4e45:" || !got.Ours() || got.Foreign() {
		t.Errorf("%v: ours %t, foreign %t", got, got.Ours(), got.Foreign())
	}
	for name, c := range map[string]struct {
		kind     string
		counters []uint64
		want     *NetemStats
	}{
		"netem":        {kind, []uint64{1, 2, 3, 4, 5, 6, 7}, &NetemStats{Delayed: 1, Lost: 2, Corrupted: 3, Duplicated: 4, Reordered: 5, Marked: 6, Failed: 7}},
		"a later one":  {kind, []uint64{1, 2, 3, 4, 5, 6, 7, 8}, &NetemStats{Delayed: 1, Lost: 2, Corrupted: 3, Duplicated: 4, Reordered: 5, Marked: 6, Failed: 7}},
		"fewer":        {kind, []uint64{1, 2}, &NetemStats{Delayed: 1, Lost: 2}},
		"another kind": {"fq_codel", []uint64{1, 2}, nil},
	} {
		var app []byte
		for _, v := range c.counters {
			app = order.AppendUint64(app, v)
		}
		b := appendAttr(tcmsg(5, Handle), attrStats2, appendAttr(nil, 4, app)) // statistics may stand before the kind
		b = appendAttr(b, attrKind, append([]byte(c.kind), 0))
		b = appendAttr(b, attrOptions, make([]byte, qoptSize))
		got, err := unmarshalState(b)
		if diff := cmp.Diff(c.want, got.Stats.Netem); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	short := appendAttr(tcmsg(5, 0), attrStats2, appendAttr(nil, 3, make([]byte, 8)))
	if s, err := unmarshalState(short); err == nil {
		t.Errorf("short statistics were read as %+v", s)
	}
}

func FuzzUnmarshalState(f *testing.F) {
	f.Add(dumped(f, Netem{})[tcmsgSize:])
	f.Add(appendAttr(nil, attrKind, []byte("netem")))
	f.Fuzz(func(t *testing.T, attrs []byte) {
		b := append(tcmsg(5, Handle), attrs...)
		before := bytes.Clone(b)
		if s, err := unmarshalState(b); err == nil && s.Ours() != (s.Kind == kind) {
			t.Errorf("%+v", s)
		}
		if !bytes.Equal(b, before) {
			t.Error("the message was changed")
		}
	})
}

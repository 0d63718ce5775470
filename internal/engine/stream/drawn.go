package stream

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/Shopify/toxiproxy/v2/toxics"

	"netemd/internal/fault"
)

// The types of toxics that a seed draws for, among the embedded proxy's. Toxiproxy draws from the
// global source, at a time that depends on the scheduler, and its own -seed changes nothing. The
// second is for kinds that Toxiproxy gives a buffer, which it takes from the type alone.
const (
	drawnType         = "netemd_drawn"
	drawnBufferedType = "netemd_drawn_buffered"
)

func init() {
	toxics.Register(drawnType, new(drawn))
	toxics.Register(drawnBufferedType, new(drawnBuffered))
}

// drawn is another toxic on the connections that its seed chooses, by their number from the
// beginning. Toxiproxy is told a toxicity of 100 %.
type drawn struct {
	Kind  string       `json:"kind"`
	Key   string       `json:"key"` // toxics with different ones draw by themselves
	Seed  uint64       `json:"seed"`
	Share float64      `json:"share"` // of the connections, 0..1
	Inner toxics.Toxic `json:"inner"`

	connections atomic.Uint64
}

// drawnBuffered has the buffer of latency, the only kind with one (Toxiproxy 2.12.0).
type drawnBuffered struct{ drawn }

// GetBufferSize is in chunks.
func (*drawnBuffered) GetBufferSize() int { return new(toxics.LatencyToxic).GetBufferSize() }

// UnmarshalJSON makes the inner toxic by its kind.
func (d *drawn) UnmarshalJSON(text []byte) error {
	var w struct {
		Kind, Key string
		Seed      uint64
		Share     float64
		Inner     json.RawMessage
	}
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	inner := toxics.New(&toxics.ToxicWrapper{Type: w.Kind})
	if inner == nil || strings.HasPrefix(w.Kind, drawnType) {
		return fmt.Errorf("%s: unknown kind %q", drawnType, w.Kind)
	}
	if err := json.Unmarshal(w.Inner, inner); err != nil {
		return err
	}
	d.Kind, d.Key, d.Seed, d.Share, d.Inner = w.Kind, w.Key, w.Seed, w.Share, inner
	return nil
}

// chosen reports whether the connection of that number, from 0, is touched.
func (d *drawn) chosen(number uint64) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(d.Key))
	return rand.New(rand.NewPCG(d.Seed, h.Sum64()^number)).Float64() < d.Share
}

// touched is what one connection has of a drawn toxic.
type touched struct {
	chosen bool
	inner  any // state of the inner toxic
}

// NewState is called once for each connection, in their order.
func (d *drawn) NewState() any {
	t := &touched{chosen: d.chosen(d.connections.Add(1) - 1)}
	if s, ok := d.Inner.(toxics.StatefulToxic); ok {
		t.inner = s.NewState()
	}
	return t
}

// Pipe is the inner toxic's, or nothing's.
func (d *drawn) Pipe(stub *toxics.ToxicStub) {
	t, ok := stub.State.(*touched)
	if !ok || !t.chosen || d.Inner == nil {
		new(toxics.NoopToxic).Pipe(stub)
		return
	}
	stub.State = t.inner
	defer func() { stub.State = t }()
	d.Inner.Pipe(stub)
}

// Cleanup is the inner toxic's, where it touched the connection.
func (d *drawn) Cleanup(stub *toxics.ToxicStub) {
	t, ok := stub.State.(*touched)
	if c, has := d.Inner.(toxics.CleanupToxic); has && ok && t.chosen {
		c.Cleanup(stub)
	}
}

// lingerSuffix ends the name of what stands beside a drawn reset_peer: Toxiproxy has connections end
// with a reset where it finds a reset_peer of its own among the toxics, with any toxicity.
const lingerSuffix = "-linger"

// encodeDrawn wraps what encode made of t. A reset_peer has a second toxic.
func encodeDrawn(t fault.Toxic, w wireToxic) []wireToxic {
	inner := w.Attributes
	d := w
	if d.Type = drawnType; t.Kind == fault.Latency {
		d.Type = drawnBufferedType
	}
	d.Toxicity = 1
	d.Attributes = attributes{Kind: w.Type, Key: t.Key(), Seed: t.Seed, Share: w.Toxicity, Inner: &inner}
	if t.Kind != fault.ResetPeer {
		return []wireToxic{d}
	}
	linger := w
	linger.Name, linger.Toxicity = w.Name+lingerSuffix, 0
	return []wireToxic{d, linger}
}

// decodeDrawn is the inverse.
func decodeDrawn(w wireToxic) fault.Toxic {
	a := w.Attributes
	inner := wireToxic{Type: a.Kind, Stream: w.Stream, Toxicity: a.Share}
	if a.Inner != nil {
		inner.Attributes = *a.Inner
	}
	t := decode(inner)
	t.Seed = a.Seed
	return t
}

func isDrawn(w wireToxic) bool { return strings.HasPrefix(w.Type, drawnType) }

// isLinger tells what stands beside a drawn reset_peer, which is no toxic of its own.
func isLinger(w wireToxic) bool { return w.Toxicity == 0 && strings.HasSuffix(w.Name, lingerSuffix) }

package lab

import (
	"bytes"
	"encoding/json"

	"netemd/qdisc"
)

// netemJSON is a netem as JSON. Tables of samples are bytes, which text would ruin.
type netemJSON struct {
	qdisc.Netem
	Samples     []byte `json:",omitempty"`
	SlotSamples []byte `json:",omitempty"`
}

func encodeNetem(n *qdisc.Netem) *netemJSON {
	if n == nil {
		return nil
	}
	e := &netemJSON{Netem: *n, Samples: []byte(n.Samples), SlotSamples: []byte(n.Slot.Samples)}
	e.Netem.Samples, e.Slot.Samples = "", ""
	return e
}

func (e *netemJSON) decode() *qdisc.Netem {
	if e == nil {
		return nil
	}
	n := e.Netem
	n.Samples, n.Slot.Samples = qdisc.Samples(e.Samples), qdisc.Samples(e.SlotSamples)
	return &n
}

// plainLink is a Link without its methods.
type plainLink Link

// linkJSON is a link as JSON; its own impairments stand before the plain link's.
type linkJSON struct {
	plainLink
	AB *netemJSON `json:",omitempty"`
	BA *netemJSON `json:",omitempty"`
}

// MarshalJSON writes the link so that UnmarshalJSON reads it back equal.
func (l Link) MarshalJSON() ([]byte, error) {
	return json.Marshal(linkJSON{plainLink: plainLink(l), AB: encodeNetem(l.AB), BA: encodeNetem(l.BA)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Link) UnmarshalJSON(text []byte) error {
	var j linkJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	*l = Link(j.plainLink)
	l.AB, l.BA = j.AB.decode(), j.BA.decode()
	return nil
}

// Equal reports whether both describe the same lab. An empty list is none.
func (d Definition) Equal(o Definition) bool {
	a, errA := json.Marshal(d)
	b, errB := json.Marshal(o)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

package udp

import (
	"encoding/binary"
	"errors"
)

// MinBytes is the length of a Packet in bytes; what is longer is padding, up to MaxBytes.
const (
	MinBytes = 52
	MaxBytes = 65_000
)

// Kind says what a packet is.
type Kind byte

// A Question is sent by a probe and comes back as an Answer, or as an Overtaken one where
// the server had already got a later question. A Query is no measurement: its Count tells
// what the server has got so far.
const (
	Question  Kind = 'Q'
	Answer    Kind = 'A'
	Overtaken Kind = 'O'
	Query     Kind = 'q'
	Count     Kind = 'c'
)

const magic = "ntm"

// Packet is what a probe and its server send each other. On the wire it is the magic, the
// kind, and the fields in their order, in network order.
type Packet struct {
	Kind Kind
	// Session tells the runs of one client apart.
	Session uint32
	// Seq numbers the questions in the order of their sending; it goes round after 2^32.
	Seq uint32
	// Arrival numbers the questions in the order in which the server got them, from 1.
	// Distinct counts those of them that were no duplicates. Of a Count: how many there
	// were.
	Arrival  uint32
	Distinct uint32
	// Clock names the sender's clock, see ClockName.
	Clock uint32
	// Life names the life of the server, which draws it at its start: a later one counts
	// from 1 again. 0: a question.
	Life uint32
	// SentNS is the client's clock, ReceivedNS and ReturnedNS the server's.
	SentNS     int64
	ReceivedNS int64
	ReturnedNS int64
}

var errNotOurs = errors.New("udp: not a packet of this probe")

// Put writes the packet into b, which has at least MinBytes.
func (p Packet) Put(b []byte) {
	copy(b, magic)
	b[3] = byte(p.Kind)
	for i, v := range []uint32{p.Session, p.Seq, p.Arrival, p.Distinct, p.Clock, p.Life} {
		binary.BigEndian.PutUint32(b[4+4*i:], v)
	}
	for i, v := range []int64{p.SentNS, p.ReceivedNS, p.ReturnedNS} {
		binary.BigEndian.PutUint64(b[28+8*i:], uint64(v))
	}
}

// Parse reads a packet.
func Parse(b []byte) (Packet, error) {
	if len(b) < MinBytes || string(b[:3]) != magic {
		return Packet{}, errNotOurs
	}
	u32 := func(i int) uint32 { return binary.BigEndian.Uint32(b[4+4*i:]) }
	i64 := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[28+8*i:])) }
	p := Packet{
		Kind: Kind(b[3]), Session: u32(0), Seq: u32(1), Arrival: u32(2), Distinct: u32(3), Clock: u32(4), Life: u32(5),
		SentNS: i64(0), ReceivedNS: i64(1), ReturnedNS: i64(2),
	}
	switch p.Kind {
	case Question, Answer, Overtaken, Query, Count:
		return p, nil
	}
	return Packet{}, errNotOurs
}

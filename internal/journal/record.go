package journal

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// version is of the records; those of another are not understood.
const version = 1

// step is what a record says.
type step string

const (
	stepOpen   step = "open"   // a life begins
	stepIntend step = "intend" // places are about to be changed for a fault
	stepHold   step = "hold"   // a fault is whole
	stepEnd    step = "end"    // nothing is left of a fault
	stepKept   step = "kept"   // a fault is to be put back by the next life
)

// record is one line.
type record struct {
	Version int `json:"v"`
	// Number grows from record to record, also over lives.
	Number uint64 `json:"number"`
	// Time is the wall's, Monotonic CLOCK_MONOTONIC, which means something with Boot only.
	Time      time.Time `json:"time"`
	Monotonic int64     `json:"monotonic_ns"`
	Boot      string    `json:"boot_id"`
	Step      step      `json:"step"`
	ID        string    `json:"id,omitempty"`
	Data      data      `json:"data"`
}

// data is what belongs to a step.
type data struct {
	PID    int         `json:"pid,omitempty"`    // of an opening
	Fault  *stored     `json:"fault,omitempty"`  // of all that is about one
	Places []Place     `json:"places,omitempty"` // of an intent
	State  fault.State `json:"state,omitempty"`  // of an end
}

// stored is a fault as JSON keeps it whole.
type stored struct {
	fault.Fault
	// The tables of an impairment are bytes, which JSON's strings are not.
	Samples, SlotSamples         []byte `json:",omitempty"`
	SamplesFrom, SlotSamplesFrom []byte `json:",omitempty"`
	// ExpiresMonotonic is Expires by CLOCK_MONOTONIC, in ns: the wall clock may be set.
	ExpiresMonotonic int64
}

// store leaves out what is of the moment, and what is not to be written anywhere.
func store(f fault.Fault, now time.Time, monotonic int64) *stored {
	f.Spec.SSHConnection, f.Spec.Process = "", ""
	f.Counters, f.CountersMissing, f.Total, f.Queued, f.Warnings, f.Reason = fault.Counters{}, nil, fault.Counters{}, 0, nil, ""
	f.Outages = nil
	s := &stored{Fault: f, ExpiresMonotonic: monotonic + int64(f.Expires.Sub(now))}
	if p := f.Spec.Packet; p != nil {
		n := *p
		s.Samples, s.SlotSamples = []byte(n.Samples), []byte(n.Slot.Samples)
		n.Samples, n.Slot.Samples = "", ""
		s.Spec.Packet = &n
	}
	if p := f.Spec.PacketFrom; p != nil {
		n := *p
		s.SamplesFrom, s.SlotSamplesFrom = []byte(n.Samples), []byte(n.Slot.Samples)
		n.Samples, n.Slot.Samples = "", ""
		s.Spec.PacketFrom = &n
	}
	return s
}

// fault is what was stored, with the end of its time as the clocks say it now: in the boot
// in which it was stored the monotonic one is right.
func (s *stored) fault(sameBoot bool, now time.Time, monotonic int64) fault.Fault {
	f := s.Fault
	if f.Spec.Packet != nil {
		f.Spec.Packet.Samples, f.Spec.Packet.Slot.Samples = qdisc.Samples(s.Samples), qdisc.Samples(s.SlotSamples)
	}
	if f.Spec.PacketFrom != nil {
		f.Spec.PacketFrom.Samples, f.Spec.PacketFrom.Slot.Samples = qdisc.Samples(s.SamplesFrom), qdisc.Samples(s.SlotSamplesFrom)
	}
	if sameBoot {
		f.Expires = now.Add(time.Duration(s.ExpiresMonotonic - monotonic))
	}
	return f
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumLength is of the checksum and the space.
const sumLength = 9

// line is r as it is written.
func (r record) line() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	b := fmt.Appendf(make([]byte, 0, sumLength+len(text)+1), "%08x ", crc32.Checksum(text, castagnoli))
	return append(append(b, text...), '\n'), nil
}

// errDamaged is of a line that is not as it was written.
var errDamaged = errors.New("damaged record")

// parseLine reads a line without its end.
func parseLine(line []byte) (record, error) {
	var r record
	if len(line) < sumLength || line[sumLength-1] != ' ' {
		return r, errDamaged
	}
	var sum [4]byte
	text := line[sumLength:]
	if _, err := hex.Decode(sum[:], line[:sumLength-1]); err != nil || !bytes.Equal(sum[:], sumOf(text)) {
		return r, errDamaged
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if r.Version != version {
		return r, fmt.Errorf("%w: of version %d", errDamaged, r.Version)
	}
	return r, nil
}

func sumOf(text []byte) []byte {
	sum := crc32.Checksum(text, castagnoli)
	return []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}
}

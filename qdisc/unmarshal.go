package qdisc

import (
	"fmt"
	"math"
	"slices"
	"time"
)

const attrTypeMask = 0x3fff // without NLA_F_NESTED and NLA_F_NET_BYTEORDER

// What unmarshal calls the features that are in force in a form that Netem has not.
const (
	otherLoss = "loss model"
	otherRate = "rate"
	otherSlot = "slot"
)

// UnmarshalOptions reads the payload of TCA_OPTIONS, from a message to the
// kernel or from a dump. Attributes that it does not know are skipped. What the
// kernel does not dump stays zero: the distributions always, the seed before
// Linux 6.6; later kernels dump the seed that they drew themselves, too.
func UnmarshalOptions(b []byte) (Netem, error) {
	n, _, err := unmarshal(b)
	return n, err
}

// unmarshal also names what is in force and cannot be said in a Netem: a loss model
// of a later kernel, or a Gilbert-Elliott that loses nothing when bad; a rate or
// a slot with numbers that the kernel takes and Validate refuses.
func unmarshal(b []byte) (n Netem, other []string, err error) {
	if len(b) < qoptSize {
		return Netem{}, nil, fmt.Errorf("netem options: %d bytes, want %d or more", len(b), qoptSize)
	}
	n.Delay = time.Duration(order.Uint32(b)) * tick
	n.Limit = order.Uint32(b[4:])
	n.Loss = PercentOf(order.Uint32(b[8:]))
	n.Gap = order.Uint32(b[12:])
	n.Duplicate = PercentOf(order.Uint32(b[16:]))
	n.Jitter = time.Duration(order.Uint32(b[20:])) * tick
	err = eachAttr(b[qoptSize:], func(attr uint16, v []byte) error {
		if want := sizes[attr]; len(v) < want {
			return fmt.Errorf("netem options: attribute %d has %d bytes, want %d or more", attr, len(v), want)
		}
		switch attr {
		case attrLatency64:
			n.Delay = time.Duration(order.Uint64(v))
		case attrJitter64:
			n.Jitter = time.Duration(order.Uint64(v))
		case attrCorr:
			n.DelayCorrelation, n.LossCorrelation, n.DuplicateCorrelation = percentAt(v, 0), percentAt(v, 1), percentAt(v, 2)
		case attrReorder:
			n.Reorder, n.ReorderCorrelation = percentAt(v, 0), percentAt(v, 1)
		case attrCorrupt:
			n.Corrupt, n.CorruptCorrelation = percentAt(v, 0), percentAt(v, 1)
		case attrLoss:
			return n.unmarshalLoss(v, &other)
		case attrRate:
			n.Rate = max(n.Rate, Rate(order.Uint32(v)))
			n.PacketOverhead, n.CellSize, n.CellOverhead = int32(order.Uint32(v[4:])), order.Uint32(v[8:]), int32(order.Uint32(v[12:]))
		case attrRate64:
			n.Rate = max(n.Rate, Rate(order.Uint64(v)))
		case attrECN:
			n.ECN = order.Uint32(v) != 0
		case attrSlot:
			n.unmarshalSlot(v, &other)
		case attrSeed:
			n.Seed = order.Uint64(v)
		case attrDelayDist:
			n.Distribution, n.Samples = shapeOf(v)
		case attrSlotDist:
			n.Slot.Distribution, n.Slot.Samples = shapeOf(v)
		}
		return nil
	})
	if err != nil {
		return Netem{}, nil, err
	}
	n.settle(&other)
	return n, other, nil
}

// sizes are the smallest payloads of the attributes that are read.
var sizes = map[uint16]int{
	attrLatency64: 8, attrJitter64: 8, attrSeed: 8, attrCorr: 12, attrReorder: 8, attrCorrupt: 8,
	attrRate: rateSize, attrRate64: 8, attrECN: 4, attrSlot: slotSize,
}

// settle drops what shapes nothing, and names what Netem cannot say.
func (n *Netem) settle(other *[]string) {
	if n.Rate == 0 {
		n.PacketOverhead, n.CellSize, n.CellOverhead = 0, 0, 0
	}
	if n.Slot.MinDelay != 0 || n.Slot.MaxDelay != 0 || n.Slot.Jitter == 0 {
		// The distribution that a change sends beside them says the same once more.
		n.Slot.Distribution, n.Slot.Samples, n.Slot.Delay, n.Slot.Jitter = "", "", 0, 0
	}
	if n.Slot.MinDelay == 0 && n.Slot.MaxDelay == 0 && n.Slot.Jitter == 0 {
		n.Slot = Slot{} // bounds without times are no slots
	}
	var v validation
	v.rate(*n)
	if v != nil {
		*other = append(*other, otherRate)
	}
}

func (n *Netem) unmarshalLoss(b []byte, other *[]string) error {
	return eachAttr(b, func(attr uint16, v []byte) error {
		switch {
		case attr == attrLossState && len(v) >= 20:
			n.LossState = LossState{P13: percentAt(v, 0), P31: percentAt(v, 1), P32: percentAt(v, 2), P14: percentAt(v, 3), P23: percentAt(v, 4)}
		case attr == attrLossGemodel && len(v) >= 16:
			g := GilbertElliott{P: percentAt(v, 0), R: percentAt(v, 1), LossBad: PercentOf(math.MaxUint32 - order.Uint32(v[8:])), LossGood: percentAt(v, 3)}
			if g.LossBad == 0 {
				*other = append(*other, otherLoss)
				return nil
			}
			n.GilbertElliott = g
		case attr == attrLossState || attr == attrLossGemodel:
			return fmt.Errorf("netem options: loss model %d has %d bytes", attr, len(v))
		default:
			*other = append(*other, otherLoss)
		}
		return nil
	})
}

func (n *Netem) unmarshalSlot(v []byte, other *[]string) {
	packets, bytes := int32(order.Uint32(v[16:])), int32(order.Uint32(v[20:]))
	if packets < 0 || bytes < 0 {
		*other = append(*other, otherSlot)
		packets, bytes = max(packets, 0), max(bytes, 0)
	}
	n.Slot.MinDelay, n.Slot.MaxDelay = time.Duration(order.Uint64(v)), time.Duration(order.Uint64(v[8:]))
	n.Slot.Packets, n.Slot.Bytes = uint32(packets), Bytes(bytes)
	n.Slot.Delay, n.Slot.Jitter = time.Duration(order.Uint64(v[24:])), time.Duration(order.Uint64(v[32:]))
}

// percentAt is the k-th of a row of 32-bit shares.
func percentAt(v []byte, k int) Percent { return PercentOf(order.Uint32(v[4*k:])) }

// shapeOf recognises a table, which only messages to the kernel have; one that is
// not of ours is Custom, and one that cannot be is none.
func shapeOf(v []byte) (Distribution, Samples) {
	s := Samples(v[:len(v)&^1])
	if !s.valid() {
		return "", ""
	}
	if s.Len() == tableSize {
		table := s.Table()
		for _, d := range []Distribution{Normal, Pareto, ParetoNormal, Uniform} {
			if slices.Equal(table, tables[d]()) {
				return d, ""
			}
		}
	}
	return Custom, s
}

// eachAttr calls f for every netlink attribute in b.
func eachAttr(b []byte, f func(attr uint16, v []byte) error) error {
	for len(b) > 0 {
		if len(b) < 4 {
			return fmt.Errorf("netlink attribute: %d bytes left over", len(b))
		}
		size := int(order.Uint16(b))
		if size < 4 || size > len(b) {
			return fmt.Errorf("netlink attribute: length %d, with %d bytes left", size, len(b))
		}
		if err := f(order.Uint16(b[2:])&attrTypeMask, b[4:size]); err != nil {
			return err
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil
}

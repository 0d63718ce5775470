package offload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// state is what a device does with segments, of what this package knows.
type state struct {
	// switchable can be switched, wanted was asked for and active is in force; by
	// ethtool's names.
	switchable, wanted, active map[string]bool
	// segments is how many segments a packet to the device may stand for, 1 or more.
	segments uint32
}

// names are those of what is on, sorted.
func (s state) names() []string {
	names := slices.Sorted(maps.Keys(s.active))
	if s.segments > 1 {
		names = append(names, GSOMaxSegs)
		slices.Sort(names)
	}
	return names
}

// ethtool is a connection to ethtool's netlink interface (linux/ethtool_netlink.h,
// since Linux 5.6) in the namespace in which it was dialed.
type ethtool struct {
	conn   *genetlink.Conn
	family uint16
}

// ethtoolFamily is the number of ethtool's family, which lasts until the next boot; 0
// while nobody asked for it.
var ethtoolFamily atomic.Uint32

// Close closes the connection.
func (e *ethtool) Close() error { return e.conn.Close() }

func dialEthtool() (*ethtool, error) {
	conn, err := genetlink.Dial(&netlink.Config{Strict: true})
	if err != nil {
		return nil, fmt.Errorf("netlink dial: %w", err)
	}
	if ethtoolFamily.Load() == 0 {
		family, err := conn.GetFamily("ethtool") // ETHTOOL_GENL_NAME
		if err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("netlink family ethtool: %w", err)
		}
		ethtoolFamily.Store(uint32(family.ID))
	}
	return &ethtool{conn: conn, family: uint16(ethtoolFamily.Load())}, nil
}

// features reads the features of the device with that index; segments is left 0.
func (e *ethtool) features(index int) (state, error) {
	s, err := e.readFeatures(index)
	if err != nil {
		return state{}, fmt.Errorf("read features: %w", err)
	}
	return s, nil
}

func (e *ethtool) readFeatures(index int) (state, error) {
	names, err := e.featureNames(index)
	if err != nil {
		return state{}, err
	}
	data, err := e.get(index, unix.ETHTOOL_FLAG_COMPACT_BITSETS)
	if err != nil {
		return state{}, err
	}
	s := state{switchable: map[string]bool{}, wanted: map[string]bool{}, active: map[string]bool{}}
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return state{}, err
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.ETHTOOL_A_FEATURES_HW:
			ad.Nested(bits(names, s.switchable))
		case unix.ETHTOOL_A_FEATURES_WANTED:
			ad.Nested(bits(names, s.wanted))
		case unix.ETHTOOL_A_FEATURES_ACTIVE:
			ad.Nested(bits(names, s.active))
		}
	}
	return s, ad.Err()
}

// get is the kernel's answer about a device's features.
func (e *ethtool) get(index int, flags uint32) ([]byte, error) {
	messages, err := e.request(unix.ETHTOOL_MSG_FEATURES_GET, netlink.Request, index, flags, func(*netlink.AttributeEncoder) {})
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, fmt.Errorf("%d answers of the kernel, want 1", len(messages))
	}
	return messages[0].Data, nil
}

// bits puts the names of the bits that are set into found. A compact bit set is an
// array of words of 32 bits in the machine's order (ethtool-netlink.rst, "Bit sets").
func bits(names map[uint32]string, found map[string]bool) func(*netlink.AttributeDecoder) error {
	return func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			if ad.Type() != unix.ETHTOOL_A_BITSET_VALUE {
				continue
			}
			words := ad.Bytes()
			for bit, name := range names {
				at := int(bit/32) * 4
				if at+4 <= len(words) && binary.NativeEndian.Uint32(words[at:])&(1<<(bit%32)) != 0 {
					found[name] = true
				}
			}
		}
		return nil
	}
}

// knownNames are the names of the bits, of the features that this package is about.
// They last until the next boot.
var knownNames atomic.Pointer[map[uint32]string]

// featureNames returns knownNames, from the long form of an answer about a device when
// it is the first time: there each bit that could be switched anywhere stands with its
// number and name.
func (e *ethtool) featureNames(index int) (map[uint32]string, error) {
	if known := knownNames.Load(); known != nil {
		return *known, nil
	}
	data, err := e.get(index, 0)
	if err != nil {
		return nil, err
	}
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return nil, err
	}
	names := map[uint32]string{}
	one := func(ad *netlink.AttributeDecoder) error {
		var number uint32
		var name string
		for ad.Next() {
			switch ad.Type() {
			case unix.ETHTOOL_A_BITSET_BIT_INDEX:
				number = ad.Uint32()
			case unix.ETHTOOL_A_BITSET_BIT_NAME:
				name = ad.String()
			}
		}
		if makesSuperPackets(name) {
			names[number] = name
		}
		return nil
	}
	for ad.Next() {
		if ad.Type() == unix.ETHTOOL_A_FEATURES_HW {
			ad.Nested(each(unix.ETHTOOL_A_BITSET_BITS, each(unix.ETHTOOL_A_BITSET_BITS_BIT, one)))
		}
	}
	if err := ad.Err(); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("the kernel names no feature for segments")
	}
	knownNames.Store(&names)
	return names, nil
}

// each applies f to every nested attribute of that type.
func each(typ uint16, f func(*netlink.AttributeDecoder) error) func(*netlink.AttributeDecoder) error {
	return func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			if ad.Type() == typ {
				ad.Nested(f)
			}
		}
		return nil
	}
}

// set asks for the features as they are given, and leaves the others.
func (e *ethtool) set(index int, wanted map[string]bool) error {
	// The acknowledgement alone is asked for: what is in force is read afterwards.
	_, err := e.request(unix.ETHTOOL_MSG_FEATURES_SET, netlink.Request|netlink.Acknowledge, index, unix.ETHTOOL_FLAG_OMIT_REPLY, func(ae *netlink.AttributeEncoder) {
		ae.Nested(unix.ETHTOOL_A_FEATURES_WANTED, func(set *netlink.AttributeEncoder) error {
			set.Nested(unix.ETHTOOL_A_BITSET_BITS, func(bits *netlink.AttributeEncoder) error {
				for _, name := range slices.Sorted(maps.Keys(wanted)) {
					bits.Nested(unix.ETHTOOL_A_BITSET_BITS_BIT, func(bit *netlink.AttributeEncoder) error {
						bit.String(unix.ETHTOOL_A_BITSET_BIT_NAME, name)
						bit.Flag(unix.ETHTOOL_A_BITSET_BIT_VALUE, wanted[name])
						return nil
					})
				}
				return nil
			})
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("set features: %w", err)
	}
	return nil
}

// request sends one request about a device. ETHTOOL_A_FEATURES_HEADER is the first
// attribute of every message.
func (e *ethtool) request(command uint8, how netlink.HeaderFlags, index int, flags uint32, more func(*netlink.AttributeEncoder)) ([]genetlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Nested(unix.ETHTOOL_A_FEATURES_HEADER, func(h *netlink.AttributeEncoder) error {
		h.Uint32(unix.ETHTOOL_A_HEADER_DEV_INDEX, uint32(index))
		if flags != 0 {
			h.Uint32(unix.ETHTOOL_A_HEADER_FLAGS, flags)
		}
		return nil
	})
	more(ae)
	data, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	return e.conn.Execute(genetlink.Message{
		Header: genetlink.Header{Command: command, Version: 1}, // ETHTOOL_GENL_VERSION
		Data:   data,
	}, e.family, how)
}

package offload

import (
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
	messages, err := e.request(unix.ETHTOOL_MSG_FEATURES_GET, netlink.Request, index, 0, func(*netlink.AttributeEncoder) {})
	if err != nil {
		return state{}, fmt.Errorf("read features: %w", err)
	}
	if len(messages) != 1 {
		return state{}, fmt.Errorf("read features: %d answers of the kernel, want 1", len(messages))
	}
	s := state{switchable: map[string]bool{}, wanted: map[string]bool{}, active: map[string]bool{}}
	ad, err := netlink.NewAttributeDecoder(messages[0].Data)
	if err != nil {
		return state{}, fmt.Errorf("read features: %w", err)
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.ETHTOOL_A_FEATURES_HW:
			ad.Nested(bitset(s.switchable))
		case unix.ETHTOOL_A_FEATURES_WANTED:
			ad.Nested(bitset(s.wanted))
		case unix.ETHTOOL_A_FEATURES_ACTIVE:
			ad.Nested(bitset(s.active))
		}
	}
	if err := ad.Err(); err != nil {
		return state{}, fmt.Errorf("read features: %w", err)
	}
	return s, nil
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

// bitset puts the names of the bits that are set, of those that this package is about,
// into found (Documentation/networking/ethtool-netlink.rst, "Bit sets").
func bitset(found map[string]bool) func(*netlink.AttributeDecoder) error {
	bit := func(nomask bool) func(*netlink.AttributeDecoder) error {
		return func(ad *netlink.AttributeDecoder) error {
			name, value := "", nomask // without a mask only what is set is listed
			for ad.Next() {
				switch ad.Type() {
				case unix.ETHTOOL_A_BITSET_BIT_NAME:
					name = ad.String()
				case unix.ETHTOOL_A_BITSET_BIT_VALUE:
					value = true
				}
			}
			if value && makesSuperPackets(name) {
				found[name] = true
			}
			return nil
		}
	}
	return func(ad *netlink.AttributeDecoder) error {
		nomask := false
		for ad.Next() {
			switch ad.Type() {
			case unix.ETHTOOL_A_BITSET_NOMASK: // stands before the bits
				nomask = true
			case unix.ETHTOOL_A_BITSET_BITS:
				ad.Nested(func(bits *netlink.AttributeDecoder) error {
					for bits.Next() {
						if bits.Type() == unix.ETHTOOL_A_BITSET_BITS_BIT {
							bits.Nested(bit(nomask))
						}
					}
					return nil
				})
			}
		}
		return nil
	}
}

// Package offload reads what the devices of a fault's path do with segments,
// switches that off, and switches it back on exactly as it was.
//
// A stack that offloads segmentation hands packets of up to 64 KB, super-packets, to
// a device, and gets such from it. A fault that acts on one of them hits some forty
// packets of the wire at once. With everything off that this package knows, each
// packet that leaves a device, and each that a TCP connection made afterwards hands
// to it, is as it is on the wire. A connection that stands already keeps handing
// super-packets to the queueing discipline of its own device until its route is looked
// up again; they are cut behind it. So does a program that asks for it (UDP_SEGMENT of
// linux/udp.h).
package offload

import (
	"strings"
	"sync"
)

// GSOMaxSegs stands among the names of ethtool's features for the limit of that name
// of a device (IFLA_GSO_MAX_SEGS of linux/if_link.h, ip link's gso_max_segs): it is on
// where a packet may stand for more than one segment. TCP makes super-packets whatever
// the features are, and the queueing discipline gets them, unless this limit is 1.
const GSOMaxSegs = "gso_max_segs"

// makesSuperPackets reports whether the feature of ethtool's (netdev_features_strings
// of net/ethtool/common.c) lets a device take or make packets that stand for several.
func makesSuperPackets(feature string) bool {
	if strings.HasPrefix(feature, "tx-") && strings.HasSuffix(feature, "-segmentation") {
		return true
	}
	switch feature {
	case "tx-gso-partial", "tx-gso-list", "tx-udp-fragmentation",
		"rx-gro", "rx-gro-hw", "rx-gro-list", "rx-udp-gro-forwarding", "rx-lro":
		return true
	}
	return false
}

// Keeper switches offload off and back, and keeps on disk what has to be switched
// back, so that another process can do it when this one was killed. Two processes must
// not use one folder at the same time. It is safe for concurrent use.
type Keeper struct {
	dir string

	// work is held while the settings of devices are changed.
	work sync.Mutex

	mu sync.Mutex // of known
	// known is where a peer was found last, by its number in a namespace. It is
	// looked at anew before it is believed.
	known map[peerID]string
}

// peerID is the number (IFLA_LINK_NETNSID) that the namespace with the cookie has for
// another one.
type peerID struct {
	cookie uint64
	number int
}

// New returns a Keeper with its records in dir, which is made when the first is
// written and removed with the last. Nothing is read or changed.
func New(dir string) *Keeper { return &Keeper{dir: dir, known: map[peerID]string{}} }

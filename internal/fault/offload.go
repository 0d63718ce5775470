package fault

import (
	"slices"
	"strings"
)

// Offload is what a device does with segments: the names of ethtool's features.
type Offload struct {
	// Namespace and Device are the names when it was looked at; Cookie (SO_NETNS_COOKIE)
	// and Index are what it is known by, 0 where only names are told, as to a client.
	Namespace, Device string
	Cookie            uint64
	Index             int
	// Before are the features that were on: "tx-tcp-segmentation", "rx-gro", ...
	Before []string
	// Off are those of Before that are off while the fault lasts.
	Off []string
}

// FeatureNames says ethtool's features by the short names that people know, and whether
// there are others: "gso, tso, others". How many does not matter, and differs from list to
// list of one fault, as of what is on and of what matters of that.
func FeatureNames(names []string) string {
	var known []string
	others := false
	for _, n := range names {
		short := ""
		switch {
		case strings.HasPrefix(n, "tx-tcp"):
			short = "tso"
		case n == "tx-generic-segmentation":
			short = "gso"
		case n == "tx-udp-segmentation":
			short = "uso"
		case strings.HasPrefix(n, "rx-gro"):
			short = "gro"
		case n == "rx-lro":
			short = "lro"
		}
		switch {
		case short == "":
			others = true
		case !slices.Contains(known, short):
			known = append(known, short)
		}
	}
	if others {
		known = append(known, "others")
	}
	return strings.Join(known, ", ")
}

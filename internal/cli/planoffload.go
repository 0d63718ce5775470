package cli

import (
	"slices"

	"netemd/internal/target"
)

// offloadPlan is what would be switched off at one device, as a person would type it.
type offloadPlan struct {
	Netns    string   `json:"netns"`
	Device   string   `json:"device"`
	Commands []string `json:"commands"`
}

// withOffload adds the device of a place, once. The words are the kinds that ethtool has
// short names for; what makes super-packets beside them goes off with netemd, too.
func withOffload(plans []offloadPlan, p target.Place) []offloadPlan {
	if slices.ContainsFunc(plans, func(o offloadPlan) bool { return o.Netns == p.Namespace && o.Device == p.Device }) {
		return plans
	}
	return append(plans, offloadPlan{Netns: p.Namespace, Device: p.Device, Commands: []string{
		"ethtool -K " + p.Device + " tso off gso off gro off lro off tx-udp-segmentation off",
		"ip link set dev " + p.Device + " gso_max_segs 1",
	}})
}

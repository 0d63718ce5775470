package try

import (
	"context"
	"os"

	"netemd/internal/engine/netem"
	"netemd/internal/feature"
)

// IFBName is the name of what IFB tries.
const IFBName = "ifb"

// IFB tries what the netem engine needs besides sch_netem on a device that netemd did
// not make: an ifb, clsact and cls_bpf, and with tcx macvlan, else mirred. It needs
// root, and loads the module ifb where that is one, without the two devices that it
// makes otherwise.
func IFB(ctx context.Context) feature.Feature {
	const needs = "the modules ifb, sch_ingress, cls_bpf, and act_mirred or, with tcx, macvlan (CONFIG_IFB, CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF, CONFIG_NET_ACT_MIRRED, CONFIG_MACVLAN); " +
		"without them faults on devices that netemd did not make go by the ebpf engine"
	return tried(ctx, IFBName, needs, func() (string, error) {
		ns, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return "", err
		}
		defer func() { _ = ns.Close() }()
		return netem.Try(int(ns.Fd()))
	})
}

// Package match says which packets a target.Match selects, once for both engines: in
// Go (Selects), and as instructions for the kernel (Classifier, Sequence.Select). The
// two agree on every packet; the tests hold them to it.
//
// What a packet carries is read as far as it can be. A flow that asks for what cannot
// be read does not select the packet: an address of a packet that is not IP or ends
// before its IP header does, the protocol behind more extension headers than are
// walked, the ports of a later fragment.
//
// Tagged frames are selected by what they carry. A tag that the device or the kernel
// has taken off the data is not looked at, as is the rule at the hooks for a single
// tag: in skb_vlan_untag on the way in, and until the driver on the way out. Tags in
// the data are walked over, two at most (802.1Q and 802.1ad).
package match

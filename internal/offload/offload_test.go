package offload

import "testing"

func TestMakesSuperPackets(t *testing.T) {
	for feature, want := range map[string]bool{
		"tx-tcp-segmentation": true, "tx-tcp6-segmentation": true, "tx-tcp-ecn-segmentation": true,
		"tx-generic-segmentation": true, "tx-udp-segmentation": true, "tx-udp_tnl-csum-segmentation": true,
		"tx-gso-partial": true, "tx-gso-list": true,
		"rx-gro": true, "rx-gro-hw": true, "rx-gro-list": true, "rx-udp-gro-forwarding": true, "rx-lro": true,
		// What says how a segment is made, and not whether.
		"tx-gso-robust": false, "tx-scatter-gather": false, "tx-checksum-ipv4": false,
		"rx-checksum": false, "tx-vlan-hw-insert": false, "highdma": false, "": false,
	} {
		if got := makesSuperPackets(feature); got != want {
			t.Errorf("%s: %v, want %v", feature, got, want)
		}
	}
}

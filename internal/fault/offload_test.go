package fault

import "testing"

func TestFeatureNames(t *testing.T) {
	for want, names := range map[string][]string{
		"":              nil,
		"tso, gso":      {"tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-generic-segmentation"},
		"uso, gro, lro": {"tx-udp-segmentation", "rx-gro", "rx-gro-list", "rx-lro"},
		"tso, others":   {"tx-sctp-segmentation", "tx-tcp-segmentation"},
		"others":        {"tx-gre-segmentation", "tx-sctp-segmentation"},
	} {
		if got := FeatureNames(names); got != want {
			t.Errorf("%v: %q, want %q", names, got, want)
		}
	}
}

package try

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"netemd/internal/evidence"
	"netemd/internal/feature"
)

// TPBTF tries to trace retransmissions as a probe does: it loads and attaches both
// programs, and takes them away again. It traces no namespace while it does.
func TPBTF(ctx context.Context) feature.Feature {
	f := feature.Feature{Name: "tp_btf"}
	if err := context.Cause(ctx); err != nil {
		f.State, f.Detail = feature.Inconclusive, err.Error()
		return f
	}
	// no namespace has the cookie 2^64-1
	c, err := evidence.Start(evidence.Config{Cookies: []uint64{^uint64(0)}, Buffer: 1 << 16})
	if err == nil {
		_, _, err = c.Stop()
	}
	switch {
	case err == nil:
		f.State = feature.Yes
		f.Detail = "tcp_retransmit_skb and tcp_retransmit_synack traced"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		f.State, f.Detail = feature.Inconclusive, err.Error()
		f.Hint = "run as root, or with CAP_BPF and CAP_PERFMON"
	default:
		f.State, f.Detail = feature.No, err.Error()
		f.Hint = "needs a kernel with BTF (/sys/kernel/btf/vmlinux), Linux 5.15 or later; without it the causes of " +
			"slow calls come from TCP_INFO and the namespaces' counters, which cannot tell a tail loss probe"
	}
	return f
}

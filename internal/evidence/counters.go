package evidence

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"netemd/namespaces"
	"netemd/probe"
)

// Counters are a network namespace's TCP totals since it was made
// (/proc/net/snmp and /proc/net/netstat; the names in the comments are theirs). A
// counter that the kernel does not have is 0.
type Counters struct {
	// Segments are all segments sent again, SYNs and SYN-ACKs too (RetransSegs).
	Segments uint64
	// Timeouts are retransmission timeouts, those of SYNs too (TCPTimeouts).
	Timeouts uint64
	// LossProbes are tail loss probes (TCPLossProbes). One that carries new data is
	// no retransmission.
	LossProbes uint64
	// SYNs are SYNs and SYN-ACKs sent again (TCPSynRetrans).
	SYNs uint64
	// Fast and SlowStart are segments sent again in the recovery and the loss state
	// (TCPFastRetrans, TCPSlowStartRetrans).
	Fast, SlowStart uint64
	// Failed are retransmissions that could not be sent (TCPRetransFail).
	Failed uint64
}

// ReadCounters reads the totals of a named namespace; the empty name is the
// process's own. It needs the right to enter the namespace.
func ReadCounters(ctx context.Context, namespace string) (Counters, error) {
	var c Counters
	err := namespaces.Do(ctx, namespace, func() error {
		// thread-self, since /proc/net shows the main thread's namespace
		for _, file := range []string{"/proc/thread-self/net/snmp", "/proc/thread-self/net/netstat"} {
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			err = c.parse(f)
			_ = f.Close()
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		return nil
	})
	if err != nil {
		return Counters{}, fmt.Errorf("tcp counters: %w", err)
	}
	return c, nil
}

// parse takes what it knows out of pairs of lines: a line of names, and one of
// their values.
func (c *Counters) parse(r io.Reader) error {
	known := map[string]*uint64{
		"Tcp:RetransSegs":            &c.Segments,
		"TcpExt:TCPTimeouts":         &c.Timeouts,
		"TcpExt:TCPLossProbes":       &c.LossProbes,
		"TcpExt:TCPSynRetrans":       &c.SYNs,
		"TcpExt:TCPFastRetrans":      &c.Fast,
		"TcpExt:TCPSlowStartRetrans": &c.SlowStart,
		"TcpExt:TCPRetransFail":      &c.Failed,
	}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		names := strings.Fields(lines.Text())
		if len(names) == 0 {
			continue
		}
		if !lines.Scan() {
			return fmt.Errorf("%s has names and no values", names[0])
		}
		values := strings.Fields(lines.Text())
		if len(values) != len(names) || values[0] != names[0] {
			return fmt.Errorf("%s has %d names and %d values", names[0], len(names)-1, len(values)-1)
		}
		for i, name := range names[1:] {
			into, ok := known[names[0]+name]
			if !ok {
				continue
			}
			v, err := strconv.ParseUint(values[i+1], 10, 64)
			if err != nil {
				return fmt.Errorf("%s%s: %w", names[0], name, err)
			}
			*into = v
		}
	}
	return lines.Err()
}

// Since returns what was counted after before was read.
func (c Counters) Since(before Counters) Counters {
	return Counters{
		Segments:   c.Segments - before.Segments,
		Timeouts:   c.Timeouts - before.Timeouts,
		LossProbes: c.LossProbes - before.LossProbes,
		SYNs:       c.SYNs - before.SYNs,
		Fast:       c.Fast - before.Fast,
		SlowStart:  c.SlowStart - before.SlowStart,
		Failed:     c.Failed - before.Failed,
	}
}

// Plus returns the sum of two namespaces' counters.
func (c Counters) Plus(d Counters) Counters {
	return Counters{
		Segments:   c.Segments + d.Segments,
		Timeouts:   c.Timeouts + d.Timeouts,
		LossProbes: c.LossProbes + d.LossProbes,
		SYNs:       c.SYNs + d.SYNs,
		Fast:       c.Fast + d.Fast,
		SlowStart:  c.SlowStart + d.SlowStart,
		Failed:     c.Failed + d.Failed,
	}
}

// Causes says how often each cause struck, as far as totals can. Segments that are
// neither SYNs, nor probes, nor sent in recovery, were sent for a timeout.
func (c Counters) Causes() map[probe.Cause]int {
	causes := map[probe.Cause]int{}
	set := func(cause probe.Cause, n uint64) {
		if n > 0 {
			causes[cause] = int(n)
		}
	}
	set(probe.SYNRetransmit, c.SYNs)
	set(probe.TLP, c.LossProbes)
	set(probe.FastRetransmit, c.Fast)
	if rest := c.SYNs + c.LossProbes + c.Fast; c.Segments > rest {
		set(probe.RTO, c.Segments-rest)
	}
	return causes
}

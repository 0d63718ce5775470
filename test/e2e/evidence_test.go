package e2e

import (
	"strconv"
	"strings"
	"testing"
)

// retransmitted are what the kernel of the lab's two ends counted.
func retransmitted(t *testing.T) map[string]int {
	t.Helper()
	sum := map[string]int{}
	for _, namespace := range []string{"netem-pg-client", "netem-pg-server"} {
		lines := strings.Split(in(t, namespace, "cat", "/proc/net/snmp", "/proc/net/netstat").stdout, "\n")
		for i := 0; i+1 < len(lines); i += 2 {
			names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
			for j := 1; j < len(names) && j < len(values); j++ {
				switch names[j] {
				case "RetransSegs", "TCPSynRetrans":
					n, err := strconv.Atoi(values[j])
					if err != nil {
						t.Fatal(err)
					}
					sum[names[j]] += n
				}
			}
		}
	}
	return sum
}

// dropped is how many packets the only fault has lost.
func dropped(t *testing.T, a agent) uint64 {
	t.Helper()
	list := data[struct {
		Faults []struct {
			Lost uint64 `json:"lost_packets"`
		} `json:"faults"`
	}](t, a.must("stats", "-o", "json"), "stats")
	if len(list.Faults) != 1 {
		t.Fatalf("stats: %+v, want one fault", list)
	}
	return list.Faults[0].Lost
}

// testExplained checks that the slow calls of a lossy run have their causes, and that these
// agree with the packets that the engine says it dropped, and with the namespaces'
// counters.
func testExplained(t *testing.T, a agent) {
	// A call that a busy machine made slow, and not the network, has no cause of ours:
	// those are told by having lost nothing. One that the machine held up after its
	// network trouble cannot be told; a quieter run has fewer of them.
	for i := 1; ; i++ {
		before, lost := retransmitted(t), dropped(t, a)
		s := data[summary](t, a.must("probe", "pg", "--target", "pg", "-n", "60", "--concurrency", "2", "--timeout", "20s", "-o", "json"), "probe")
		agree(t, s, before, retransmitted(t), dropped(t, a)-lost)
		touched := 0
		for _, n := range s.Drops.Slow {
			touched += n
		}
		switch unknown := s.Drops.Slow["unknown"]; {
		case touched == 0:
			t.Fatal("no slow call lost a packet")
		case unknown*100 <= touched*5:
			return
		case i == 4:
			t.Fatalf("%d of %d slow calls that lost a packet are unexplained, want at most 5 %%", unknown, touched)
		}
	}
}

// agree checks a run's causes. before and after are retransmitted, lost is what the engine
// counted meanwhile.
func agree(t *testing.T, s summary, before, after map[string]int, lost uint64) {
	t.Helper()
	slow := 0
	for _, n := range s.Causes {
		slow += n
	}
	if slow == 0 || s.Explained == nil {
		t.Fatalf("no slow call at 20 %% loss: %+v", s)
	}
	if s.Drops == nil {
		t.Fatal("no record of the engine's drops")
	}
	d := *s.Drops
	t.Logf("%d calls, %d slow, %.1f %% explained, causes %v, retransmissions %v; engine dropped %d (record %d, missed %d), in calls %d %v; "+
		"to be repeated %d, answered %d; slow with drops %v; counters %v..%v",
		s.Count, slow, *s.Explained, s.Causes, s.Retransmissions, lost, d.All, d.Missed, d.Recorded, d.Kinds, d.Repeatable, d.Answered, d.Slow, before, after)
	// The record is the engine's: of what it counted, it lacks what closing connections
	// lost before and after the run.
	if d.Missed != 0 || d.All > lost || d.All+20 < lost {
		t.Errorf("the record has %d drops and missed %d, the engine counted %d", d.All, d.Missed, lost)
	}
	// What TCP must repeat for a call to succeed, it has been seen to repeat.
	if d.Repeatable == 0 || d.Answered*100 < d.Repeatable*95 {
		t.Errorf("%d of %d dropped segments were seen to be repeated, want 95 %%", d.Answered, d.Repeatable)
	}
	// And what is said to be a retransmission's fault had a dropped packet before: a busy
	// machine repeats one now and then without.
	caused, had := 0, 0
	for _, c := range []string{"rto", "syn_retransmit", "tlp", "fast_retransmit", "dropped"} {
		caused += s.Causes[c]
		had += d.Slow[c]
	}
	if had*100 < caused*95 {
		t.Errorf("%d of %d calls that a retransmission made slow had a dropped packet: %v of %v, want 95 %%", had, caused, d.Slow, s.Causes)
	}
	// A SYN is repeated in a call only; other segments in its closing as well.
	again := 0
	for _, n := range s.Retransmissions {
		again += n
	}
	syns := after["TCPSynRetrans"] - before["TCPSynRetrans"]
	if n := s.Retransmissions["syn_retransmit"]; n > syns || n+4 < syns {
		t.Errorf("%d SYNs were traced, and the namespaces count %d", n, syns)
	}
	if segments := after["RetransSegs"] - before["RetransSegs"]; again > segments {
		t.Errorf("%d retransmissions were traced, and the namespaces count %d", again, segments)
	}
}

package ebpf

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"netemd/internal/content"
	"netemd/internal/fault"
)

// Two processors have the same segments of one connection at the same time: of each pair
// exactly one is sent again, and no segment is counted twice.
func TestOneConnectionOnTwoProcessors(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("needs two processors")
	}
	rounds := uint64(20_000)
	if testing.Short() {
		rounds = 5_000
	}
	b := newBench(t, content.Rule{Kind: content.Retransmit})
	var at [2]atomic.Uint32
	var wg sync.WaitGroup
	for me := range at {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for i := range uint32(rounds) {
				at[me].Store(i + 1)
				for at[1-me].Load() < i+1 {
					runtime.Gosched()
				}
				b.run(segment(7, 1+i*10, 0x10, 10), 0, 0)
			}
		})
	}
	wg.Wait()
	if got := b.page.at.lost.Load(); got != rounds {
		t.Errorf("%d of %d segments were sent again, want each once", got, rounds)
	}
}

// A rule remembers as many connections as it says, and tells when there were more.
func TestForgottenConnections(t *testing.T) {
	b := newBench(t, content.Rule{Kind: content.SYN, Count: 1, PerConnection: true})
	packet := func(i int) []byte {
		p := segment(uint16(i), uint32(i), 2, 0)
		p[29] = byte(i >> 16) // the source address's last byte
		return p
	}
	log := func() content.Log {
		b.log.count(b.page.at)
		l, _, _ := b.log.since(content.Cursor{})
		return l
	}
	for i := range content.MaxConnections {
		b.run(packet(i), 0, 0)
	}
	if l := log(); l.Forgotten != 0 || l.Chosen != content.MaxConnections {
		t.Errorf("as many as it remembers: chosen %d, forgotten %d", l.Chosen, l.Forgotten)
	}
	for i := range content.MaxConnections {
		if b.run(packet(i), 0, 0) {
			t.Fatalf("connection %d was forgotten", i)
		}
	}
	const more = 10_000
	for i := range more {
		b.run(packet(content.MaxConnections+i), 0, 0)
	}
	if l := log(); l.Forgotten != more {
		t.Errorf("%d more: forgotten %d", more, l.Forgotten)
	}
}

// Rules that follow connections are bounded by name, and each that ends makes room.
func TestTooManyFollow(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	following := func(i int) content.Rule { return content.Rule{Kind: content.Data, N: uint32(i + 1)} }
	for i := range maxFollowing {
		rule(t, e, p, following(i))
	}
	err := e.SetContent(ctx, p, following(maxFollowing), in(time.Minute))
	if !errors.Is(err, fault.ErrBusy) || !strings.Contains(fmt.Sprint(err), "at most 32 can be") {
		t.Errorf("one more: %v", err)
	}
	if len(e.places) != maxFollowing {
		t.Errorf("%d places", len(e.places))
	}
	rule(t, e, p, content.Rule{Kind: content.SYN}) // which follows none
	rule(t, e, p, following(0))                    // which is there already
	clearRule(t, e, p, following(3))
	rule(t, e, p, following(maxFollowing))
	taken := uint64(0)
	for _, pl := range e.places {
		if c := pl.rule.conns; c != nil {
			taken += memory(t, c.byKey) + memory(t, c.locks)
		}
	}
	limit := uint64(3_200_000)
	if runtime.NumCPU() > 16 {
		limit *= 2
	}
	if each := taken / maxFollowing; each > limit || each < 1_000_000 {
		t.Errorf("each takes %d bytes, not what is said", each)
	}
	t.Logf("%d rules take %d bytes", maxFollowing, taken)
	for i := range maxFollowing + 1 {
		clearRule(t, e, p, following(i))
	}
	if e.ring.following != 0 {
		t.Errorf("%d are counted when there are none", e.ring.following)
	}
}

// memory is what a map takes of the kernel's, in bytes, as the kernel says.
func memory(t testing.TB, m *ebpf.Map) uint64 {
	t.Helper()
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", m.FD()))
	if err != nil {
		t.Fatal(err)
	}
	var bytes uint64
	_, after, _ := strings.Cut(string(info), "memlock:")
	if _, err := fmt.Sscan(after, &bytes); err != nil {
		t.Fatalf("%q: %v", info, err)
	}
	return bytes
}

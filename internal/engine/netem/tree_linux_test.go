package netem

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"netemd/internal/target"
	"netemd/qdisc"
)

// tcOf runs tc in a namespace.
func tcOf(ns string, args ...string) (string, error) {
	text, err := exec.Command("tc", append([]string{"-n", ns}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("tc %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return string(text), err
}

// words are those of a command, in which ~ is a space within a word.
func words(command string) []string {
	all := strings.Fields(command)
	for i, w := range all {
		all[i] = strings.ReplaceAll(w, "~", " ")
	}
	return all
}

// queues gives b a device with that many queues beside v0. A veth is without a queue
// until somebody gives it one; an ifb of several has the kernel's own mq, as a network
// card does.
func (b *bench) queues(t *testing.T, kind, name string, n int) target.Place {
	t.Helper()
	attrs := netlink.LinkAttrs{Name: name, NumTxQueues: n, NumRxQueues: n, TxQLen: 1000, MTU: silentMTU}
	ends := []string{name}
	var device netlink.Link = &netlink.Ifb{LinkAttrs: attrs}
	if kind == "veth" {
		device = &netlink.Veth{LinkAttrs: attrs, PeerName: name + "p"}
		ends = append(ends, name+"p")
	}
	if err := b.links.LinkAdd(device); err != nil {
		t.Fatal(err)
	}
	for _, end := range ends {
		l, err := b.links.LinkByName(end)
		if err == nil {
			err = b.links.LinkSetUp(l)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := b.links.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	p := b.foreign(target.Egress)
	p.Device, p.Index = name, l.Attrs().Index
	return p
}

// parts are what a tree is drawn from: each is one or more tc commands for a device.
// One that comes behind another of its group is left out.
var parts = []struct {
	group    string
	commands []string
}{
	{"root", []string{"qdisc add dev DEV root handle 77: htb default 10", "class add dev DEV parent 77: classid 77:10 htb rate 5mbit", "class add dev DEV parent 77: classid 77:20 htb rate 1mbit ceil 2mbit"}},
	{"root", []string{"qdisc add dev DEV root handle 8: fq_codel"}},
	{"root", []string{"qdisc add dev DEV root handle 9: tbf rate 1mbit burst 10kb latency 50ms"}},
	{"root", []string{"qdisc add dev DEV root handle 5: prio", "qdisc add dev DEV parent 5:1 handle 51: pfifo limit 10"}},
	{"root", []string{"qdisc add dev DEV root handle 6: mq", "qdisc add dev DEV parent 6:2 handle 62: pfifo limit 20", "qdisc add dev DEV parent 6:3 handle 63: htb default 1", "class add dev DEV parent 63: classid 63:1 htb rate 5mbit"}},
	{"root", []string{"qdisc add dev DEV root handle 7: htb", "class add dev DEV parent 7: classid 7:1 htb rate 1mbit", "filter add dev DEV parent 7: protocol ip prio 3 u32 match ip dport 80 0xffff flowid 7:1"}},
	{"door", []string{"qdisc add dev DEV clsact"}},
	{"door", []string{"qdisc add dev DEV clsact"}},
	{"door", []string{"qdisc add dev DEV ingress"}},
	{"", []string{"filter add dev DEV ingress protocol ip pref PREF u32 match ip src 192.0.2.1/32 flowid :1 action mirred egress redirect dev lo"}},
	{"", []string{"filter add dev DEV parent ffff: protocol ip pref PREF u32 match u32 0 0 flowid 1:1"}},
	{"", []string{"filter add dev DEV egress protocol ip pref PREF u32 match u32 0 0 flowid 1:1"}},
	{"", []string{"filter add dev DEV egress protocol ip pref PREF flower dst_ip 192.0.2.7 action drop"}},
	{"", []string{"filter add dev DEV ingress protocol ipv6 pref PREF flower ip_proto udp action pass"}},
	{"", []string{"filter add dev DEV egress pref PREF matchall action continue"}},
	{"", []string{"filter add dev DEV egress pref PREF protocol all bpf bytecode 1,6~0~0~1"}},
	{"", []string{"filter add dev DEV ingress pref PREF protocol all bpf bytecode 1,6~0~0~1"}},
	{"", []string{"chain add dev DEV ingress chain 7"}},
	{"", []string{"chain add dev DEV egress chain 9 protocol ip flower dst_ip 192.0.2.0/24"}},
	{"", []string{"filter add dev DEV egress chain 5 protocol ip pref PREF u32 match u32 0 0 flowid 1:1"}},
}

// grow gives the device of p a random tree, and says what it is made of. refused
// collects what this kernel does not have; bare leaves the root as the kernel made it.
func (b *bench) grow(t *testing.T, r *rand.Rand, p target.Place, bare bool, refused map[string]string) []string {
	t.Helper()
	had := map[string]bool{"root": bare}
	var grown []string
	for _, i := range r.Perm(len(parts)) {
		part := parts[i]
		if part.group == "" && !had["door"] || had[part.group] || r.IntN(3) == 0 && part.group != "door" {
			continue
		}
		pref := fmt.Sprint([]int{1, 2, 5, 100, 49152}[r.IntN(5)])
		for _, command := range part.commands {
			command = strings.NewReplacer("DEV", p.Device, "PREF", pref).Replace(command)
			if _, err := tcOf(b.near, words(command)...); err != nil {
				refused[strings.Split(part.commands[0], "DEV")[1]] = err.Error()
				break
			}
			grown = append(grown, command)
			had[part.group] = part.group != ""
		}
	}
	return grown
}

// Whatever stands on a device is as before when a fault was applied, changed and
// cleared, byte for byte as tc shows it; what leaves no way in is named.
func TestForeignTrees(t *testing.T) {
	count := 100
	if testing.Short() || os.Getenv("NETEMD_TEST_LONG") == "" {
		count = 20
		if os.Getenv("NETEMD_TEST_VM") != "" {
			count = 8 // a tree takes 3 s there
		}
	}
	devices := []struct {
		kind   string
		queues int
		bare   bool
	}{{"veth", 1, false}, {"veth", 4, false}, {ifbKind, 4, true}, {ifbKind, 4, false}}
	refused := map[string]string{}
	conflicts, own := 0, 0
	b := newBench(t)
	e := detourEngine(t, b.near)
	for i := range count {
		r := rand.New(rand.NewPCG(7, uint64(i)))
		device := devices[i%len(devices)]
		p := b.queues(t, device.kind, fmt.Sprintf("m%d", i), device.queues)
		p.Hook = []target.Hook{target.Egress, target.Ingress}[r.IntN(2)]
		if r.IntN(2) == 0 {
			p.Match.Include = []target.Flow{udp}
		}
		grown := b.grow(t, r, p, device.bare, refused)
		before := b.tree(t, p.Device)
		if strings.Contains(before, "qdisc mq 0: root") {
			own++
		}
		err := e.Set(t.Context(), p, qdisc.Netem{Delay: ms}, time.Time{})
		if err == nil {
			err = e.Set(t.Context(), p, qdisc.Netem{Loss: 5}, time.Time{})
		} else if strings.Contains(before, "qdisc ingress") && p.Hook == target.Egress && strings.Contains(err.Error(), "a foreign qdisc, ingress ffff:") {
			conflicts++
			err = nil
		}
		if err != nil {
			t.Errorf("%d: %v\non %q", i, err, grown)
		}
		if err := e.Clear(t.Context(), p); err != nil {
			t.Error(err)
		}
		e.drains.Wait()
		if after := b.tree(t, p.Device); after != before {
			t.Errorf("%d: %q (-before +after):\n%s", i, grown, cmp.Diff(before, after))
		}
		l, err := b.links.LinkByIndex(p.Index)
		if err == nil {
			err = b.links.LinkDel(l)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d trees, %d of them without a way in, %d with the kernel's own mq", count, conflicts, own)
	if own == 0 {
		t.Error("no tree was the kernel's own mq")
	}
	for part, err := range refused {
		t.Logf("left out, not on this kernel or not beside the rest:%s %s", part, strings.TrimSpace(err))
	}
}

// A block of filters that several devices share is not one device's to change.
func TestSharedBlock(t *testing.T) {
	b := newBench(t)
	e := detourEngine(t, b.near)
	if _, err := tcOf(b.near, "qdisc", "add", "dev", "v0", "egress_block", "21", "clsact"); err != nil {
		t.Fatal(err)
	}
	before := b.tree(t)
	err := e.Set(t.Context(), b.foreign(target.Egress), qdisc.Netem{Loss: 5}, time.Time{})
	if err == nil || !strings.Contains(err.Error(), "a filter block, 21,") {
		t.Errorf("egress: %v", err)
	}
	if after := b.tree(t); after != before {
		t.Errorf("(-before +after):\n%s", cmp.Diff(before, after))
	}
	if err := e.Set(t.Context(), b.foreign(target.Ingress), qdisc.Netem{Loss: 5}, time.Time{}); err != nil {
		t.Errorf("the other hook: %v", err)
	}
}

package netemtest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/target"
)

// Network is a lab that is up. It is safe for concurrent use.
type Network struct {
	s *Session
	// name is the copy's, what the lab that was asked for.
	name, what string
	info       lab.Info
	targets    []target.Target
	// failed is told of a name that the lab does not have.
	failed func(error)
}

// Lab brings a copy of a lab up for the test and its subtests, and takes it down when the test
// ends. what is the name of a built-in lab ("pg"; 'netemctl lab list' shows all), the path of a
// YAML file, with a slash or an ending of .yaml, or the YAML itself. Its targets go by their
// short names in this test.
//
// Each call makes a copy of its own, with the same addresses: the namespaces are apart, so that
// parallel tests never meet. It takes about as long as its services do to start, 0.1 s without.
func Lab(t testing.TB, what string) *Network {
	t.Helper()
	s := sessionOf(t)
	c := scopeOf(t, s)
	ctx, cancel := deadlined(t)
	defer cancel()
	n, err := s.up(ctx, what, t.Name())
	if err != nil {
		refuse(t, s.unsupported(ctx, err))
	}
	n.failed = func(err error) {
		t.Helper()
		t.Fatalf("netemtest: %v", err)
	}
	c.addLab(n)
	c.lines.add("lab %s is up as %s", n.what, n.name)
	t.Cleanup(func() {
		t.Helper()
		c.removeLab(n)
		ctx, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		if err := n.down(ctx); err != nil {
			t.Errorf("netemtest: %v", err)
		}
		c.lines.add("lab %s is down", n.name)
	})
	return n
}

// up brings a copy up, waiting for room where as many labs are up as may be.
func (s *Session) up(ctx context.Context, what, test string) (*Network, error) {
	s.mu.Lock()
	s.count++
	count := s.count
	s.mu.Unlock()
	d, err := describe(ctx, what)
	if err != nil {
		return nil, err
	}
	n := &Network{s: s, what: d.Name, name: instance(d.Name, test, s.tag, count)}
	n.failed = func(err error) { panic("netemtest: " + err.Error()) }
	for {
		err = s.recorded(ctx, n.name, func() (err error) {
			n.info, err = s.labUp(ctx, d, n.name)
			return err
		})
		if !errors.Is(err, fault.ErrBusy) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(busyPause):
		}
	}
	if err != nil {
		return nil, err
	}
	all, err := s.client.Targets(ctx)
	if err != nil {
		return nil, errors.Join(err, n.down(context.WithoutCancel(ctx)))
	}
	for _, t := range all {
		if t.Lab == n.name {
			n.targets = append(n.targets, t)
		}
	}
	return n, nil
}

// busyPause is between two tries of what other tests have to make room for.
const busyPause = 100 * time.Millisecond

// instance is the copy's name: what it is of, for which test, and what makes it unique on this
// machine: "pg-testretries-k3fq7". It is part of namespaces' names, of 32 bytes at most.
func instance(name, test, tag string, count int) string {
	const most, longest = 32, 10
	end := tag + strconv.Itoa(count)
	parts := []string{slug(name, longest)}
	if room := most - len(parts[0]) - len(end) - len("--"); room > 0 {
		if i := strings.LastIndexByte(test, '/'); i > 0 && len(test)-i > 1 { // the part says more
			test = test[i+1:]
		}
		parts = append(parts, slug(strings.TrimPrefix(test, "Test"), room))
	}
	parts = slices.DeleteFunc(append(parts, end), func(s string) bool { return s == "" })
	return strings.Join(parts, "-")
}

// slug is what of s can be part of a lab's name.
func slug(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
	return strings.Trim(s[:min(len(s), most)], "-")
}

// down takes the copy down.
func (n *Network) down(ctx context.Context) error {
	if _, err := n.s.client.LabDown(ctx, n.name); err != nil {
		return err
	}
	return n.s.struck(n.name)
}

// Name is the copy's, by which netemctl knows it: its namespaces are netem-NAME-NODE.
func (n *Network) Name() string { return n.name }

// Target is the full name of one of the lab's targets, which is unique.
func (n *Network) Target(name string) string {
	full, ok := n.targetName(name)
	if !ok {
		n.fail(fmt.Errorf("lab %s has no target %q; it has: %s", n.what, name, n.targetNames()))
	}
	return full
}

// Addr is where clients reach the lab's target of that name: "10.77.0.2:5432".
func (n *Network) Addr(target string) string {
	return n.target(target).Address.String()
}

// Proxy is where clients reach the target through its proxy, which toxics act on.
func (n *Network) Proxy(target string) string {
	p := n.target(target).Proxy
	if !p.IsValid() {
		n.fail(fmt.Errorf("target %s of lab %s has no proxy", target, n.what))
	}
	return p.String()
}

// HTTPProxy is where clients reach the target through its http-proxy, which faults of requests
// act on.
func (n *Network) HTTPProxy(target string) string {
	p := n.target(target).HTTPProxy
	if !p.IsValid() {
		n.fail(fmt.Errorf("target %s of lab %s has no http-proxy", target, n.what))
	}
	return p.String()
}

func (n *Network) target(name string) target.Target {
	i := slices.IndexFunc(n.targets, func(t target.Target) bool { return t.Name == name || n.name+"/"+t.Name == name })
	if i < 0 {
		n.fail(fmt.Errorf("lab %s has no target %q; it has: %s", n.what, name, n.targetNames()))
	}
	return n.targets[i]
}

func (n *Network) targetNames() string {
	var names []string
	for _, t := range n.targets {
		names = append(names, t.Name)
	}
	return strings.Join(names, ", ")
}

// targetName is the name by which the agent knows the lab's target.
func (n *Network) targetName(name string) (full string, ok bool) {
	for _, t := range n.targets {
		if t.Name == name || n.name+"/"+t.Name == name {
			return n.name + "/" + t.Name, true
		}
	}
	return "", false
}

// fail does not return.
func (n *Network) fail(err error) {
	n.failed(err)
	panic(err) // a session's Network
}

// Node is one of the lab's nodes, a network namespace.
func (n *Network) Node(name string) *Node {
	i := slices.IndexFunc(n.info.Nodes, func(o lab.NodeInfo) bool { return o.Name == name })
	if i < 0 {
		var names []string
		for _, o := range n.info.Nodes {
			names = append(names, o.Name)
		}
		n.fail(fmt.Errorf("lab %s has no node %q; it has: %s", n.what, name, strings.Join(names, ", ")))
	}
	return &Node{n: n, info: n.info.Nodes[i]}
}

// Node is a place in a lab where clients and servers of the test's own process can be: see its
// methods. Entering it takes root. It is safe for concurrent use.
type Node struct {
	n    *Network
	info lab.NodeInfo
}

// Name is the node's in the lab.
func (n *Node) Name() string { return n.info.Name }

// Namespace is the name of its network namespace, below /run/netns.
func (n *Node) Namespace() string { return n.info.Namespace }

// Addrs are the node's addresses.
func (n *Node) Addrs() (all []netip.Addr) {
	for _, p := range n.info.Addresses {
		all = append(all, p.Addr())
	}
	return all
}

// Log is what a service of the node has written so far.
func (n *Node) Log(service string) (string, error) {
	for _, s := range n.info.Services {
		if s.Name == service {
			b, err := os.ReadFile(s.Log)
			return string(b), err
		}
	}
	return "", fmt.Errorf("node %s has no service %q", n.info.Name, service)
}

// lookup is the addresses of a host: a node of the lab, an address, or a name that is looked up
// where this process is.
func (n *Network) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	for _, o := range n.info.Nodes {
		if o.Name == host {
			return (&Node{n: n, info: o}).Addrs(), nil
		}
	}
	return lookupHost(ctx, host)
}

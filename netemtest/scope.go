package netemtest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// scope is what one test made: it ends with the test.
type scope struct {
	t      testing.TB
	parent *scope
	began  time.Time
	lines  timeline

	// scopesMu guards what follows.
	labs   []*Network
	active []*Fault
	// ids are all its faults', aimed the targets of all faults of the test and its parts.
	ids   map[string]bool
	aimed map[string]bool
}

// scopes are the tests that use this package now, by name, which is unique at a time.
var (
	scopes   = map[string]*scope{}
	scopesMu sync.Mutex
)

// scopeOf is the test's, made with its first call. Its own cleanup comes last.
func scopeOf(t testing.TB, s *Session) *scope {
	t.Helper()
	name := t.Name()
	scopesMu.Lock()
	defer scopesMu.Unlock()
	if c := scopes[name]; c != nil {
		return c
	}
	c := &scope{t: t, began: time.Now(), ids: map[string]bool{}, aimed: map[string]bool{}}
	c.lines.began = c.began
	for above := name; c.parent == nil; {
		i := strings.LastIndexByte(above, '/')
		if i < 0 {
			break
		}
		above = above[:i]
		c.parent = scopes[above]
	}
	scopes[name] = c
	t.Cleanup(func() { c.end(s) })
	return c
}

// end forgets the test and tells what was when, where somebody wants to know.
func (c *scope) end(s *Session) {
	c.t.Helper()
	scopesMu.Lock()
	delete(scopes, c.t.Name())
	scopesMu.Unlock()
	if !c.t.Failed() && !verbose() {
		return
	}
	lines := c.lines.all()
	if s.agent != nil {
		for _, l := range s.agent.log.since(c.began) {
			lines = append(lines, line{l.at, "agent: " + l.text})
		}
	}
	c.t.Log("netemtest: " + render(c.began, lines))
}

func verbose() bool { return testing.Testing() && testing.Verbose() }

// chain are the scope and those of the tests that it is a part of, its own first.
func (c *scope) chain() (all []*scope) {
	for ; c != nil; c = c.parent {
		all = append(all, c)
	}
	return all
}

// fullName is the name by which the agent knows the target: the innermost test's labs come
// first, then the session's, then what the agent has.
func (c *scope) fullName(s *Session, target string) (string, error) {
	scopesMu.Lock()
	defer scopesMu.Unlock()
	for _, c := range c.chain() {
		var found []string
		for _, n := range c.labs {
			if full, ok := n.targetName(target); ok {
				found = append(found, full)
			}
		}
		switch {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			return "", fmt.Errorf("target %q is in several labs of %s: name one of them by Network.Target: %s", target, c.t.Name(), strings.Join(found, ", "))
		}
	}
	return s.fullName(target), nil
}

// beside is a fault with which a new one of the test combines: of its own, or of a test that it
// is a part of; empty for none.
func (c *scope) beside() string {
	scopesMu.Lock()
	defer scopesMu.Unlock()
	for _, c := range c.chain() {
		if n := len(c.active); n > 0 {
			return c.active[n-1].ID()
		}
	}
	return ""
}

// mine reports whether words name a fault of the test, or of one that it is a part of: nobody
// who waits for that ever sees its end.
func (c *scope) mine(words string) (id string, ok bool) {
	scopesMu.Lock()
	defer scopesMu.Unlock()
	for _, c := range c.chain() {
		for _, f := range c.active {
			if slices.Contains(strings.FieldsFunc(words, notID), f.ID()) {
				return f.ID(), true
			}
		}
	}
	return "", false
}

// notID reports whether r can stand in no fault's id.
func notID(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }

func (c *scope) addLab(n *Network) {
	scopesMu.Lock()
	defer scopesMu.Unlock()
	c.labs = append(c.labs, n)
}

func (c *scope) removeLab(n *Network) {
	scopesMu.Lock()
	defer scopesMu.Unlock()
	c.labs = slices.DeleteFunc(c.labs, func(o *Network) bool { return o == n })
}

func (c *scope) addFault(f *Fault) {
	scopesMu.Lock()
	defer scopesMu.Unlock()
	c.active = append(c.active, f)
	for _, c := range c.chain() {
		c.ids[f.ID()] = true
	}
}

// aim is called before a fault is made at that target.
func (c *scope) aim(target string) {
	scopesMu.Lock()
	defer scopesMu.Unlock()
	for _, c := range c.chain() {
		c.aimed[target] = true
	}
}

// has reports whether the test, or a part of it, has aimed a fault at that target, or one of
// its labs has it.
func (c *scope) has(target string) bool {
	scopesMu.Lock()
	defer scopesMu.Unlock()
	if c.aimed[target] {
		return true
	}
	for _, c := range c.chain() {
		for _, n := range c.labs {
			if full, ok := n.targetName(target); ok && full == target {
				return true
			}
		}
	}
	return false
}

// owns reports whether the fault was made by the test, or a part of it.
func (c *scope) owns(id string) bool {
	scopesMu.Lock()
	defer scopesMu.Unlock()
	return c.ids[id]
}

func (c *scope) removeFault(f *Fault) {
	scopesMu.Lock()
	defer scopesMu.Unlock()
	c.active = slices.DeleteFunc(c.active, func(o *Fault) bool { return o == f })
}

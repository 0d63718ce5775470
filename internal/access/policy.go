package access

import (
	"errors"
	"fmt"
	"os/user"
	"path"
	"slices"
	"strconv"
	"strings"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// Peer is who calls: a process on the unix socket, or a client with a certificate.
type Peer struct {
	// UID and GIDs, the supplementary groups among them, are of a peer on the unix socket.
	UID  uint32
	GIDs []uint32
	// Certificate says that the peer came by TLS; UID and GIDs mean nothing then. The
	// certificate's subject has CommonName, and its subject alternative names have URIs.
	Certificate bool
	CommonName  string
	URIs        []string
	// Owner says who that is, for people: "uid 0 (root)".
	Owner string
}

func (p Peer) root() bool { return !p.Certificate && p.UID == 0 }

func (p Peer) in(groups []uint32) bool {
	return slices.ContainsFunc(groups, func(g uint32) bool { return slices.Contains(p.GIDs, g) })
}

// isURI reports whether a rule's word is a URI. A common name that looks like one is none: a
// CA that checks URIs may take any common name.
func isURI(word string) bool { return strings.Contains(word, "://") }

// is reports whether a certificate has what a rule's word says.
func (p Peer) is(word string) bool {
	if isURI(word) {
		return slices.Contains(p.URIs, word)
	}
	return p.CommonName != "" && p.CommonName == word
}

// word is what a rule can call the peer with a certificate; NAME where it has nothing.
func (p Peer) word() string {
	for _, w := range append([]string{p.CommonName}, p.URIs...) {
		if p.is(w) {
			return w
		}
	}
	return "NAME"
}

// Policy is a set of rules. Without any, who may open the unix socket (Members says who that
// is) may do all, and a peer with a certificate nothing; with some, root may do all and everybody else what
// a rule gives. It is safe for concurrent use: nothing changes it.
type Policy struct {
	rules []resolved
	// members, when it is set, is the group in which a peer has to be to be who may open the
	// socket.
	members *Group
}

// Group is a group of this host. Without Exists it has no members: this host lacks it.
type Group struct {
	Name   string
	GID    uint32
	Exists bool
}

func (g Group) has(p Peer) bool { return g.Exists && slices.Contains(p.GIDs, g.GID) }

// Members returns p for a socket that everybody can open: without rules only root and
// the members of the group may do something then.
func (p *Policy) Members(g Group) *Policy { return &Policy{rules: p.rules, members: &g} }

// resolved is a rule with the numbers of its users and groups.
type resolved struct {
	Rule
	users, groups []uint32
	anybody       bool
}

// New makes a Policy. The error names each user and group that this host does not know
// as a *qdisc.FieldError with its path, and what Validate refuses.
func New(rules []Rule) (*Policy, error) {
	if err := Validate(rules); err != nil {
		return nil, err
	}
	p := &Policy{}
	var errs []error
	for i, r := range rules {
		out := resolved{Rule: r}
		for _, u := range r.Users {
			if u == Anything {
				out.anybody = true
				continue
			}
			id, err := number(fmt.Sprintf("allow[%d].users", i), u, "user", userID)
			out.users, errs = append(out.users, id), append(errs, err)
		}
		for _, g := range r.Groups {
			id, err := number(fmt.Sprintf("allow[%d].groups", i), g, "group", groupID)
			out.groups, errs = append(out.groups, id), append(errs, err)
		}
		p.rules = append(p.rules, out)
	}
	return p, errors.Join(errs...)
}

func userID(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}

func groupID(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", err
	}
	return g.Gid, nil
}

// number is the number that name is, or has on this host.
func number(field, name, kind string, lookup func(string) (string, error)) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	text, err := lookup(name)
	if err == nil {
		var n uint64
		if n, err = strconv.ParseUint(text, 10, 32); err == nil {
			return uint32(n), nil
		}
	}
	return 0, &qdisc.FieldError{Field: field, Value: name, Want: fmt.Sprintf("a %s of this host, or its number", kind)}
}

// names reports whether the rule is about the peer.
func (r resolved) names(p Peer) bool {
	if p.Certificate {
		return slices.ContainsFunc(r.Certificates, func(c string) bool { return c == Anything || p.is(c) })
	}
	return r.anybody || slices.Contains(r.users, p.UID) || p.in(r.groups)
}

// covers reports whether the rule gives the verb on the target; empty is any that it has.
func (r Rule) covers(v Verb, target string) bool {
	if !slices.Contains(r.Verbs, v) && (v == Exec || !slices.Contains(r.Verbs, All)) {
		return false
	}
	return target == "" || slices.ContainsFunc(r.Targets, func(pattern string) bool {
		return pattern == Anything || matches(pattern, target)
	})
}

// matches keeps kinds and names apart: a pattern of names is about names. Of a device's
// pattern each side of the '@' is matched by itself, and without one it is about the agent's
// own namespace; "*" there is every namespace with a name, the own among them.
func matches(pattern, target string) bool {
	if target == Unknown {
		return false
	}
	kind, name := cutKind(target)
	wanted, glob := cutKind(pattern)
	if kind != wanted {
		return false
	}
	if !slices.Contains(inNamespace, kind) {
		return match(glob, name)
	}
	device, namespace, _ := strings.Cut(name, "@") // no device has one in its name
	deviceGlob, namespaceGlob, _ := strings.Cut(glob, "@")
	return match(deviceGlob, device) && match(namespaceGlob, namespace)
}

func match(glob, name string) bool {
	ok, err := path.Match(glob, name)
	return ok && err == nil
}

// Unrestricted reports whether the peer may do everything.
func (p *Policy) Unrestricted(peer Peer) bool {
	return peer.root() || len(p.rules) == 0 && !peer.Certificate && (p.members == nil || p.members.has(peer))
}

// Known reports whether the peer may do anything at all.
func (p *Policy) Known(peer Peer) bool {
	return p.Unrestricted(peer) || slices.ContainsFunc(p.rules, func(r resolved) bool { return r.names(peer) })
}

// Allow returns nil when the peer may do v on the target: a target's name, or Device and
// a selector's name; empty where the verb has none, or for whether there is any at all.
// The error is a fault.ErrDenied that names peer, verb, target and the rules that the
// peer has.
func (p *Policy) Allow(peer Peer, v Verb, target string) error {
	if p.Unrestricted(peer) {
		return nil
	}
	var has []string
	for i, r := range p.rules {
		if !r.names(peer) {
			continue
		}
		if r.covers(v, target) {
			return nil
		}
		has = append(has, fmt.Sprintf("allow[%d] gives %s", i, r))
	}
	on := ""
	if target != "" {
		on = " on " + target
	}
	why, hint := strings.Join(has, "; "), wanted(peer, v, target)
	switch {
	case len(has) == 0 && len(p.rules) == 0 && !peer.Certificate:
		why, hint = p.members.lacks(peer)
	case len(has) == 0:
		why = "no rule of the agent's configuration names it"
	}
	return fault.WithHint(fmt.Errorf("%w: %s may not %s%s: %s", fault.ErrDenied, peer.Owner, v, on, why), hint)
}

// lacks says why the peer is no member, and what would make it one. A rule would be the wrong
// advice: the first one shuts the group out.
func (g Group) lacks(p Peer) (why, hint string) {
	name := "USER"
	if u, err := user.LookupId(strconv.FormatUint(uint64(p.UID), 10)); err == nil {
		name = u.Username
	}
	join := fmt.Sprintf("usermod -aG %s %s", g.Name, name)
	if !g.Exists {
		return fmt.Sprintf("only root may, since this host has no group %s", g.Name),
			fmt.Sprintf("'sudo groupadd --system %s && sudo %s' makes the group with that user in it; then start netemd anew, and log in anew", g.Name, join)
	}
	return fmt.Sprintf("it is not in the group %s, which beside root alone may", g.Name),
		fmt.Sprintf("'sudo %s' puts that user into it, from the next login on", join)
}

// wanted is a rule that would allow it, as the configuration has it.
func wanted(peer Peer, v Verb, target string) string {
	who := fmt.Sprintf("users: [%q]", strconv.FormatUint(uint64(peer.UID), 10))
	if peer.Certificate {
		who = fmt.Sprintf("certificates: [%q]", peer.word())
	}
	targets := ""
	if slices.Contains(targeted, v) {
		switch target {
		case "":
			target = "NAME"
		case Unknown:
			target = Anything
		}
		targets = fmt.Sprintf(", targets: [%q]", target)
	}
	return fmt.Sprintf("this line below 'allow:' in the agent's configuration would allow it: - {%s, verbs: [%s]%s}", who, v, targets)
}

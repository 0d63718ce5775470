// Package access decides which peer of the agent may do what to which target, by the
// rules of the configuration.
package access

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"netemd/qdisc"
)

// Verb is what a call does, as a rule names it.
type Verb string

// The verbs. List is every call that only reads; All stands for each of them but Exec,
// which has a peer with a certificate run programs on this host: it is given by name.
const (
	Apply   Verb = "apply"
	Change  Verb = "change"
	Renew   Verb = "renew"
	Clear   Verb = "clear"
	List    Verb = "list"
	Watch   Verb = "watch"
	Verify  Verb = "verify"
	Packets Verb = "packets"
	Probe   Verb = "probe"
	Lab     Verb = "lab"
	Exec    Verb = "exec"
	Target  Verb = "target"
	All     Verb = "*"
)

// verbs in the order in which they are told.
var verbs = []Verb{Apply, Change, Renew, Clear, List, Watch, Verify, Packets, Probe, Lab, Exec, Target}

// targeted are the verbs that act on one target, so that a rule with them must name some.
var targeted = []Verb{Apply, Change, Renew, Clear, Verify, Packets, Probe, Lab, Exec, Target, All}

// Anything is the word of a rule for every user, certificate or target.
const Anything = "*"

// Device begins a target of a rule that is a device by its selector: "dev:v0" in the agent's
// own namespace, "dev:v0@blue" in the named namespace blue. Both names are patterns of their
// own: "dev:v*" is about the agent's own namespace alone, "dev:*@*" about all of all.
const Device = "dev:"

// kinds begin targets of rules that are no names but what a target stands for, as in
// "container:web": of container, pid, cgroup and unit one pattern follows, of the others one on
// each side of an '@', as for a Device. A namespace that has no name is a path there, which
// "*" does not cover: "dev:*@/proc/*/ns/net" does.
var kinds = []string{Device, "container:", "pid:", "netns:", "host:", "cgroup:", "unit:", "address_in:", "toxiproxy:"}

// inNamespace are those with an '@' and a namespace behind them; of a toxiproxy it is the
// address of its API.
var inNamespace = []string{Device, "host:", "address_in:", "toxiproxy:"}

// cutKind splits a target, or a pattern of them; the kind of a name is empty.
func cutKind(s string) (kind, rest string) {
	for _, k := range kinds {
		if rest, ok := strings.CutPrefix(s, k); ok {
			return k, rest
		}
	}
	return "", s
}

// Unknown is the target of a call of which nobody can say any more what it is about, as of
// a fault that has ended: only "*" covers it.
const Unknown = "what is no longer known"

// Limits of a rule, against configurations that nobody could read.
const (
	// MaxRules is how many rules there may be.
	MaxRules = 256
	// maxWords bounds each list of a rule, and maxWord the bytes of a word.
	maxWords = 256
	maxWord  = 256
)

// Rule allows peers, those of Users, Groups or Certificates, each of Verbs on each of
// Targets.
type Rule struct {
	// Users and Groups are of peers on the unix socket: names, or numbers in quotes; a
	// peer is in its supplementary groups, too. User "*" is everybody who may open it.
	Users  []string `yaml:"users,omitempty"`
	Groups []string `yaml:"groups,omitempty"`
	// Certificates are of TLS peers: a word with "://" is a URI among the subject alternative
	// names, any other the subject common name; "*" is every one that the CA signed.
	Certificates []string `yaml:"certificates,omitempty"`
	Verbs        []Verb   `yaml:"verbs"`
	// Targets are patterns as of path.Match over target names (and, for the verb lab, lab
	// names), with Device or another kind before them over devices, containers and so on; "*" is everything. They
	// may be left out where no verb acts on one: list and watch show everything.
	Targets []string `yaml:"targets,omitempty"`
}

// String says what the rule gives: "verbs list, watch; targets *".
func (r Rule) String() string {
	words := make([]string, len(r.Verbs))
	for i, v := range r.Verbs {
		words[i] = string(v)
	}
	s := "verbs " + strings.Join(words, ", ")
	if len(r.Targets) > 0 {
		s += "; targets " + strings.Join(r.Targets, ", ")
	}
	return s
}

// Validate returns everything that is wrong with rules, each as a *qdisc.FieldError with
// its path, such as "allow[1].verbs". It does not ask who exists: New does.
func Validate(rules []Rule) error {
	var errs []error
	refuse := func(field, value, want string) {
		errs = append(errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
	}
	if len(rules) > MaxRules {
		refuse("allow", "", fmt.Sprintf("at most %d rules, not %d", MaxRules, len(rules)))
		return errors.Join(errs...)
	}
	for i, r := range rules {
		at := fmt.Sprintf("allow[%d]", i)
		if len(r.Users)+len(r.Groups)+len(r.Certificates) == 0 {
			refuse(at, "", "users, groups or certificates: whom it allows something")
		}
		for _, l := range []struct {
			name  string
			words []string
		}{{"users", r.Users}, {"groups", r.Groups}, {"certificates", r.Certificates}, {"targets", r.Targets}} {
			errs = append(errs, checkWords(at+"."+l.name, l.words)...)
		}
		switch {
		case len(r.Verbs) == 0:
			refuse(at+".verbs", "", "at least one of "+Known())
		case len(r.Targets) == 0 && slices.ContainsFunc(r.Verbs, func(v Verb) bool { return slices.Contains(targeted, v) }):
			refuse(at+".targets", "", `at least one target for these verbs: a pattern of names, "dev:NAME", or "*"`)
		}
		for _, v := range r.Verbs {
			if v != All && !slices.Contains(verbs, v) {
				refuse(at+".verbs", string(v), Known())
			}
		}
		for _, t := range r.Targets {
			if !isPattern(t) {
				refuse(at+".targets", t, `a pattern of names, such as "pg*", "dev:NAME", "dev:NAME@NAMESPACE", "container:NAME" or another kind, or "*"`)
			}
		}
	}
	return errors.Join(errs...)
}

// isPattern reports whether t can match anything; a device has a name, and a namespace has
// one where there is an '@'.
func isPattern(t string) bool {
	kind, rest := cutKind(t)
	names := []string{rest}
	if slices.Contains(inNamespace, kind) {
		names = strings.SplitN(rest, "@", 2)
	}
	return !slices.ContainsFunc(names, func(n string) bool {
		_, err := path.Match(n, "")
		return n == "" || err != nil
	})
}

func checkWords(field string, words []string) []error {
	if len(words) > maxWords {
		return []error{&qdisc.FieldError{Field: field, Want: fmt.Sprintf("at most %d, not %d", maxWords, len(words))}}
	}
	var errs []error
	for _, w := range words {
		if w == "" || len(w) > maxWord || strings.ContainsFunc(w, func(r rune) bool { return r < ' ' }) {
			errs = append(errs, &qdisc.FieldError{Field: field, Value: w, Want: fmt.Sprintf("a name of 1 to %d bytes without control characters", maxWord)})
		}
	}
	return errs
}

// Known are the verbs in words, for errors.
func Known() string {
	var words []string
	for _, v := range verbs {
		words = append(words, string(v))
	}
	return strings.Join(words, ", ") + ` or "*"`
}

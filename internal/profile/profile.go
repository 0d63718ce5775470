// Package profile has impairments with a name: what a kind of link does to packets, each
// number with the source that it was taken from.
//
// A profile is about an access link, which has two directions that differ. Unless it is said
// otherwise the client's link is meant, and the target is a server far behind it: the packets
// to the target pass the uplink, those from it the downlink.
package profile

import (
	"strings"
	"time"

	"netemd/qdisc"
)

// Profile is an impairment with a name.
type Profile struct {
	// Name is how users ask for it: letters, digits, '-', '_' and '.', at most 64.
	Name string
	// Summary says in a few words what it is.
	Summary string
	// Uplink is what packets meet that the side at the link sends, Downlink those that it
	// gets. A Delay is one way.
	Uplink, Downlink qdisc.Netem
	// Sources are where the numbers come from; those of a user's own may be empty.
	Sources []Source
}

// Source is where numbers of a profile come from.
type Source struct {
	Title, URL string
	// Year is that of the publication, or "undated".
	Year string
	// Says is what was taken from it, and how it was reckoned.
	Says string
}

// Symmetric reports whether both directions are the same.
func (p Profile) Symmetric() bool { return p.Uplink == p.Downlink }

// Toward are the impairments of the packets to a target and from it, where the link is the
// client's; with ofTarget the target itself is behind the link.
func (p Profile) Toward(ofTarget bool) (to, from qdisc.Netem) {
	if ofTarget {
		return p.Downlink, p.Uplink
	}
	return p.Uplink, p.Downlink
}

// Find returns the built-in profile of that name.
func Find(name string) (Profile, bool) {
	for _, p := range Builtins() {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

// Names are those of the built-in profiles, in the order of Builtins.
func Names() []string {
	var names []string
	for _, p := range Builtins() {
		names = append(names, p.Name)
	}
	return names
}

// ValidName reports whether name can be a profile's: no path, so that a name is never taken
// for a file.
func ValidName(name string) bool {
	if name == "" || len(name) > 64 || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		return false
	}
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return strings.Trim(name, allowed) == "" // what has another one in its middle has it left over
}

// leastQueue is what a slow link has room for all the same, in packets: what a TCP sends at
// once in the beginning (RFC 6928).
const leastQueue = 10

// link is an impairment that a source gives as a rate and a round trip, with a queue before
// the rate.
func link(bitPerSecond uint64, roundTrip, queue time.Duration) qdisc.Netem {
	n := qdisc.Netem{Delay: roundTrip / 2, Rate: qdisc.Rate(bitPerSecond / 8)}
	if n.Rate > 0 {
		n.Limit = max(leastQueue, qdisc.LimitForQueue(n.Rate, queue+n.Delay)) // what is delayed waits there, too
	}
	return n
}

package netem

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"netemd/internal/target"
)

// record is what an undo needs to know, in the alias of each ifb of ours: the
// kernel keeps it exactly as long as what it describes.
type record struct {
	// state is the mark of the agents that may undo it, by their Config.State.
	state string
	// device is the index of the device whose packets go to the ifb.
	device int
	hook   target.Hook
	// tcx says that the packets come by a tcx link, which needs no clsact.
	tcx bool
	// madeClsact says that the clsact of the device is ours to remove.
	madeClsact bool
}

// recordVersion begins an alias of ours.
const recordVersion = "netemd1"

// String is the alias: "netemd1 state=/run/netemd dev=7 hook=egress clsact=new", or
// "by=tcx" at the end.
func (r record) String() string {
	way := "clsact=found"
	switch {
	case r.tcx:
		way = "by=tcx"
	case r.madeClsact:
		way = "clsact=new"
	}
	return fmt.Sprintf("%s state=%s dev=%d hook=%s %s", recordVersion, r.state, r.device, r.hook, way)
}

// filterText is the name of a filter of ours, which says by itself whose it is.
func filterText(state, ifb string) string {
	return fmt.Sprintf("%s state=%s ifb=%s", recordVersion, state, ifb)
}

// filterState is the mark in the name of a filter of ours.
func filterState(name string) string {
	words := strings.Fields(name)
	if len(words) < 2 || words[0] != recordVersion {
		return ""
	}
	state, _ := strings.CutPrefix(words[1], "state=")
	return state
}

// parseRecord reads an alias; ok is false for one that is not ours.
func parseRecord(alias string) (r record, ok bool) {
	words := strings.Fields(alias)
	if len(words) == 0 || words[0] != recordVersion {
		return record{}, false
	}
	fields := map[string]string{}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		fields[key] = value
	}
	device, err := strconv.Atoi(fields["dev"])
	if err != nil || device <= 0 || fields["state"] == "" {
		return record{}, false
	}
	r = record{state: fields["state"], device: device, hook: target.Hook(fields["hook"]), tcx: fields["by"] == "tcx"}
	r.madeClsact = !r.tcx && fields["clsact"] == "new"
	return r, r.hook == target.Egress || r.hook == target.Ingress
}

// maxState keeps an alias within the kernel's 255 bytes.
const maxState = 128

// mark is the state as it stands in aliases: itself where that is one short word,
// else a hash.
func mark(state string) string {
	plain := len(state) <= maxState && state != "" && !strings.ContainsFunc(state, func(r rune) bool {
		return r <= ' ' || r >= 0x7f
	})
	if plain {
		return state
	}
	return "sha256:" + digest(state)[:16]
}

func digest(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:])
}

// namePrefix begins the name of every device of ours. 4 digits for the state follow,
// which tell whose it is in the moment before it has an alias, and 7 for the place.
const namePrefix = "ntm"

func stateName(mark string) string { return namePrefix + digest(mark)[:4] }

// ifbName is the name of a place's ifb: the same each time, at most 15 bytes. try
// counts on where it is taken.
func ifbName(mark string, p target.Place, try int) string {
	return stateName(mark) + digest(p.Key(), strconv.Itoa(try))[:7]
}

// ours reports whether a device's name is that of an ifb made under mark.
func ourName(name, mark string) bool {
	place, ok := strings.CutPrefix(name, stateName(mark))
	return ok && len(place) == 7 && strings.Trim(place, "0123456789abcdef") == ""
}

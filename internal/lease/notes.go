package lease

import (
	"fmt"
	"slices"
	"strings"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// notes are the warnings that come and go while a fault is held.
type notes struct {
	places                                  []string
	offload, lookup, repair, ending, within string
	// away is when it was not in force, and has been reattached since.
	away string
}

// noter is an engine that knows what a user should know of where a fault sits.
type noter interface {
	Notes(p target.Place) []string
}

// notePlaces asks the engine. The caller holds the lane, not the lock.
func (m *Manager) notePlaces(h *held) {
	e, ok := able[noter](m.cfg.Engines[h.fault.Engine])
	if !ok {
		return
	}
	var all []string
	for _, p := range h.places() {
		all = append(all, e.Notes(p)...)
	}
	m.note(h, func(n *notes) { n.places = all })
}

// warnings are everything that the user should know about the fault.
func (h *held) warnings() []string {
	var w []string
	if h.isPacket() {
		if h.fault.Spec.Content != nil {
			w = h.contentWarnings()
		} else {
			w = h.packetWarnings()
		}
		if h.nowhere() {
			w = slices.Clone(w)
		} else if p := h.slots[0].place; h.fault.Engine == fault.Netem && p.Owned && !p.Match.Whole() {
			w = append(w, fmt.Sprintf("netem on the lab's wire impairs every packet on that link, not only those of %s", h.fault.Spec.TargetName()))
		}
		if s := superPackets(h.fault); s != "" {
			w = append(w, s)
		}
	}
	w = append(w, fault.ToxicWarnings(h.fault.Spec.Toxics, h.target.Toxiproxy != nil && h.target.Toxiproxy.Name != "")...)
	w = append(w, h.notes.places...)
	for _, n := range []string{h.notes.within, h.notes.offload, h.notes.lookup, h.notes.away, h.notes.repair, h.notes.ending} {
		if n != "" {
			w = append(w, n)
		}
	}
	return w
}

// packetWarnings are those of the impairments of all directions, and of all steps.
func (h *held) packetWarnings() []string {
	w := h.fault.Spec.Cover(0).Warnings()
	if !h.fault.Spec.Asymmetric() {
		return w
	}
	for _, back := range h.fault.Spec.Cover(1).Warnings() {
		if !slices.Contains(w, back) {
			w = append(w, "from the target: "+back)
		}
	}
	return w
}

// note sets one of h's notes. The caller holds the lane, not the lock.
func (m *Manager) note(h *held, set func(*notes)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	set(&h.notes)
	h.fault.Warnings = h.warnings()
}

// hitsSuperPackets names what of the packet fault does something else to a packet that is
// several on the wire than to each of these; empty for nothing.
func hitsSuperPackets(spec fault.Spec) string {
	if r := spec.Content; r != nil {
		switch r.Kind {
		case content.Data, content.Every, content.Match, content.Retransmit:
			return r.Action()
		}
		return ""
	}
	for index := range 2 {
		if what := cutsSuperPackets(spec.Cover(index)); what != "" {
			return what
		}
	}
	return ""
}

// cutsSuperPackets is hitsSuperPackets of an impairment.
func cutsSuperPackets(n qdisc.Netem) string {
	switch {
	case n.Loss != 0 || n.LossState != qdisc.LossState{} || n.GilbertElliott != qdisc.GilbertElliott{}:
		return "loss"
	case n.Reorder != 0:
		return "reorder"
	case n.Rate != 0:
		return "rate"
	}
	return ""
}

// tcp is the IP protocol whose packets may be several on the wire.
const tcp = 6

// superPackets warns that the fault acts on packets that are several on the wire.
func superPackets(f fault.Fault) string {
	what := hitsSuperPackets(f.Spec)
	if s := f.Spec.Selector; what == "" || s != nil && s.Protocol != 0 && s.Protocol != tcp {
		return ""
	}
	for _, o := range f.Offloads {
		var on []string
		for _, feature := range o.Before {
			if strings.HasPrefix(feature, "tx-") && strings.HasSuffix(feature, "-segmentation") && !slices.Contains(o.Off, feature) {
				on = append(on, feature)
			}
		}
		if len(on) > 0 {
			return fmt.Sprintf("%s may act on up to 64 KB of TCP at once, since %s has segmentation offload on (%s); --offload off cuts it into packets while the fault lasts",
				what, where(o), fault.FeatureNames(on))
		}
	}
	return ""
}

func where(o fault.Offload) string {
	if o.Namespace == "" {
		return o.Device
	}
	return o.Device + " in netns " + o.Namespace
}

package lab

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"netemd/qdisc"
)

// mistakes gathers what is wrong with a definition, all of it *qdisc.FieldErrors.
type mistakes []error

// refuse says what form the field's value should have.
func (m *mistakes) refuse(field, value, want string) {
	*m = append(*m, &qdisc.FieldError{Field: field, Value: value, Want: want})
}

// say says what is wrong with a value whose form is right, and what would be right there.
func (m *mistakes) say(field, value, why, want string) {
	*m = append(*m, &qdisc.FieldError{Field: field, Value: value, Why: why, Want: want})
}

func (m mistakes) err() error { return errors.Join(m...) }

// linkPath is the field of link i.
func linkPath(i int) string { return fmt.Sprintf("links[%d]", i) }

// subnet refuses a network that nodes can have no addresses in.
func (m *mistakes) subnet(s subnet) bool {
	p := s.prefix
	a := p.Addr()
	switch {
	case a.Is4In6() || a.BitLen()-p.Bits() < 2:
		m.refuse(s.path, p.String(), "a network of at least 4 addresses, such as 10.77.0.0/24")
	case p != p.Masked():
		m.refuse(s.path, p.String(), "a network's own address, such as "+p.Masked().String())
	case a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast():
		m.refuse(s.path, p.String(), "a network that hosts can have, such as 10.77.0.0/24 or fd00:77::/64")
	default:
		return true
	}
	return false
}

// overlaps refuses networks that overlap with another one, and returns all of IPv4 in
// order.
func (m *mistakes) overlaps(given []subnet) []netip.Prefix {
	sorted := slices.Clone(given)
	slices.SortStableFunc(sorted, func(a, b subnet) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
	})
	var four []netip.Prefix
	widest := subnet{}
	for _, s := range sorted {
		if widest.prefix.IsValid() && widest.prefix.Overlaps(s.prefix) {
			m.say(s.path, s.prefix.String(), fmt.Sprintf("overlaps with %v of %s", widest.prefix, widest.path), "a network of its own, or the key left out")
			continue
		}
		widest = s
		if s.prefix.Addr().Is4() {
			four = append(four, s.prefix)
		}
	}
	return four
}

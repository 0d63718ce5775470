package strictyaml

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"netemd/qdisc"
)

// Wanter is implemented by types (values, not pointers) that say their form in the words
// that follow "want": "a name of at most 15 letters".
type Wanter interface{ WantYAML() string }

// form is what the value at a slot may be, in the words that follow "want".
func (d *Document) form(s slot, t reflect.Type) string {
	if f, ok := d.said(s); ok {
		return f
	}
	return formOf(t)
}

// said is the form that the format or the field has for a slot. What is said of a list of
// scalars is said of its elements.
func (d *Document) said(s slot) (string, bool) {
	for pattern := s.pattern; ; {
		if f, ok := d.format.Want[pattern]; ok {
			return f, true
		}
		short, list := strings.CutSuffix(pattern, "[]")
		if !list {
			break
		}
		pattern = short
	}
	return s.want, s.want != ""
}

// formOf is what can be said of a type alone.
func formOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	v := reflect.New(t)
	if w, ok := reflect.TypeAssert[Wanter](v.Elem()); ok {
		return w.WantYAML()
	}
	if u, ok := units[t]; ok {
		return u.want
	}
	switch kindOf(t) {
	case asNamed:
		e := v.Interface().(named).element()
		return "NAME: VALUE below it, the value " + formOf(e) + ", or the key left out"
	case asKeys, asEither:
		return "keys below it (" + strings.Join(Keys(t), ", ") + "), or the key left out"
	case asList:
		what := "a list; of each element: "
		if _, ok := reflect.TypeAssert[severalValues](v.Elem()); ok {
			what = "one or a list of: "
		}
		return what + formOf(t.Elem())
	}
	switch k := t.Kind(); k {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return fmt.Sprintf("a number from 0 to %d", uint64(1)<<t.Bits()-1)
	case reflect.Uint, reflect.Uint64:
		return "a whole number, not below 0"
	}
	return "a text of its kind"
}

// unit is a type of others that is given as text with its unit.
type unit struct {
	parse  func(string) (any, error)
	format func(any) string
	want   string
}

func unitOf[T any](parse func(string) (T, error), format func(T) string, want string) unit {
	return unit{
		parse: func(s string) (any, error) { return parse(s) }, format: func(v any) string { return format(v.(T)) }, want: want,
	}
}

// units are the types that cannot unmarshal themselves, or whose form can be said better
// than they say it.
var units = map[reflect.Type]unit{
	reflect.TypeFor[time.Duration](): unitOf(qdisc.ParseDuration, qdisc.FormatDuration, "a time with its unit, such as 10ms"),
	reflect.TypeFor[qdisc.Percent](): unitOf(qdisc.ParsePercent, qdisc.Percent.String, "a percentage from 0% to 100%, such as 20%"),
	reflect.TypeFor[qdisc.Rate]():    unitOf(qdisc.ParseRate, qdisc.Rate.String, "a rate with its unit, such as 10mbit"),
	reflect.TypeFor[qdisc.Bytes]():   unitOf(qdisc.ParseBytes, qdisc.Bytes.String, "an amount with its unit, such as 64KiB"),
	reflect.TypeFor[qdisc.Distribution](): unitOf(qdisc.ParseDistribution, func(d qdisc.Distribution) string { return string(d) },
		"a distribution: normal, pareto, paretonormal or uniform"),
	reflect.TypeFor[qdisc.LossState]():      unitOf(qdisc.ParseLossState, qdisc.LossState.String, "shares with commas between, such as 1%,10%,5%,50%,0.1%"),
	reflect.TypeFor[qdisc.GilbertElliott](): unitOf(qdisc.ParseGilbertElliott, qdisc.GilbertElliott.String, "shares with commas between, such as 1%,10%"),
	reflect.TypeFor[netip.Addr]():           unitOf(parseAddr, netip.Addr.String, "an IP address, such as 10.1.0.1 or fd00::1"),
	reflect.TypeFor[netip.Prefix]():         unitOf(parsePrefix, netip.Prefix.String, "a subnet as ADDRESS/BITS with the bits behind it zero, such as 10.1.0.0/24 or fd00:1::/64"),
	reflect.TypeFor[netip.AddrPort]():       unitOf(netip.ParseAddrPort, netip.AddrPort.String, "ADDRESS:PORT, such as 10.1.0.1:80"),
}

// parseAddr refuses zones, which are devices: none is named by an address here.
func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err == nil && a.Zone() != "" {
		return netip.Addr{}, &qdisc.FieldError{Value: s, Why: "has a zone"}
	}
	return a, err
}

// parsePrefix refuses 10.1.0.7/24, of which nobody knows whether the host or the net is meant.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err == nil && p != p.Masked() {
		return netip.Prefix{}, &qdisc.FieldError{Value: s, Why: "bits of the host are set, the subnet is " + p.Masked().String()}
	}
	return p, err
}

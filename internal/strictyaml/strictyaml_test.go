package strictyaml

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"netemd/qdisc"
)

// shop has a key of every kind.
type shop struct {
	Name   string          `yaml:"shop" strict:"required" want:"a name, such as corner"`
	Open   bool            `yaml:"open,omitempty"`
	Rooms  Named[room]     `yaml:"rooms,omitempty"`
	Labels Named[string]   `yaml:"labels,omitempty"`
	Ports  Several[uint16] `yaml:"ports,omitempty" want:"a port from 1 to 65535, or a list of them"`
	Wait   time.Duration   `yaml:"wait,omitempty"`
	Loss   *qdisc.Percent  `yaml:"loss,omitempty"`
	Net    netip.Prefix    `yaml:"net,omitempty"`
	Hosts  []netip.Addr    `yaml:"hosts,omitempty"`
	Script string          `yaml:"script,omitempty" strict:"block"`
	Args   []string        `yaml:"args,omitempty" strict:"empty"`
	Way    way2            `yaml:"way,omitempty"`
	Ways   Several[way2]   `yaml:"ways,omitempty"`
	Stocks []stock         `yaml:"stocks,omitempty"`
	Big    int64           `yaml:"big,omitempty"`
	Hidden string
	Inner  `yaml:",inline"`
}

type room struct {
	Size  int      `yaml:"size,omitempty"`
	Shelf *stock   `yaml:"shelf,omitempty"`
	Doors []string `yaml:"doors,omitempty"`
}

type stock struct {
	Of    string      `yaml:"of" strict:"required"`
	Count uint8       `yaml:"count,omitempty"`
	Rate  qdisc.Rate  `yaml:"rate,omitempty"`
	Most  qdisc.Bytes `yaml:"most,omitempty"`
}

type Inner struct {
	Cellar string `yaml:"cellar,omitempty"`
}

// way2 is "FROM-TO", or its keys.
type way2 struct {
	From string `yaml:"from,omitempty"`
	To   string `yaml:"to,omitempty"`
}

func (w *way2) TextOrKeys() {}
func (w *way2) UnmarshalText(text []byte) error {
	from, to, ok := strings.Cut(string(text), "-")
	if !ok {
		return &qdisc.FieldError{Value: string(text), Want: "FROM-TO, or the keys from and to"}
	}
	w.From, w.To = from, to
	return nil
}

const whole = `shop: corner
open: true
rooms:
  z: {}
  a: {size: 3, shelf: {of: x, count: 2, rate: 10mbit, most: 64KiB}, doors: [l, "r:80"]}
  "1": {}
labels: {net.ipv4.x: 3, b: "true"}
ports: 80
wait: 10ms
loss: 1%
net: 10.1.0.0/24
hosts: [10.1.0.1, "fd00::1"]
script: |
  one
  two
args: [a, ""]
way: here-there
ways: {from: a, to: b}
stocks:
  - of: y
  - {of: z, count: 255}
big: -9007199254740993
cellar: dark
`

func TestRead(t *testing.T) {
	loss := qdisc.Percent(1)
	want := shop{
		Name: "corner", Open: true,
		Rooms: Named[room]{
			{"z", room{}}, {"a", room{Size: 3, Shelf: &stock{Of: "x", Count: 2, Rate: 10e6 / 8, Most: 64 << 10}, Doors: []string{"l", "r:80"}}}, {"1", room{}},
		},
		Labels: Named[string]{{"net.ipv4.x", "3"}, {"b", "true"}},
		Ports:  Several[uint16]{80}, Wait: 10 * time.Millisecond, Loss: &loss, Net: netip.MustParsePrefix("10.1.0.0/24"),
		Hosts:  []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00::1")},
		Script: "one\ntwo\n", Args: []string{"a", ""}, Way: way2{"here", "there"}, Ways: Several[way2]{{"a", "b"}},
		Stocks: []stock{{Of: "y"}, {Of: "z", Count: 255}}, Big: -9007199254740993, Inner: Inner{"dark"},
	}
	var got shop
	doc := (&Format{}).Read("x.yaml", []byte(whole), &got)
	if err := doc.Err(); err != nil {
		t.Fatal(err)
	}
	compare := []cmp.Option{cmp.AllowUnexported(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}
	if diff := cmp.Diff(want, got, compare...); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for key, at := range map[string]Position{
		"rooms.a.shelf.count": {5, 31}, `labels."net.ipv4.x"`: {7, 10}, "hosts[1]": {12, 19}, "stocks[1].of": {21, 6}, "rooms.z": {4, 3},
		"rooms.a.doors[1].x": {5, 80}, "nothing": {}, Key("labels", "net.ipv4.x", "y"): {7, 10},
	} {
		if got := doc.At(key); got != at {
			t.Errorf("At(%s) = %v, want %v", key, got, at)
		}
	}
	text, err := Write(got)
	if err != nil {
		t.Fatal(err)
	}
	var again shop
	if err := (&Format{}).Read("", text, &again).Err(); err != nil || cmp.Diff(got, again, compare...) != "" {
		t.Errorf("%v %s\nof:\n%s", err, cmp.Diff(got, again, compare...), text)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                         `f:1:1: shop: is missing, want a name, such as corner`,
		"shop: a\nwait: 10":                        `f:2:1: wait: "10" is not valid, want a duration of 0s or more with its unit, such as 100ms, 1.5s or 10m`,
		"shop: a\nloss: 101%":                      `f:2:1: loss: "101%" is not valid, want a percentage from`,
		"shop: a\nnet: 10.1.0.7/24":                `f:2:1: net: "10.1.0.7/24" is not valid: bits of the host are set, the subnet is 10.1.0.0/24, want a subnet as ADDRESS/BITS`,
		"shop: a\nhosts: [x]":                      `f:2:9: hosts[0]: "x" is not valid, want an IP address, such as 10.1.0.1 or fd00::1`,
		"shop: a\nhosts: [fe80::1%x]":              `f:2:9: hosts[0]: "fe80::1%x" is not valid: has a zone`,
		"shop: a\nports: [1, 65536]":               `f:2:12: ports[1]: "65536" is not valid, want a port from 1 to 65535, or a list of them`,
		"shop: a\nports: x":                        `f:2:1: ports: "x" is not valid, want a port from`,
		"shop: a\nways: [a, {frm: b}]":             "f:2:8: ways[0]: \"a\" is not valid, want FROM-TO, or the keys from and to\nf:2:12: ways[1].frm: is an unknown key, want one of from, to",
		"shop: a\nway: []":                         `f:2:1: way: is empty, want keys below it (from, to), or the key left out`,
		"shop: a\nway: [a]":                        `f:2:1: way: is a list, want keys below it (from, to)`,
		"shop: a\nrooms: {a: 3}":                   `f:2:9: rooms.a: is "3" where a mapping stands, want keys below it (size, shelf, doors), or the key left out`,
		"shop: a\nrooms: {a: }":                    `f:2:9: rooms.a: is empty, want keys below it (size, shelf, doors), or the key left out`,
		"shop: a\nrooms: [a]":                      `f:2:1: rooms: is a list where a mapping stands, want NAME: VALUE below it, the value keys below it (size,`,
		"shop: a\nrooms: {}":                       `f:2:1: rooms: is empty, want NAME: VALUE`,
		"shop: a\nrooms:\n  a: {}\n  a: {}":        `f:4:3: rooms.a: is there already, at 3:3, want it once`,
		"shop: a\nrooms: {a.b: {sze: 1}}":          `f:2:15: rooms."a.b".sze: is an unknown key, want one of size`,
		"shop: a\nrooms: {~: {}}":                  `f:2:9: rooms.~: is no name, want 1 to 64 bytes of text`,
		"shop: a\nrooms: {'': {}}":                 `f:2:9: rooms."": is no name`,
		"shop: a\nrooms: {a: {shelf: {}}}":         `f:2:13: rooms.a.shelf: is empty, want keys below it (of, count, rate, most)`,
		"shop: a\nrooms: {a: {shelf: {count: 1}}}": `f:2:13: rooms.a.shelf.of: is missing, want a text`,
		"shop: a\nstocks: [{of: x, count: 256}]":   `f:2:18: stocks[0].count: "256" is not valid, want a number from 0 to 255`,
		"shop: a\nstocks: [{of: x, rate: 5}]":      `f:2:18: stocks[0].rate: "5" is not valid, want`,
		"shop: |\n  a\n":                           `f:1:1: shop: is a block of text, want a name, such as corner`,
		"shop: a\nbig: 9223372036854775808":        `f:2:1: big: "9223372036854775808" is not valid, want a whole number`,
		"shop: a\nHidden: x":                       `f:2:1: Hidden: is an unknown key, want one of shop, open,`,
		"shop: a\ninner: {cellar: x}":              `f:2:1: inner: is an unknown key`,
		"shop: a\nlabels: {a: [x]}":                `f:2:10: labels.a: is a list, want a text`,
		"shop: a\nscript: ''":                      `f:2:1: script: is empty, want a text`,
	} {
		var s shop
		err := (&Format{}).Read("f", []byte(text), &s).Err()
		if err == nil || !strings.HasPrefix(err.Error(), want) && "f: "+want != err.Error() {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}

// What a validation finds stands at its key, unless the key is refused already.
func TestCheck(t *testing.T) {
	var s shop
	doc := (&Format{Subject: "shop"}).Read("f", []byte("shop: a\nwait: 5\nrooms: {a: {}}"), &s)
	other := errors.New("other")
	rest := doc.Check(errors.Join(
		&qdisc.FieldError{Field: "wait", Value: "0s", Want: "more"},
		&qdisc.FieldError{Field: "rooms.a.size", Want: "a number from 1"},
		&qdisc.FieldError{Field: "rooms.a.doors", Value: "", Why: "lead nowhere"},
		&qdisc.FieldError{Field: "cellar", Value: "x", Want: "a cellar"}, other))
	want := `shop f: cellar: "x", its default, is not valid, want a cellar
shop f:2:1: wait: "5" is not valid, want a duration of 0s or more with its unit, such as 100ms, 1.5s or 10m
shop f:3:9: rooms.a.size: is missing, want a number from 1
shop f:3:9: rooms.a.doors: lead nowhere`
	if err := doc.Err(); err == nil || cmp.Diff(want, err.Error()) != "" || !errors.Is(rest, other) {
		t.Errorf("%v, rest %v, want\n%s", err, rest, want)
	}
}

// form is that of every line of every error.
var lineForm = regexp.MustCompile(`^(f|f:\d+:\d+): \S.*: .+\n?$`)

func FuzzRead(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("shop: a\nrooms: {b: {shelf: }}\nrooms: 3\n? x\n: y"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s shop
		if err := (&Format{}).Read("f", text, &s).Err(); err != nil {
			for line := range strings.Lines(err.Error()) {
				if !lineForm.MatchString(line) {
					t.Errorf("not of the form: %q", line)
				}
			}
			return
		}
		again, err := Write(s)
		if err != nil {
			t.Fatal(err)
		}
		var got shop
		err = (&Format{}).Read("f", again, &got).Err()
		if fmt.Sprintf("%+v", got) == fmt.Sprintf("%+v", s) && err == nil {
			return
		}
		if diff := cmp.Diff(s, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s\nof\n%s", err, diff, again)
		}
	})
}

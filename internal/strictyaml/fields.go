package strictyaml

import (
	"encoding"
	"reflect"
	"slices"
	"strings"
)

// rules are the words of the tag "strict".
type rules struct{ required, empty, block bool }

// field is a key of a struct.
type field struct {
	name  string
	index []int
	// omit leaves the key out of what is written where its value is the zero one.
	omit  bool
	want  string
	rules rules
}

// slot is where the field's value stands in the mapping at s.
func (f field) slot(s slot) slot {
	return slot{key: join(s.key, f.name), pattern: join(s.pattern, f.name), want: f.want, rules: f.rules}
}

type fields []field

func (fs fields) of(name string) (field, bool) {
	i := slices.IndexFunc(fs, func(f field) bool { return f.name == name })
	if i < 0 {
		return field{}, false
	}
	return fs[i], true
}

// fieldsOf are the keys of a struct, those of embedded ones in their place.
func fieldsOf(t reflect.Type) (out fields) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		words := strings.Split(options, ",")
		switch {
		case slices.Contains(words, "inline"):
			for _, below := range fieldsOf(f.Type) {
				below.index = append(slices.Clone(f.Index), below.index...)
				out = append(out, below)
			}
			continue
		case name == "" || name == "-":
			continue
		}
		strict := strings.Split(f.Tag.Get("strict"), ",")
		out = append(out, field{
			name: name, index: f.Index, omit: slices.Contains(words, "omitempty"), want: f.Tag.Get("want"),
			rules: rules{required: slices.Contains(strict, "required"), empty: slices.Contains(strict, "empty"), block: slices.Contains(strict, "block")},
		})
	}
	return out
}

// Keys are the keys of a mapping that is read into the struct t, in the order in which
// they are told.
func Keys(t reflect.Type) []string {
	var out []string
	for _, f := range fieldsOf(t) {
		out = append(out, f.name)
	}
	return out
}

// TextOrKeys is implemented by pointers to a struct that a file may give as one text
// (UnmarshalText) or as a mapping of its keys: "delay 10ms" or {delay: 10ms}. MarshalText
// of the value, where there is one, writes it as text; an empty text means as keys.
type TextOrKeys interface {
	encoding.TextUnmarshaler
	TextOrKeys()
}

// The ways in which a value is read.
type way int

const (
	asScalar way = iota
	asKeys
	asEither
	asList
	asNamed
)

// isText reports whether values of t are given as text, whatever they are made of.
func isText(t reflect.Type) bool {
	_, unit := units[t]
	return unit || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func kindOf(t reflect.Type) way {
	p := reflect.PointerTo(t)
	switch {
	case p.Implements(reflect.TypeFor[named]()):
		return asNamed
	case p.Implements(reflect.TypeFor[TextOrKeys]()):
		return asEither
	case isText(t):
		return asScalar
	case t.Kind() == reflect.Struct:
		return asKeys
	case t.Kind() == reflect.Slice:
		return asList
	}
	return asScalar
}

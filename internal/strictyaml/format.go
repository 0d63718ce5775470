// Package strictyaml reads YAML files of ours into structs: the agent's configuration, lab
// files, profiles, schedules. Nothing is guessed and nothing skipped: what is wrong with a
// file is said all at once, each with its line and column, what stands there, and the form
// that is allowed (Mistake).
//
// A file is described by the struct that it is read into. Its fields are the keys (the tag
// "yaml", as for other libraries; a field without one or with "-" is no key, and ",inline"
// takes the keys of an embedded struct for those of the outer one):
//
//	type file struct {
//		Name  string                       `yaml:"lab" strict:"required" want:"a name, such as shop"`
//		Nodes strictyaml.Named[node]       `yaml:"nodes,omitempty"` // a mapping: NAME: {keys of node}
//		Ports strictyaml.Several[uint16]   `yaml:"ports,omitempty"` // 80, or [80, 443]
//		Delay time.Duration                `yaml:"delay,omitempty"` // 10ms; without a unit refused
//		Loss  *qdisc.Percent               `yaml:"loss,omitempty"`  // nil where it is not said
//	}
//	var format = strictyaml.Format{}
//
//	var f file // with the defaults in it
//	doc := format.Read("shop.yaml", text, &f)
//	doc.Check(validate(f)) // *qdisc.FieldError become mistakes at their keys
//	if err := doc.Err(); err != nil {
//		return err // shop.yaml:3:10: nodes.web.forward: "yes" is not valid, want true or false
//	}
//
// Kinds of values: strings, true and false, numbers (each has one spelling), lists, nested
// structs, pointers to all of these, Named, Several, what implements
// encoding.TextUnmarshaler, and time.Duration and the units of package qdisc. A struct that
// implements TextOrKeys may be given as one text or as keys.
//
// The tag "strict" has words separated by commas: "required" (the key must be there where
// its mapping is), "empty" (an empty text, list or mapping is allowed), "block" (a block of text is, as
// `|` begins it). The tag "want" is the allowed form in the words that follow "want"; without
// one it is that of Format.Want, of the type (Wanter), or what the kind of the value says.
package strictyaml

import (
	"bytes"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// MaxSize is the largest file, in bytes.
const MaxSize = 1 << 20

// DefaultMaxLines is how many lines a file may have unless its Format says otherwise.
const DefaultMaxLines = 10_000

// Whole is the key of what is wrong with no key alone.
const Whole = "file"

// Format is what the files of one kind have in common beside their struct. The zero value
// is one without anything special. It is safe for concurrent use while nobody changes it.
type Format struct {
	// Subject begins the errors: "configuration /etc/x.yaml:1:2: ...". Empty: the path does.
	Subject string
	// Want are the allowed forms by key, in the words that follow "want". "a[].b" stands for b
	// in each element of the list a, "a.*.b" for that of each name of the Named a.
	Want map[string]string
	// Leading are the keys without which the others of their top-level section mean nothing,
	// by the section.
	Leading map[string]string
	// MaxLines bounds the file; 0 is DefaultMaxLines.
	MaxLines int
}

// Read sets into, which points to a struct, to what the text says: keys that it does not
// have keep their value. path is the file's, for the errors; empty where there is none. The
// result knows where each key stands, and all that is wrong. An empty text is no mistake,
// unless a key is required.
func (f *Format) Read(path string, text []byte, into any) *Document {
	d := &Document{format: f, path: path}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // which some editors put before UTF-8
	if m := f.plain(text); m != nil {
		return d.broken(m)
	}
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey()) // they are told as what they are
	if err != nil {
		return d.broken(syntax(err))
	}
	if m := simple(file); m != nil {
		return d.broken(m)
	}
	d.at = map[string]Position{}
	r := &reader{Document: d}
	v := reflect.ValueOf(into).Elem()
	if len(file.Docs) > 0 && !isEmpty(file.Docs[0].Body) {
		r.top(file.Docs[0].Body, v)
	} else {
		r.missing(slot{}, v)
	}
	d.locate(d.mistakes)
	return d
}

// None is the document of a file that there is not, in which nothing stands.
func (f *Format) None() *Document { return &Document{format: f} }

// top reads the whole file, and asks for what its sections mean nothing without.
func (r *reader) top(n ast.Node, v reflect.Value) {
	if _, ok := n.(ast.MapNode); !ok {
		at := begin(n)
		r.mistakes = append(r.mistakes, &Mistake{
			Line: at.Line, Column: at.Column, Key: Whole, Wrong: "is " + kind(n), Want: "keys: " + strings.Join(Keys(v.Type()), ", "),
		})
		return
	}
	r.mapping(slot{}, n, v)
	for section, leading := range r.format.Leading {
		key := join(section, leading)
		if r.Has(section) && !r.Has(key) && !r.refused(section) {
			r.refuse(key, "", "is missing", r.format.Want[key]+", or the key "+section+" left out")
		}
	}
}

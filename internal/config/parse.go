package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxSize is the largest configuration file, in bytes.
const MaxSize = 1 << 20

// What a file may look like before it is parsed: the parser takes time with the square of
// the keys, and memory with that of the depth. The largest sensible file is far below.
const (
	maxLines = 10_000
	maxLine  = 4096
	maxDepth = 32
)

// Parse reads a configuration over Default, and validates it; the error has a *Mistake for
// each thing that is wrong. Unknown, repeated and empty keys are refused, and so is what
// would make one file mean several: further documents, anchors, aliases and tags.
func Parse(text []byte) (Config, error) {
	c, _, mistakes := parse(text)
	if err := all(mistakes); err != nil {
		return Config{}, err
	}
	return c, nil
}

func parse(text []byte) (Config, places, []*Mistake) {
	c := Default()
	if m := plain(text); m != nil {
		return c, nil, []*Mistake{m}
	}
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey()) // they are told as what they are
	if err != nil {
		return c, nil, []*Mistake{syntax(err)}
	}
	if m := simple(file); m != nil {
		return c, nil, []*Mistake{m}
	}
	r := &reader{at: places{}}
	if len(file.Docs) > 0 && !isEmpty(file.Docs[0].Body) {
		r.top(file.Docs[0].Body, reflect.ValueOf(&c).Elem())
	}
	// What follows from a mistake is none.
	for _, m := range c.mistakes() {
		if !r.about(m.Key) {
			r.mistakes = append(r.mistakes, m)
		}
	}
	r.at.locate(r.mistakes)
	return c, r.at, r.mistakes
}

// top reads the whole file, and asks for what its sections mean nothing without.
func (r *reader) top(n ast.Node, v reflect.Value) {
	if _, ok := n.(ast.MapNode); !ok {
		at := begin(n)
		r.mistakes = append(r.mistakes, &Mistake{
			Line: at.line, Column: at.column, Key: whole, Wrong: "is " + kind(n), Want: "keys: " + strings.Join(keys(v.Type()), ", "),
		})
		return
	}
	r.mapping("", n, v)
	for _, section := range sections() {
		key := join(section, leading[section])
		_, there := r.at[section]
		if _, said := r.at[key]; there && !said && !r.refused(section) {
			r.refuse(key, "", "is missing", forms[key]+", or the key "+section+" left out")
		}
	}
}

// refused reports whether there is a mistake at the key itself.
func (r *reader) refused(key string) bool {
	for _, m := range r.mistakes {
		if m.Key == key {
			return true
		}
	}
	return false
}

// about reports whether there is a mistake at the key, above or below it.
func (r *reader) about(key string) bool {
	for _, m := range r.mistakes {
		if within(m.Key, key) || within(key, m.Key) {
			return true
		}
	}
	return false
}

func within(key, other string) bool {
	rest, ok := strings.CutPrefix(key, other)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// YAML is the configuration as a file that Parse reads back. Limits of a log that there is
// not are not in it.
func (c Config) YAML() ([]byte, error) {
	if c.Audit.Path == "" {
		c.Audit = Audit{}
	}
	return yaml.MarshalWithOptions(c, yaml.IndentSequence(true))
}

// whole is the key of what is wrong with no key alone.
const whole = "file"

// plain refuses what no configuration looks like. Brackets are counted wherever they
// stand: no sensible file has so many that are not closed.
func plain(text []byte) *Mistake {
	if len(text) > MaxSize {
		return &Mistake{Key: whole, Wrong: "is too large", Want: fmt.Sprintf("at most %d bytes", MaxSize)}
	}
	n, open := 0, 0
	for line := range bytes.Lines(text) {
		n++
		refuse := func(column int, wrong, want string) *Mistake {
			return &Mistake{Line: n, Column: column + 1, Key: whole, Wrong: wrong, Want: want}
		}
		deepest := max(bytes.Count(line, []byte("- ")), bytes.Count(line, []byte("? ")))
		for _, c := range line {
			switch c {
			case '[', '{':
				open++
				deepest = max(deepest, open)
			case ']', '}':
				open = max(0, open-1)
			}
		}
		switch nul := bytes.IndexByte(line, 0); {
		case n > maxLines:
			return refuse(0, "is too long", fmt.Sprintf("at most %d lines", maxLines))
		case len(line) > maxLine:
			return refuse(maxLine, "has a line that is too long", fmt.Sprintf("at most %d bytes in one", maxLine))
		case nul >= 0:
			return refuse(nul, "has a NUL byte", "text")
		case deepest > maxDepth:
			return refuse(0, "is nested too deep", fmt.Sprintf("at most %d levels", maxDepth))
		}
	}
	return nil
}

// simple refuses a file with several documents, anchors, aliases or tags; of a list with a
// tag the library makes a nil pointer.
func simple(file *ast.File) (refused *Mistake) {
	refuse := func(n ast.Node, wrong, want string) {
		if refused == nil {
			refused = &Mistake{Key: whole, Wrong: wrong, Want: want}
			refused.at(n.GetToken())
		}
	}
	for i, d := range file.Docs {
		if i > 0 && refused == nil {
			refused = &Mistake{Key: whole, Wrong: "has several documents", Want: "one"}
			refused.at(d.Start)
		}
		if d.Body == nil {
			continue
		}
		ast.Walk(visit(func(n ast.Node) {
			switch n.(type) {
			case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
				refuse(n, "has an anchor, alias or merged key", "each value where it is used; what begins with '*' or '&' stands in quotes")
			case *ast.TagNode:
				refuse(n, "has a tag", "none: what kind of value a key has is known; what begins with '!' stands in quotes")
			case *ast.DirectiveNode:
				refuse(n, "has a directive", "keys; what begins with '%' stands in quotes")
			}
		}), d.Body)
	}
	return refused
}

func (m *Mistake) at(t *token.Token) {
	if t != nil {
		m.Line, m.Column = t.Position.Line, t.Position.Column
	}
}

// visit is an ast.Visitor of every node.
type visit func(ast.Node)

func (v visit) Visit(n ast.Node) ast.Visitor { v(n); return v }

// syntax says an error of the library in one line.
func syntax(err error) *Mistake {
	m := &Mistake{Key: whole, Wrong: "is not YAML", Want: "KEY: VALUE in each line, with spaces and no tabs before it"}
	message := err.Error()
	if e, ok := errors.AsType[yaml.Error](err); ok {
		message = e.GetMessage()
		m.at(e.GetToken())
	}
	m.Wrong += ": " + strings.Join(strings.Fields(message), " ")
	return m
}

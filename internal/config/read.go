package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// reader fills a Config from the tree of a file. It does so itself, and not by the library's
// decoder, since that one stops at the first mistake, says it in the words of Go's types, and
// takes 1.5 for 1.
type reader struct {
	at       places
	mistakes []*Mistake
}

func (r *reader) refuse(key, value, wrong, want string) {
	r.mistakes = append(r.mistakes, &Mistake{Key: key, Value: value, Wrong: wrong, Want: want})
}

// read sets v, which is at key, to what n says.
func (r *reader) read(key string, n ast.Node, v reflect.Value) {
	if isEmpty(n) {
		r.refuse(key, "", "is empty", form(key, v.Type()))
		return
	}
	_, isText := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr())
	switch {
	case !isText && v.Kind() == reflect.Struct:
		r.mapping(key, n, v)
	case !isText && v.Kind() == reflect.Slice:
		r.list(key, n, v)
	default:
		r.scalar(key, n, v)
	}
}

func (r *reader) mapping(key string, n ast.Node, v reflect.Value) {
	m, ok := n.(ast.MapNode)
	if !ok {
		r.refuse(key, text(n), "is "+kind(n)+" where a mapping stands", form(key, v.Type()))
		return
	}
	fields := map[string]reflect.Value{}
	for f, field := range v.Fields() {
		fields[name(f)] = field
	}
	for in := m.MapRange(); in.Next(); {
		k := in.Key().GetToken()
		at := join(key, word(k.Value))
		first, again := r.at[at]
		here := position{k.Position.Line, k.Position.Column}
		field, known := fields[k.Value]
		switch {
		case again:
			r.mistakes = append(r.mistakes, &Mistake{
				Line: here.line, Column: here.column, Key: at, Wrong: fmt.Sprintf("is there already, at %d:%d", first.line, first.column), Want: "it once",
			})
			continue
		case !known || in.Key().Type() != ast.StringType:
			r.at[at] = here
			r.refuse(at, "", "is an unknown key", "one of "+strings.Join(keys(v.Type()), ", "))
			continue
		}
		r.at[at] = here
		r.read(at, in.Value(), field)
	}
}

func (r *reader) list(key string, n ast.Node, v reflect.Value) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		r.refuse(key, text(n), "is "+kind(n)+" where a list stands", form(key, v.Type()))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values)))
	for i, n := range s.Values {
		at := fmt.Sprintf("%s[%d]", key, i)
		r.at[at] = begin(n)
		r.read(at, n, v.Index(i))
	}
}

func (r *reader) scalar(key string, n ast.Node, v reflect.Value) {
	want := form(key, v.Type())
	s, ok := n.(ast.ScalarNode)
	if _, block := n.(*ast.LiteralNode); !ok || block {
		r.refuse(key, "", "is "+kind(n), want)
		return
	}
	if err := set(v, s); err != nil {
		r.refuse(key, text(n), notValid(text(n)), want)
	}
}

var errKind = errors.New("of another kind")

// set sets v to a scalar. Numbers and truth have one spelling, so that nobody has to know
// which YAML this is: 010 would be 8 in one and 10 in another, and yes would be true.
func set(v reflect.Value, n ast.ScalarNode) error {
	s := text(n)
	if t, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		return t.UnmarshalText([]byte(s))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
		return nil
	case reflect.Bool:
		if _, ok := n.(*ast.BoolNode); ok && (s == "true" || s == "false") {
			v.SetBool(s == "true")
			return nil
		}
	case reflect.Int:
		if i, err := strconv.Atoi(s); err == nil && strconv.Itoa(i) == s && n.Type() == ast.IntegerType {
			v.SetInt(int64(i))
			return nil
		}
	}
	return errKind
}

// text is a scalar as it was written, without quotes; empty for what is none.
func text(n ast.Node) string {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value
	case *ast.LiteralNode:
		return ""
	case ast.ScalarNode:
		return s.GetToken().Value
	}
	return ""
}

// isEmpty reports whether a key has no value, or one in which nothing is.
func isEmpty(n ast.Node) bool {
	switch n := n.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
		return true
	case *ast.StringNode:
		return n.Value == ""
	case *ast.MappingNode:
		return len(n.Values) == 0
	case *ast.SequenceNode:
		return len(n.Values) == 0
	}
	return false
}

func kind(n ast.Node) string {
	switch n := n.(type) {
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.LiteralNode:
		return "a block of text"
	case ast.ScalarNode:
		return quote(text(n))
	}
	return "none of the kinds that are known here"
}

// begin is where a node begins: that of a mapping without brackets is its first key.
func begin(n ast.Node) position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		n = m.Key
	}
	if n == nil || n.GetToken() == nil {
		return position{}
	}
	p := n.GetToken().Position
	return position{p.Line, p.Column}
}

// word is a key as errors have it: in quotes where it could be taken for something else.
func word(key string) string {
	if key == "" || len(key) > maxQuoted || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`.:[]"`, r) }) {
		return quote(key)
	}
	return key
}

func join(parent, key string) string {
	if parent == "" {
		return key
	}
	return parent + "." + key
}

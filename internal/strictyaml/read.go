package strictyaml

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"netemd/qdisc"
)

// reader fills a struct from the tree of a file. It does so itself, and not by the library's
// decoder, since that one stops at the first mistake, says it in the words of Go's types, and
// takes 1.5 for 1.
type reader struct{ *Document }

// slot is where a value stands: its key, that with "[]" and "*" for what varies, and
// what the tags of its field say.
type slot struct {
	key, pattern string
	want         string
	rules        rules
}

func (r *reader) refuse(key, value, wrong, want string) {
	r.mistakes = append(r.mistakes, &Mistake{Key: key, Value: value, Wrong: wrong, Want: want})
}

// read sets v to what n says.
func (r *reader) read(s slot, n ast.Node, v reflect.Value) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if isNull(n) || isEmpty(n) && !s.rules.empty {
		r.refuse(s.key, "", "is empty", r.form(s, v.Type()))
		return
	}
	switch k := kindOf(v.Type()); {
	case k == asNamed:
		r.named(s, n, v.Addr().Interface().(named))
	case k == asKeys, k == asEither && isMapping(n):
		r.mapping(s, n, v)
	case k == asList:
		r.list(s, n, v)
	default:
		r.scalar(s, n, v)
	}
}

// mapping reads the keys of a struct.
func (r *reader) mapping(s slot, n ast.Node, v reflect.Value) {
	m, ok := n.(ast.MapNode)
	if !ok {
		r.refuse(s.key, text(n), "is "+kind(n)+" where a mapping stands", r.form(s, v.Type()))
		return
	}
	fields := fieldsOf(v.Type())
	for in := m.MapRange(); in.Next(); {
		at, ok := r.key(s, in.Key())
		if !ok {
			continue
		}
		name := in.Key().GetToken().Value
		f, known := fields.of(name)
		if !known || in.Key().Type() != ast.StringType {
			r.refuse(at, "", "is an unknown key", "one of "+strings.Join(Keys(v.Type()), ", "))
			continue
		}
		r.read(f.slot(s), in.Value(), v.FieldByIndex(f.index))
	}
	r.missing(s, v)
}

// missing asks for the keys that must be there.
func (r *reader) missing(s slot, v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		if in := f.slot(s); f.rules.required && !r.Has(in.key) {
			r.refuse(in.key, "", "is missing", r.form(in, v.FieldByIndex(f.index).Type()))
		}
	}
}

// key notes the place of a key, and refuses one that is there already.
func (r *reader) key(s slot, n ast.MapKeyNode) (at string, ok bool) {
	k := n.GetToken()
	at = join(s.key, Word(k.Value))
	here := Position{k.Position.Line, k.Position.Column}
	if first, again := r.at[at]; again {
		r.mistakes = append(r.mistakes, &Mistake{
			Line: here.Line, Column: here.Column, Key: at, Wrong: fmt.Sprintf("is there already, at %d:%d", first.Line, first.Column), Want: "it once",
		})
		return at, false
	}
	r.at[at] = here
	return at, true
}

// named reads a mapping whose keys are names.
func (r *reader) named(s slot, n ast.Node, v named) {
	m, ok := n.(ast.MapNode)
	if !ok {
		r.refuse(s.key, text(n), "is "+kind(n)+" where a mapping stands", r.form(s, reflect.TypeOf(v).Elem()))
		return
	}
	for in := m.MapRange(); in.Next(); {
		at, ok := r.key(s, in.Key())
		if !ok {
			continue
		}
		name := in.Key().GetToken().Value
		if _, scalar := in.Key().(ast.ScalarNode); !scalar || isNull(in.Key()) || name == "" || len(name) > maxQuoted {
			r.refuse(at, "", "is no name", fmt.Sprintf("1 to %d bytes of text", maxQuoted))
			continue
		}
		below := slot{key: at, pattern: join(s.pattern, "*"), want: s.want, rules: s.rules}
		below.rules.empty = s.rules.empty || isMapping(in.Value()) // "web: {}" has its name
		r.read(below, in.Value(), v.add(name))
	}
}

func (r *reader) list(s slot, n ast.Node, v reflect.Value) {
	below := slot{pattern: s.pattern + "[]", want: s.want, rules: s.rules}
	l, ok := n.(*ast.SequenceNode)
	_, several := reflect.TypeAssert[severalValues](v)
	switch {
	case ok:
	case several:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		below.key = s.key
		r.read(below, n, v.Index(0))
		return
	default:
		r.refuse(s.key, text(n), "is "+kind(n)+" where a list stands", r.form(s, v.Type()))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(l.Values), len(l.Values)))
	for i, n := range l.Values {
		below.key = fmt.Sprintf("%s[%d]", s.key, i)
		r.at[below.key] = begin(n)
		r.read(below, n, v.Index(i))
	}
}

func (r *reader) scalar(s slot, n ast.Node, v reflect.Value) {
	want := r.form(s, v.Type())
	if _, block := n.(*ast.LiteralNode); block && !s.rules.block {
		r.refuse(s.key, "", "is "+kind(n), want)
		return
	}
	value, ok := n.(ast.ScalarNode)
	if !ok {
		r.refuse(s.key, "", "is "+kind(n), want)
		return
	}
	err := set(v, value)
	if err == nil {
		return
	}
	wrong := NotValid(text(n))
	if f, ok := errors.AsType[*qdisc.FieldError](err); ok { // the type's own words, where nobody has others
		if f.Why != "" {
			wrong = Quote(text(n)) + " is not valid: " + f.Why
		}
		if _, said := r.said(s); !said && f.Want != "" {
			want = f.Want
		}
	}
	r.refuse(s.key, text(n), wrong, want)
}

var errKind = errors.New("of another kind")

// set sets v to a scalar. Numbers and truth have one spelling, so that nobody has to know
// which YAML this is: 010 would be 8 in one and 10 in another, and yes would be true.
func set(v reflect.Value, n ast.ScalarNode) error {
	s := text(n)
	if u, ok := units[v.Type()]; ok {
		parsed, err := u.parse(s)
		if err == nil {
			v.Set(reflect.ValueOf(parsed))
		}
		return err
	}
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
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if i, err := strconv.ParseInt(s, 10, v.Type().Bits()); err == nil && strconv.FormatInt(i, 10) == s && n.Type() == ast.IntegerType {
			v.SetInt(i)
			return nil
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if i, err := strconv.ParseUint(s, 10, v.Type().Bits()); err == nil && strconv.FormatUint(i, 10) == s && n.Type() == ast.IntegerType {
			v.SetUint(i)
			return nil
		}
	}
	return errKind
}

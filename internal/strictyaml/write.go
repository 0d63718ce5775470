package strictyaml

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"sync"
)

// Write is v, a struct as Format.Read takes it or a pointer to one, as a text that is read
// back as the same, if v is what may be read: keys with ",omitempty" and a zero value, or with
// nothing in them, are left out. What fits into a line is written in one, below the second level.
func Write(v any) ([]byte, error) {
	t, err := treeOf(reflect.Indirect(reflect.ValueOf(v)), rules{})
	if err != nil {
		return nil, err
	}
	if t.empty() {
		return []byte("{}\n"), nil
	}
	e := &emitter{}
	e.mapping(t, 0)
	return e.Bytes(), nil
}

// tree is a value as it is written.
type tree struct {
	way way
	// text is a scalar; plain ones are never in quotes, block ones may be a block of text.
	text         string
	plain, block bool
	keys         []string
	values       []tree
}

// empty reports whether nothing is in it, so that it could not be read back.
func (t tree) empty() bool { return t.text == "" && len(t.values) == 0 }

func treeOf(v reflect.Value, r rules) (tree, error) {
	if v.Kind() == reflect.Pointer {
		return treeOf(v.Elem(), r)
	}
	switch k := kindOf(v.Type()); k {
	case asNamed:
		settable := reflect.New(v.Type())
		settable.Elem().Set(v)
		return namesTree(settable.Interface().(named), r)
	case asEither, asKeys:
		if s, err := scalarText(v); k == asEither && (err != nil || s != "") {
			return tree{text: s}, err
		}
		return mappingTree(v)
	case asList:
		if _, ok := reflect.TypeAssert[severalValues](v); ok && v.Len() == 1 {
			return treeOf(v.Index(0), r)
		}
		t := tree{way: asList}
		for i := range v.Len() {
			in, err := treeOf(v.Index(i), r)
			if err != nil {
				return tree{}, err
			}
			t.values = append(t.values, in)
		}
		return t, nil
	}
	switch {
	case isText(v.Type()):
	case v.Kind() == reflect.Bool:
		return tree{text: strconv.FormatBool(v.Bool()), plain: true}, nil
	case v.CanInt():
		return tree{text: strconv.FormatInt(v.Int(), 10), plain: true}, nil
	case v.CanUint():
		return tree{text: strconv.FormatUint(v.Uint(), 10), plain: true}, nil
	}
	s, err := scalarText(v)
	digits := v.Kind() != reflect.String && number().MatchString(s) // a port is no text
	return tree{text: s, plain: digits, block: r.block}, err
}

var number = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$`) })

// scalarText is a value as text; empty for a TextOrKeys that is written as keys.
func scalarText(v reflect.Value) (string, error) {
	if u, ok := units[v.Type()]; ok {
		return u.format(v.Interface()), nil
	}
	switch t := v.Interface().(type) {
	case encoding.TextMarshaler:
		b, err := t.MarshalText()
		return string(b), err
	case fmt.Stringer:
		if v.Kind() != reflect.Struct {
			return t.String(), nil
		}
	}
	if v.Kind() == reflect.String {
		return v.String(), nil
	}
	if v.Kind() == reflect.Struct {
		return "", nil
	}
	return "", fmt.Errorf("yaml: %s cannot be written as text", v.Type())
}

func namesTree(n named, r rules) (tree, error) {
	t := tree{way: asNamed}
	for i := range n.length() {
		name, v := n.entry(i)
		in, err := treeOf(v, r)
		if err != nil {
			return tree{}, err
		}
		t.keys, t.values = append(t.keys, name), append(t.values, in)
	}
	return t, nil
}

func mappingTree(v reflect.Value) (tree, error) {
	t := tree{way: asKeys}
	for _, f := range fieldsOf(v.Type()) {
		in := v.FieldByIndex(f.index)
		if f.omit && in.IsZero() || in.Kind() == reflect.Pointer && in.IsNil() {
			continue
		}
		value, err := treeOf(in, f.rules)
		if err != nil {
			return tree{}, err
		}
		if value.empty() && !f.rules.empty {
			continue
		}
		t.keys, t.values = append(t.keys, f.name), append(t.values, value)
	}
	return t, nil
}

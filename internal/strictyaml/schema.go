package strictyaml

import (
	"encoding/json"
	"math"
	"reflect"
)

// Schema is the JSON schema (draft 2020-12) of the files that are read into a struct of v's
// type, for editors: which keys there are, which kinds of values, and their forms in words.
// What it cannot say, as that a name must be another's, Read alone refuses. id is the
// schema's $id.
func (f *Format) Schema(id, title string, v any) ([]byte, error) {
	s := (&Document{format: f}).schema(slot{}, reflect.TypeOf(v))
	s["$schema"], s["title"] = "https://json-schema.org/draft/2020-12/schema", title
	if id != "" {
		s["$id"] = id
	}
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

// object is a JSON object.
type object map[string]any

func (d *Document) schema(s slot, t reflect.Type) object {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	out := d.kindSchema(s, t)
	if want := d.form(s, t); s.pattern != "" {
		out["description"] = want
	}
	return out
}

func (d *Document) kindSchema(s slot, t reflect.Type) object {
	switch kindOf(t) {
	case asNamed:
		element := reflect.New(t).Interface().(named).element()
		in := d.schema(slot{pattern: join(s.pattern, "*"), rules: s.rules}, element)
		return object{"type": "object", "additionalProperties": in, "propertyNames": object{"minLength": 1, "maxLength": maxQuoted}}
	case asKeys:
		return d.keysSchema(s, t)
	case asEither:
		return object{"anyOf": []object{{"type": "string"}, d.keysSchema(s, t)}}
	case asList:
		in := d.kindSchema(slot{pattern: s.pattern + "[]", rules: s.rules}, t.Elem())
		list := object{"type": "array", "items": in}
		if !s.rules.empty {
			list["minItems"] = 1
		}
		if _, several := reflect.TypeAssert[severalValues](reflect.New(t).Elem()); several {
			return object{"anyOf": []object{in, list}}
		}
		return list
	}
	_, isUnit := units[t]
	switch k := t.Kind(); {
	case isText(t) && !isUnit && k == reflect.Float64: // a factor
		return object{"type": []string{"string", "number"}}
	case isText(t) && !isUnit && k != reflect.String: // a port is a number, and a range of them is none
		return object{"type": []string{"string", "integer"}}
	case isText(t):
		return object{"type": "string"}
	case k == reflect.Bool:
		return object{"type": "boolean"}
	case k >= reflect.Int && k <= reflect.Int64:
		return object{"type": "integer"}
	case k >= reflect.Uint && k <= reflect.Uint64:
		out := object{"type": "integer", "minimum": 0}
		if t.Bits() < 64 {
			out["maximum"] = uint64(math.Exp2(float64(t.Bits()))) - 1
		}
		return out
	}
	// A text needs no quotes, whatever it looks like.
	out := object{"type": []string{"string", "number", "boolean"}}
	if !s.rules.empty {
		out["minLength"] = 1
	}
	return out
}

func (d *Document) keysSchema(s slot, t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range fieldsOf(t) {
		properties[f.name] = d.schema(f.slot(slot{pattern: s.pattern}), t.FieldByIndex(f.index).Type)
		if f.rules.required {
			required = append(required, f.name)
		}
	}
	out := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

package policyfile

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"netemd/internal/strictyaml"
	"netemd/probe"
	"netemd/probe/policy"
	"netemd/qdisc"
)

// SchemaPath is where the schema is published, below the root of the tree.
const SchemaPath = "api/policy.schema.json"

var format = strictyaml.Format{}

// Parse reads a file with one policy; path is for the errors. The error has a
// *strictyaml.Mistake, with its line and column, for each thing that is wrong.
func Parse(path string, text []byte) (policy.Policy, error) {
	var f file
	doc := format.Read(path, text, &f)
	if !doc.Readable() {
		return policy.Policy{}, doc.Err()
	}
	if rest := doc.Check(checkName(f.Name)); rest != nil {
		return policy.Policy{}, rest
	}
	p, err := f.Policy(doc, "", f.Name)
	if err != nil {
		return policy.Policy{}, err
	}
	if err := doc.Err(); err != nil {
		return policy.Policy{}, err
	}
	return p, nil
}

// Policy is what the keys at a key of a document say, empty for its top. What is wrong is told to
// the document; the error is anything else.
func (k Keys) Policy(doc *strictyaml.Document, key, name string) (policy.Policy, error) {
	doc.Add(zeros(doc, reflect.ValueOf(k), key, "")...)
	p := k.policy(name)
	return p, doc.Check(fields(doc, key, p.Validate()))
}

// YAML is a policy as a file, which Parse reads back as the same. Its comments and what
// it has by default are not in it.
func YAML(p policy.Policy) ([]byte, error) {
	if err := errors.Join(checkName(p.Name), p.Validate()); err != nil {
		return nil, err
	}
	return strictyaml.Write(keys(p))
}

// Schema is the JSON schema of policy files, for editors.
func Schema() ([]byte, error) {
	return format.Schema("", "A client policy of netemd", file{})
}

// validName is of characters of which no shell and no file system makes anything.
func validName(name string) bool {
	const letters, signs = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", "-_."
	return name != "" && len(name) <= 64 && strings.Trim(name, letters+signs) == "" && !strings.ContainsRune(signs, rune(name[0]))
}

func checkName(name string) error {
	if validName(name) {
		return nil
	}
	return &qdisc.FieldError{Field: "policy", Value: name, Want: "a name: letters, digits, '-', '_' and '.', at most 64, the first one a letter or digit"}
}

// mayBeZero are the keys for which zero is something, and not the same as leaving them out.
var mayBeZero = []string{"budget.per_second", "bulkhead.queue", "deadline.reserve"}

// zeros refuses zeros that would silently be the default: "max_attempts: 0" is not 3.
func zeros(doc *strictyaml.Document, v reflect.Value, at, below string) (out []*strictyaml.Mistake) {
	for field, in := range v.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		key := strings.TrimPrefix(below+"."+name, ".")
		in = reflect.Indirect(in)
		switch {
		case !in.IsValid(): // a section that is not there
		case in.Kind() == reflect.Struct:
			out = append(out, zeros(doc, in, at, key)...)
		case (in.CanInt() || in.CanFloat()) && in.IsZero() && doc.Has(within(at, key)) && !slices.Contains(mayBeZero, key):
			want := field.Tag.Get("want")
			if w, ok := reflect.TypeAssert[strictyaml.Wanter](in); ok {
				want = w.WantYAML()
			}
			out = append(out, &strictyaml.Mistake{Key: within(at, key), Value: "0", Wrong: "is zero", Want: want})
		}
	}
	return out
}

// fields makes each *probe.RequestError of err what strictyaml knows. One class alone is no
// list in the file.
func fields(doc *strictyaml.Document, at string, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the validation's own
		var errs []error
		for _, e := range joined.Unwrap() {
			errs = append(errs, fields(doc, at, e))
		}
		return errors.Join(errs...)
	}
	r, ok := errors.AsType[*probe.RequestError](err)
	if !ok {
		return err
	}
	field := within(at, r.Field)
	if alone, ok := strings.CutSuffix(field, "[0]"); ok && !doc.Has(field) {
		field = alone
	}
	return &qdisc.FieldError{Field: field, Value: r.Value, Want: r.Want}
}

// within is a key in what stands at another one.
func within(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

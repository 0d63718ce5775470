package agent

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"netemd/internal/target"
	"netemd/qdisc"
)

// The longest texts of a request, in bytes, and the most entries of a list in it. Names
// are those of targets, labs and faults; anything else, such as a rule's expression, is a
// text.
const (
	maxName    = 64
	maxText    = 4096
	maxEntries = 4096
)

// names are the fields that hold the name of something, in whatever message, and what that
// is.
var names = map[protoreflect.Name]string{
	"target": "a target's name", "name": "a name", "id": "the id of a fault", "life": "the name of a life",
}

// resolveName is the one field "name" that may hold an inline target.
const resolveName protoreflect.FullName = "netem.v1.ResolveTargetRequest.name"

// labText is the one field that holds lines. Its reader bounds it, and refuses what is no text.
const labText protoreflect.FullName = "netem.v1.LabText.yaml"

// checkTexts refuses what no text of a request has, so that none is ever part of a path,
// a line or a kernel's name by surprise. The error is a *qdisc.FieldError for each.
func checkTexts(m proto.Message) error {
	var errs []error
	walkTexts(m.ProtoReflect(), "", func(field, text, want string) {
		errs = append(errs, &qdisc.FieldError{Field: field, Value: text, Want: want})
	})
	return errors.Join(errs...)
}

func walkTexts(m protoreflect.Message, at string, refuse func(field, text, want string)) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		field := strings.TrimPrefix(strings.TrimPrefix(at+"."+string(f.Name()), "."), "spec.")
		field = strings.Replace(field, "].spec.", "].", 1) // of several: "faults[17].loss"
		one := func(field string, v protoreflect.Value) {
			switch f.Kind() {
			case protoreflect.StringKind:
				if want := wantText(f, v.String()); want != "" {
					refuse(field, shown(v.String()), want)
				}
			case protoreflect.MessageKind:
				walkTexts(v.Message(), field, refuse)
			}
		}
		if !f.IsList() {
			one(field, v)
			return true
		}
		list := v.List()
		if list.Len() > maxEntries {
			refuse(field, "", fmt.Sprintf("at most %d entries, not %d", maxEntries, list.Len()))
			return true
		}
		for i := range list.Len() {
			one(fmt.Sprintf("%s[%d]", field, i), list.Get(i))
		}
		return true
	})
}

// wantText says what is wanted instead of a text; empty when it will do.
func wantText(f protoreflect.FieldDescriptor, s string) string {
	field := f.Name()
	kind, isName := names[field]
	if field == "target" || f.FullName() == resolveName {
		kind = "a target's name"
		if target.Inline(s) {
			if e, bad := errors.AsType[*qdisc.FieldError](target.CheckText(s)); bad {
				return e.Want
			}
			return ""
		}
	}
	switch {
	case f.FullName() == labText:
		return ""
	case isName && (len(s) > maxName || strings.Contains(s, "..") || strings.ContainsFunc(s, notInName)):
		return fmt.Sprintf("%s: letters, digits, '-', '_', '.' and '/', without '..', at most %d", kind, maxName)
	case len(s) > maxText:
		return fmt.Sprintf("a text of at most %d bytes, not %d", maxText, len(s))
	case field != "expression" && strings.ContainsFunc(s, unicode.IsControl), strings.ContainsRune(s, 0):
		return "a text without control characters"
	}
	return ""
}

func notInName(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_./", r):
		return false
	}
	return true
}

// shown is as much of a text as tells which one it was.
func shown(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

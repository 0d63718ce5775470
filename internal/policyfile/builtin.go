package policyfile

import (
	"context"
	"embed"
	"fmt"
	"strings"
	"sync"

	"netemd/internal/strictyaml"
	"netemd/probe/policy"
	"netemd/qdisc"
)

//go:embed examples/*.yaml
var files embed.FS

// names are in the order in which they are told: the simplest first.
var names = []string{"none", "naive-retry", "full-jitter", "breaker", "hedge", "everything"}

// Names are those of the built-in policies, the simplest first.
func Names() []string { return append([]string(nil), names...) }

// Text is the file of a built-in policy.
func Text(name string) ([]byte, bool) {
	if strings.ContainsAny(name, "/.") {
		return nil, false
	}
	text, err := files.ReadFile("examples/" + name + ".yaml")
	return text, err == nil
}

var builtins = sync.OnceValue(func() []policy.Policy {
	var all []policy.Policy
	for _, name := range names {
		text, _ := Text(name)
		p, err := Parse(name+".yaml", text)
		if err != nil {
			panic(fmt.Sprintf("a built-in policy is not valid: %v", err)) // a test has seen all
		}
		all = append(all, p)
	}
	return all
})

// Builtins are the policies that need no file, the simplest first.
func Builtins() []policy.Policy { return append([]policy.Policy(nil), builtins()...) }

// Load is the text of what a command line calls a policy: the name of a built-in one, or the
// path of a file, which has a / or ends in .yaml or .yml; path is what it is called in errors.
// The error is a *qdisc.FieldError for an unknown name, or that of strictyaml.Load.
func Load(ctx context.Context, name string) (path string, text []byte, err error) {
	if strings.ContainsRune(name, '/') || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		if text, err = strictyaml.Load(ctx, name); err != nil {
			return "", nil, fmt.Errorf("policy: %w", err)
		}
		return name, text, nil
	}
	text, ok := Text(name)
	if !ok {
		want := "a built-in policy (" + strings.Join(names, ", ") + "), or the path of a file, which has a / or ends in .yaml"
		if near := strictyaml.Near(name, names); near != "" {
			want += "; did you mean " + near + "?"
		}
		return "", nil, &qdisc.FieldError{Field: "policy", Value: name, Want: want}
	}
	return name + ".yaml", text, nil
}

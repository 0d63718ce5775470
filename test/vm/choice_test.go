//go:build linux

package vm

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// written are the names of the tests of a package, and the strings in their files.
func written(t *testing.T, dir string) (tests, literals []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", dir, err)
	}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test") && n.Name.Name != "TestMain" {
					tests = append(tests, n.Name.Name)
				}
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					literals = append(literals, s)
				}
			}
			return true
		})
	}
	return tests, literals
}

func matchesAny(t *testing.T, pattern string, names []string) bool {
	t.Helper()
	re, err := regexp.Compile(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(names, re.MatchString)
}

// A test that was renamed does not leave the short run unseen: what is chosen is there.
func TestChoicesExist(t *testing.T) {
	for _, s := range Suites {
		tests, literals := written(t, filepath.Join("..", "..", s.Package))
		if !matchesAny(t, s.Run, tests) {
			t.Errorf("%s: no test is named like %q", s.Package, s.Run)
		}
		for series, c := range s.Short {
			if _, err := Lookup(series); err != nil || len(s.Kernels) > 0 && !slices.Contains(s.Kernels, series) {
				t.Errorf("%s: a choice for kernel %q, on which it does not run", s.Package, series)
			}
			for _, name := range c.Tests {
				if !slices.Contains(tests, name) || !matchesAny(t, s.Run, []string{name}) {
					t.Errorf("%s, %s: no test %s", s.Package, series, name)
				}
			}
			if sorted := slices.Compact(slices.Sorted(slices.Values(c.Tests))); len(sorted) != len(c.Tests) {
				t.Errorf("%s, %s: a name stands twice", s.Package, series)
			}
			for _, pattern := range c.Without {
				test, part, ok := strings.Cut(pattern, "/")
				if !matchesAny(t, test, tests) || ok && !matchesAny(t, part, literals) {
					t.Errorf("%s, %s: nothing is named like %q", s.Package, series, pattern)
				}
			}
		}
	}
}

func TestFlags(t *testing.T) {
	s := Suite{Package: "a", Run: "^TestN", Short: map[string]Choice{
		"6.1": {}, "6.12": {Tests: []string{"TestNa", "TestNb"}, Without: []string{"/^x$"}},
	}}
	for _, tt := range []struct {
		kernel Kernel
		suite  Suite
		whole  bool
		on     bool
		flags  string
	}{
		{Kernel61, s, false, false, " -test.run='^TestN'"},
		{Kernel61, s, true, true, " -test.run='^TestN'"},
		{Kernel612, s, false, true, " -test.run='^(TestNa|TestNb)$' -test.skip='/^x$'"},
		{Kernel612, s, true, true, " -test.run='^TestN'"},
		{Kernel612, Suite{}, false, true, ""},
		{Kernel61, Suite{Kernels: []string{"6.12"}}, true, false, ""},
	} {
		if diff := cmp.Diff(tt.flags, tt.suite.flags(tt.kernel, tt.whole)); diff != "" || tt.suite.on(tt.kernel, tt.whole) != tt.on {
			t.Errorf("%s, whole %t: on %t, flags (-want +got):\n%s", tt.kernel.Series, tt.whole, !tt.on, diff)
		}
	}
	if long, short := Command([]Suite{s}, Kernel612, "/r", "/d", true, true), Command([]Suite{s}, Kernel612, "/r", "/d", false, false); !strings.Contains(long, "-test.short=false") || strings.Contains(long, "skip") || !strings.Contains(short, "-test.short ") || !strings.Contains(short, "TestNa") {
		t.Errorf("the long run:\n%s\nthe short run:\n%s", long, short)
	}
}

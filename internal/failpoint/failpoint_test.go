package failpoint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// childEnv makes the test program a process that passes a step three times.
const childEnv = "NETEMD_TEST_FAILPOINT_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		for range 3 {
			At(name)
			_, _ = os.Stdout.WriteString("passed\n")
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// step is the name that a call passes on: a parameter of that name gets its values where
// the function is called.
const step = "step"

// failAt is the name of a variable that is At, but for tests.
const failAt = "failAt"

// called are the names of all steps in the tree.
func called(t *testing.T) []string {
	t.Helper()
	names := map[string]bool{}
	add := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok {
			if name, err := strconv.Unquote(lit.Value); err == nil {
				names[name] = true
			}
		} else if id, ok := e.(*ast.Ident); !ok || id.Name != step {
			t.Errorf("a step that is neither a literal nor %q: %v", step, e)
		}
	}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch c := n.(type) {
			case *ast.CallExpr:
				if s, ok := c.Fun.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "failpoint" && s.Sel.Name == "At" {
						add(c.Args[0])
					} else if s.Sel.Name == "enforce" {
						add(c.Args[len(c.Args)-1])
					}
				} else if f, ok := c.Fun.(*ast.Ident); ok && f.Name == failAt {
					add(c.Args[0])
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(names))
}

func TestNamesAreThoseOfTheTree(t *testing.T) {
	if diff := cmp.Diff(called(t), Names()); diff != "" {
		t.Errorf("steps that are passed, and Names (-tree +names):\n%s", diff)
	}
}

func TestAt(t *testing.T) {
	program := os.Args[0]
	for _, tt := range []struct {
		env, name string
		passed    int // before the kill
		killed    bool
	}{
		{"", "lease.apply.begin", 3, false},
		{"lease.apply.begin", "lease.apply.begin", 0, true},
		{"lease.apply.begin:3", "lease.apply.begin", 2, true},
		{"lease.apply.begin:4", "lease.apply.begin", 3, false},
		{"lease.apply.begin", "lease.apply.intended", 3, false},
	} {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), childEnv+"="+tt.name, Env+"="+tt.env)
		out, err := cmd.Output()
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !Enabled {
			tt.passed, tt.killed = 3, false
		}
		if got := strings.Count(string(out), "passed"); got != tt.passed || (status.Signal() == syscall.SIGKILL) != tt.killed {
			t.Errorf("%s at %s: passed %d times, %v; want %d, killed %t", tt.env, tt.name, got, err, tt.passed, tt.killed)
		}
	}
	if !Enabled {
		return
	}
	for _, env := range []string{"nope", "lease.apply.begin:", "lease.apply.begin:0", "lease.apply.begin:x"} {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), childEnv+"=lease.apply.begin", Env+"="+env)
		if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 {
			t.Errorf("%s: %v, %s", env, err, out)
		}
	}
}

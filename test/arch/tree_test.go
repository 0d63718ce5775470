package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	module = "netemd"
	root   = "../.."
)

// pkg is what go list says of a package.
type pkg struct {
	ImportPath, Dir, Doc      string
	Imports                   []string
	GoFiles, CgoFiles         []string
	TestGoFiles, XTestGoFiles []string
}

// list runs go list for an operating system.
func list(t *testing.T, goos string, args ...string) []pkg {
	t.Helper()
	out := run(t, []string{"GOOS=" + goos, "CGO_ENABLED=0"}, "go", append([]string{"list", "-e=false", "-json=ImportPath,Dir,Doc,Imports,GoFiles,TestGoFiles,XTestGoFiles"}, args...)...)
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

// run runs a program in the project's root and returns its standard output.
func run(t *testing.T, env []string, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return out
}

func TestEveryPackageHasADocComment(t *testing.T) {
	for _, p := range list(t, "linux", "./...") {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s: no package doc comment", p.ImportPath)
		}
	}
}

// The command line and the public packages are for every developer's machine.
func TestDarwin(t *testing.T) {
	env := []string{"GOOS=darwin", "CGO_ENABLED=0"}
	run(t, env, "go", "build", "-o", filepath.Join(t.TempDir(), "netemctl"), "./cmd/netemctl")
	run(t, env, "go", "build", "./qdisc", "./probe")
	run(t, env, "go", "vet", "./cmd/netemctl", "./qdisc", "./probe")
}

func TestEverythingVetsForDarwin(t *testing.T) {
	if os.Getenv("NETEMD_TEST_LONG") == "" {
		t.Skip("builds every library for another system: make test-long; TestDarwin has the packages that matter")
	}
	run(t, []string{"GOOS=darwin", "CGO_ENABLED=0"}, "go", "vet", "./...")
}

// notHere are texts that no file of the tree may hold: they only mean something
// on the machine where they were written.
var notHere = []*regexp.Regexp{
	regexp.MustCompile(`\.\./sha` + `red\b`),
	regexp.MustCompile(`\bdeb` + `\.debian\.org\b`),
	regexp.MustCompile(`\b(archive|security|ports)\.` + `ubuntu\.com\b`),
	regexp.MustCompile(`\b(proxy|sum)\.` + `golang\.org\b`),
	regexp.MustCompile(`\bregistry\.` + `(npmjs\.org|hub\.docker\.com|yarnpkg\.com)\b`),
	regexp.MustCompile(`\b(docker` + `\.io|gcr` + `\.io|ghcr` + `\.io|quay` + `\.io)/`),
}

func TestNoFileNamesThisMachine(t *testing.T) {
	out, err := func() ([]byte, error) {
		cmd := exec.Command("git", "ls-files", "-z")
		cmd.Dir = root
		return cmd.Output()
	}()
	if err != nil {
		t.Skipf("git ls-files: %v: not a checkout", err)
	}
	files := strings.Split(strings.Trim(string(out), "\x00"), "\x00")
	if len(files) < 20 {
		t.Fatalf("git ls-files found %d files", len(files))
	}
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, but not committed yet
		}
		if err != nil {
			t.Error(err)
			continue
		}
		for _, re := range notHere {
			if at := re.FindIndex(data); at != nil {
				t.Errorf("%s:%d: holds %q", name, 1+bytes.Count(data[:at[0]], []byte("\n")), data[at[0]:at[1]])
			}
		}
	}
}

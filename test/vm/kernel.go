//go:build linux

package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Kernel is one of the kernels that can be booted, named by its series.
type Kernel struct {
	// Series is the first two numbers of the release, such as "6.12".
	Series string
	// Suite is the Debian release that ships it.
	Suite string
}

// The kernels. Which release of a series is booted is what the suite has on the
// day it is fetched.
var (
	Kernel61  = Kernel{Series: "6.1", Suite: "bookworm"}
	Kernel612 = Kernel{Series: "6.12", Suite: "trixie"}
)

// Lookup finds a kernel by its series.
func Lookup(series string) (Kernel, error) {
	for _, k := range []Kernel{Kernel61, Kernel612} {
		if k.Series == series {
			return k, nil
		}
	}
	return Kernel{}, fmt.Errorf("kernel %q is not known: 6.1 or 6.12", series)
}

// metaPackage depends on the kernel image of the day.
const metaPackage = "linux-image-cloud-amd64"

// Fetch returns the folder of the unpacked kernel package below cache, and gets
// it with apt first where it is not there. Two runs may fetch at the same time:
// the last rename wins or finds its work done.
func (k Kernel) Fetch(ctx context.Context, cache string) (string, error) {
	tree := filepath.Join(cache, "kernels", k.Suite)
	if images, _ := filepath.Glob(filepath.Join(tree, "boot", "vmlinuz-*")); len(images) == 1 {
		return tree, nil
	}
	if runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("kernel %s: the VM is made for amd64, this is %s", k.Series, runtime.GOARCH)
	}
	sources, err := debianSources("/etc/apt", k.Suite)
	if err != nil {
		return "", fmt.Errorf("kernel %s: %w", k.Series, err)
	}
	if err := os.MkdirAll(filepath.Dir(tree), 0o755); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(filepath.Dir(tree), k.Suite+".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	var errs []error
	for _, s := range sources {
		if err = k.fetch(ctx, dir, s); err == nil {
			break
		}
		errs = append(errs, fmt.Errorf("kernel %s from %s: %w", k.Series, s.origin, err))
	}
	if err != nil {
		return "", errors.Join(errs...)
	}
	if err := os.RemoveAll(tree); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(dir, "tree"), tree); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return tree, giveBack(cache)
}

// fetch downloads and unpacks the kernel into dir/tree, with apt's state in a
// folder of its own so that the machine's lists stay as they are.
func (k Kernel) fetch(ctx context.Context, dir string, s source) error {
	for _, d := range []string{"lists/partial", "archives/partial", "tree"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	list := filepath.Join(dir, "debian"+s.ext)
	if err := os.WriteFile(list, []byte(s.text), 0o644); err != nil {
		return err
	}
	apt := func(tool string, args ...string) (string, error) {
		return output(ctx, dir, tool, append([]string{"-q",
			"-o", "APT::Architecture=amd64",
			"-o", "APT::Sandbox::User=",
			"-o", "APT::Default-Release=",
			"-o", "Acquire::Languages=none",
			"-o", "Dir::Etc::sourcelist=" + list,
			"-o", "Dir::Etc::sourceparts=/dev/null",
			"-o", "Dir::Etc::preferences=/dev/null",
			"-o", "Dir::Etc::preferencesparts=/dev/null",
			"-o", "Dir::State::lists=" + filepath.Join(dir, "lists"),
			"-o", "Dir::State::status=/dev/null",
			"-o", "Dir::Cache=" + dir,
			"-o", "Dir::Cache::archives=archives",
		}, args...)...)
	}
	if out, err := apt("apt-get", "update"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	out, err := apt("apt-cache", "depends", metaPackage)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	image := ""
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok && strings.HasPrefix(name, "linux-image-") {
			image = name
		}
	}
	if image == "" {
		return fmt.Errorf("%s has no linux-image dependency: %s", metaPackage, out)
	}
	if out, err := apt("apt-get", "download", image); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	debs, err := filepath.Glob(filepath.Join(dir, image+"_*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get download %s left %d packages, want 1", image, len(debs))
	}
	tree := filepath.Join(dir, "tree")
	if out, err := output(ctx, dir, "dpkg", "-x", debs[0], tree); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	base, release, err := modulesOf(tree)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(release, k.Series+".") {
		return fmt.Errorf("suite %s has kernel %s, want %s", k.Suite, release, k.Series)
	}
	if out, err := output(ctx, dir, sbin("depmod"), "-b", base, release); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// modulesOf returns the folder of tree that has lib/modules, and the release that
// is in it. Since trixie the package puts it below usr.
func modulesOf(tree string) (base, release string, err error) {
	for _, base := range []string{tree, filepath.Join(tree, "usr")} {
		entries, err := os.ReadDir(filepath.Join(base, "lib", "modules"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", "", err
		}
		if len(entries) == 1 {
			return base, entries[0].Name(), nil
		}
	}
	return "", "", fmt.Errorf("%s: no kernel modules in it", tree)
}

// output runs a program in dir and returns what it said, both streams.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return string(out), err
}

package agent

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/namespaces"
)

// docker is an engine of its own: in a mount and a network namespace of the test's, with its
// data in the test's folder.
type docker struct {
	t         *testing.T
	namespace string
	dir       string
	cgroup    string
}

// dockerScript starts the engine on a bridge of the namespace. The state of others below /run
// is out of its sight.
const dockerScript = `set -e
mount -t tmpfs none /run
ip link set lo up
ip link add br0 type bridge
ip addr add 10.80.0.1/24 dev br0
ip link set br0 up
exec dockerd --config-file "$1/none.json" --data-root "$1/data" --exec-root "$1/run" --pidfile "$1/pid" -H "unix://$1/s" \
	--bridge br0 --iptables=false --ip6tables=false --ip-masq=false --storage-driver vfs --cgroup-parent "/$2" --containerd-namespace "$2"
`

func startDocker(t *testing.T) *docker {
	t.Helper()
	for _, program := range []string{"/usr/sbin/dockerd", "/usr/bin/docker", "/bin/busybox"} {
		if _, err := os.Stat(program); err != nil {
			if os.Getenv("NETEMD_TEST_VMS") != "" { // make test installs it
				t.Fatalf("%s is missing: scripts/install.sh test", program)
			}
			t.Skipf("needs %s: apt-get install docker.io busybox-static", program)
		}
	}
	dir, err := os.MkdirTemp("/tmp", "nt-docker-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	d := &docker{t: t, namespace: netns(t, "docker"), dir: dir, cgroup: fmt.Sprintf("nt-docker-%d", os.Getpid())}
	if err := os.WriteFile(filepath.Join(d.dir, "none.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", dockerScript, "sh", d.dir, d.cgroup)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := namespaces.Start(d.namespace, cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it ends its containers
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			<-ended
		}
		d.sweep()
		if t.Failed() {
			t.Logf("dockerd: %s", log.String())
		}
	})
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(d.dir, "s"))
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, err := d.try("version"); err == nil {
			break
		}
		select {
		case <-ended:
			t.Fatal("dockerd has ended")
		default:
		}
		if time.Now().After(end) {
			t.Fatal("dockerd does not answer")
		}
	}
	d.image()
	return d
}

// sweep ends what the engine left, which names the test's folder, and removes its groups and
// files.
func (d *docker) sweep() {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if text, readErr := os.ReadFile("/proc/" + e.Name() + "/cmdline"); err == nil && readErr == nil && pid != os.Getpid() && bytes.Contains(text, []byte(d.dir)) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/" + d.cgroup)
	if _, err := os.Stat("/sys/fs/cgroup/" + d.cgroup); err == nil {
		roots = append(roots, "/sys/fs/cgroup/"+d.cgroup)
	}
	for _, root := range roots {
		var groups []string
		_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
		for _, group := range slices.Backward(groups) {
			if err := syscall.Rmdir(group); err != nil {
				d.t.Errorf("%s: %v", group, err)
			}
		}
	}
	if err := os.RemoveAll(d.dir); err != nil {
		d.t.Error(err)
	}
}

func (d *docker) try(args ...string) (string, error) {
	out, err := exec.Command("/usr/bin/docker", args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (d *docker) do(args ...string) string {
	d.t.Helper()
	out, err := d.try(args...)
	if err != nil {
		d.t.Fatalf("docker %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// image makes the image "bb" of busybox.
func (d *docker) image() {
	d.t.Helper()
	root := filepath.Join(d.dir, "image")
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		d.t.Fatal(err)
	}
	text, err := os.ReadFile("/bin/busybox")
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "bin/busybox"), text, 0o755)
	}
	tar := filepath.Join(d.dir, "image.tar")
	if err == nil {
		err = exec.Command("tar", "-C", root, "-cf", tar, ".").Run()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.do("import", tar, "bb")
}

// Of two containers on one bridge the one that is named is impaired; restarted under a fault,
// the new one is not, unless that was asked for.
func TestContainers(t *testing.T) {
	d := startDocker(t)
	for _, name := range []string{"web", "db"} {
		d.do("run", "-d", "--name", name, "bb", "/bin/busybox", "sleep", "1000")
	}
	c := serve(t)
	at := func(text string) (target.Target, string) {
		t.Helper()
		got, err := c.Resolve(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		return got, got.Address.String()
	}
	web, webAddress := at("container:web:80")
	_, dbAddress := at("container:db:80")
	if web.To.Namespace != d.namespace || web.To.Hook != target.Egress || !netip.MustParsePrefix("10.80.0.0/24").Contains(web.Address.Addr()) {
		t.Fatalf("web is at %+v, want a device in %s", web.To, d.namespace)
	}
	id := d.do("inspect", "-f", "{{.Id}}", "web")
	if err := namespaces.Do(t.Context(), d.namespace, func() error { // a device is found by what it is, not by its name
		link, err := netlink.LinkByIndex(web.To.Index)
		if err == nil {
			err = netlink.LinkSetName(link, "renamed0")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"container:web:80", "container:" + id + ":80", "container:" + id[:12]} {
		if got, _ := at(text); got.To.Index != web.To.Index || got.To.Device != "renamed0" {
			t.Errorf("%s is at %s, want renamed0", text, got.To)
		}
	}
	if !reaches(t, d.namespace, webAddress) || !reaches(t, d.namespace, dbAddress) {
		t.Fatalf("%s and %s do not answer without a fault", webAddress, dbAddress)
	}
	f, err := c.Apply(t.Context(), lossOf("container:web"))
	if err != nil {
		t.Fatal(err)
	}
	if connects(t, d.namespace, webAddress) || !reaches(t, d.namespace, dbAddress) {
		t.Error("web answers under a loss of 100%, or db does not")
	}
	d.do("pause", "web")
	if got, _ := at("container:web"); got.To.Index != web.To.Index {
		t.Errorf("paused, it is at %s", got.To)
	}
	d.do("unpause", "web")
	d.do("restart", "-t", "0", "web")
	begin := time.Now()
	eventually(t, "the fault of the old container is lost", func() bool {
		got, err := c.Get(t.Context(), f.ID)
		return err == nil && got.State == fault.Lost
	})
	t.Logf("lost %v after the restart", time.Since(begin))
	_, webAddress = at("container:web:80")
	if !reaches(t, d.namespace, webAddress) {
		t.Error("the new container is impaired")
	}
	if cleared, err := c.Clear(t.Context(), fault.Selector{Target: "container:web"}); err != nil || len(cleared) != 1 {
		t.Errorf("clear of a lost fault: %v, %v", cleared, err)
	}
	again := lossOf("container:web")
	again.Reattach = true
	if f, err = c.Apply(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	d.do("restart", "-t", "0", "web")
	_, webAddress = at("container:web:80")
	eventually(t, "the fault is at the new container", func() bool {
		got, err := c.Get(t.Context(), f.ID)
		return err == nil && got.State == fault.Active && !connects(t, d.namespace, webAddress)
	})
	if _, err := c.Clear(t.Context(), fault.Selector{ID: f.ID}); err != nil {
		t.Error(err)
	}
	if !reaches(t, d.namespace, webAddress) {
		t.Error("cleared, web does not answer")
	}
	d.do("stop", "-t", "0", "db")
	if _, err := c.Resolve(t.Context(), "container:db"); err == nil || !strings.Contains(err.Error(), "is exited; those that run: web (") {
		t.Errorf("a stopped container: %v", err)
	}
}

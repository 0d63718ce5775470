package packaging

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/agent"
	"netemd/internal/config"
)

const root = "../.."

// unit is what a unit file says: the values of each key, by section.
func unit(t *testing.T, text string) map[string]map[string][]string {
	t.Helper()
	u, section := map[string]map[string][]string{}, ""
	for in := bufio.NewScanner(strings.NewReader(text)); in.Scan(); {
		line := strings.TrimSpace(in.Text())
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
			u[section] = map[string][]string{}
		case !ok || section == "":
			t.Fatalf("no setting: %q", line)
		default:
			u[section][key] = append(u[section][key], value)
		}
	}
	return u
}

func file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// mounts are the settings by which systemd makes a mount namespace, in some version at
// least (systemd.exec(5)). In one, named network namespaces are not those of everybody.
var mounts = regexp.MustCompile(`^(Private(Tmp|Devices|Mounts|IPC|PIDs|BPF)|MountFlags|Protect\w+|ProcSubset|(ReadOnly|ReadWrite|Inaccessible|Exec|NoExec)(Paths|Directories)|TemporaryFileSystem|Bind\w*Paths|Root\w+|Mount\w+|Extension\w+|DynamicUser|LogNamespace|(Load|Set|Import)Credential\w*|IPCNamespacePath|BindLogSockets)$`)

// elsewhere are the settings by which it would not run as root in this host's namespaces.
var elsewhere = regexp.MustCompile(`^(PrivateNetwork|NetworkNamespacePath|JoinsNamespaceOf|PrivateUsers|User|Group|RestrictRealtime|MemoryDenyWriteExecute|IPAddress\w+)$`)

func TestUnit(t *testing.T) {
	service := unit(t, file(t, root+"/packaging/netemd.service"))["Service"]
	if len(service) < 20 {
		t.Fatalf("%d settings of the service", len(service))
	}
	for key := range service {
		if mounts.MatchString(key) || elsewhere.MatchString(key) {
			t.Errorf("%s takes the agent away from the network that it is for", key)
		}
	}
	for key, want := range map[string]string{
		"Type": "notify", "NotifyAccess": "main", "Restart": "on-failure",
		"ExecStart": "/usr/bin/netemd",
		// The journal of a killed agent is there for whoever cleans up, who does not undo
		// what a clean stop handed over.
		"RuntimeDirectory": "netemd", "RuntimeDirectoryPreserve": "yes",
		"ExecStopPost": `/bin/sh -c 'test "$$SERVICE_RESULT" = success || exec /usr/bin/netemd cleanup'`,
		"KillMode":     "process", "OOMPolicy": "continue", "NoNewPrivileges": "yes",
	} {
		if got := service[key]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	for _, key := range []string{"WatchdogSec", "LimitNOFILE", "LimitMEMLOCK", "SystemCallFilter"} {
		if len(service[key]) != 1 || service[key][0] == "" {
			t.Errorf("%s is %q", key, service[key])
		}
	}
	if run := config.Default().StateDir; run != "/run/"+service["RuntimeDirectory"][0] {
		t.Errorf("the state folder is %s", run)
	}
}

// What the agent keeps after its start is what systemd lets it have; modules are loaded
// before.
func TestUnitCapabilities(t *testing.T) {
	want := []string{"CAP_SYS_MODULE"}
	for _, p := range agent.Privileges {
		want = append(want, strings.ToUpper(p.Value.String()))
	}
	got := strings.Fields(strings.Join(unit(t, file(t, root+"/packaging/netemd.service"))["Service"]["CapabilityBoundingSet"], " "))
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CapabilityBoundingSet (-agent +unit):\n%s", diff)
	}
}

// hidden is a line of the configuration that is commented out; prose has one space.
var hidden = regexp.MustCompile(`(?m)^#(\S|  )`)

func TestConfiguration(t *testing.T) {
	text := file(t, root+"/packaging/netemd.yaml")
	want := config.Default()
	got, err := config.Parse([]byte(text))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("as it is installed: %v, not the default:\n%s", err, diff)
	}
	all, err := config.Parse([]byte(hidden.ReplaceAllString(text, "$1")))
	if err != nil {
		t.Fatalf("with everything in it: %v", err)
	}
	if all.TCP.Listen == "" || len(all.Allow) == 0 || all.Audit.Path == "" || all.Metrics.Listen == "" || all.Traces.OTLPEndpoint == "" || len(all.Targets) == 0 || len(all.Profiles) == 0 || len(all.Toxiproxy.Allow) == 0 {
		t.Errorf("an example is missing: %+v", all)
	}
	want.Socket.Path = want.StateDir + "/netemd.sock" // what it is when nothing is said
	all.TCP, all.Allow, all.Metrics, all.Traces, all.Audit.Path = config.TCP{}, nil, config.Metrics{}, config.Traces{}, ""
	all.Targets, all.Profiles, all.Toxiproxy = nil, nil, config.Toxiproxy{}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("what is called the default is not (-default +file):\n%s", diff)
	}
	full, err := config.Default().YAML()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(full)) {
		if key, _, _ := strings.Cut(strings.TrimSpace(line), ":"); !strings.Contains(text, key+":") {
			t.Errorf("the file does not speak of %s", key)
		}
	}
}

// run runs a program in the project's root.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	cmd.Env = slices.DeleteFunc(cmd.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") })
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// files are the paths below a folder.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestInstall(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("needs make")
	}
	dir, bin := t.TempDir(), t.TempDir()
	for _, name := range []string{"netemd", "netemctl"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	install := []string{"-s", "-o", "build", "install", "DESTDIR=" + dir, "PREFIX=/opt/x", "BIN=" + bin}
	run(t, "make", install...)
	want := []string{
		"/etc/netemd/netemd.yaml", "/opt/x/bin/netemctl", "/opt/x/bin/netemd",
		"/opt/x/lib/systemd/system/netemd.service", "/opt/x/lib/sysusers.d/netemd.conf",
	}
	if diff := cmp.Diff(want, files(t, dir)); diff != "" {
		t.Fatalf("installed (-want +got):\n%s", diff)
	}
	installed := file(t, dir+"/opt/x/lib/systemd/system/netemd.service")
	if strings.Contains(installed, "/usr/bin/") || strings.Count(installed, "/opt/x/bin/netemd") != 2 {
		t.Errorf("the unit does not start the program that was installed:\n%s", installed)
	}
	conf := dir + "/etc/netemd/netemd.yaml"
	if err := os.WriteFile(conf, []byte("repair: true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "make", install...)
	if got := file(t, conf); got != "repair: true\n" {
		t.Errorf("a second installation wrote over the configuration: %q", got)
	}
	uninstall := []string{"-s", "uninstall", "DESTDIR=" + dir, "PREFIX=/opt/x"}
	run(t, "make", uninstall...)
	if diff := cmp.Diff([]string{"/etc/netemd/netemd.yaml"}, files(t, dir)); diff != "" {
		t.Errorf("after uninstall, with a configuration of one's own (-want +got):\n%s", diff)
	}
	if err := os.WriteFile(conf, []byte(file(t, root+"/packaging/netemd.yaml")), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "make", uninstall...)
	if _, err := os.Stat(filepath.Dir(conf)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the configuration: %v", err)
	}
}

// systemd itself finds nothing wrong with the unit, where it is installed.
func TestSystemdVerifies(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze (package systemd)")
	}
	dir, bin := t.TempDir(), t.TempDir()
	if err := os.WriteFile(bin+"/netemd", []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	name := dir + "/netemd.service"
	text := strings.ReplaceAll(file(t, root+"/packaging/netemd.service"), "/usr/bin/", bin+"/")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := run(t, "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", name); strings.Contains(out, "netemd.service") {
		t.Errorf("systemd-analyze verify:\n%s", out)
	}
	// And it would.
	bad := strings.Replace(text, "KillMode=", "KilMode=", 1)
	if err := os.WriteFile(name, []byte(bad), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", name).CombinedOutput()
	if !strings.Contains(string(out), "KilMode") {
		t.Errorf("systemd-analyze does not see a wrong key: %v\n%s", err, out)
	}
}

func TestGroup(t *testing.T) {
	group := config.Default().Socket.Group
	if !regexp.MustCompile(`(?m)^g ` + group + ` -$`).MatchString(file(t, root+"/packaging/netemd.sysusers")) {
		t.Errorf("no group %s", group)
	}
	if _, err := exec.LookPath("systemd-sysusers"); err != nil {
		t.Skip("needs systemd-sysusers")
	}
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/etc", 0o755); err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(root + "/packaging/netemd.sysusers")
	if err != nil {
		t.Fatal(err)
	}
	run(t, "systemd-sysusers", "--root="+dir, path)
	if got := file(t, dir+"/etc/group"); !strings.HasPrefix(got, group+":") {
		t.Errorf("systemd-sysusers made %q", got)
	}
}

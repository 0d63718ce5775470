package arch

import (
	"slices"
	"strings"
	"testing"
)

// allowed are the imports of our own that a room may have; its tests may have
// more. A name ending in "/" stands for everything below it. A room that is not
// here fails the test: put it in on purpose.
var allowed = map[string][]string{
	"api/netem/v1": {},
	"qdisc":        {},
	"namespaces":   {},
	"probe":        {},
	// The probes of protocols that pass a policy's deadline and key on ask its package for them.
	"probe/": {"probe", "probe/policy", "probe/grpc/echo"},
	// Faults in the tests of others: a client of an agent that may be in the same process.
	"netemtest":        {"internal/agent", "internal/child", "internal/client", "internal/config", "internal/container", "internal/content", "internal/experiment", "internal/fault", "internal/feature", "internal/lab", "internal/lab/labfile", "internal/target", "namespaces", "qdisc"},
	"test/":            {"api/", "internal/", "qdisc", "namespaces", "probe", "probe/", "test/"},
	"cmd/netemctl":     {"internal/cli", "internal/client", "internal/version"},
	"cmd/netemd":       {"internal/agent", "internal/child", "internal/config", "internal/fault", "internal/version", "qdisc"},
	"internal/child":   {"namespaces"},
	"internal/version": {},
	"internal/target":  {"internal/cgroup", "namespaces", "qdisc"},
	// Groups of processes, by path and by unit; plain types for both sides of the socket.
	"internal/cgroup": {"qdisc"},
	"internal/fault":  {"internal/content", "internal/schedule", "internal/target", "qdisc"},
	// A fault that changes by a timetable, as a function of time.
	"internal/schedule": {"qdisc"},
	// Impairments with a name, and where their numbers come from.
	"internal/profile": {"internal/impairment", "internal/strictyaml", "qdisc"},
	// A timetable as a file says it.
	"internal/schedule/": {"internal/impairment", "internal/profile", "internal/schedule", "internal/strictyaml", "qdisc"},
	// A client policy as a file says it.
	"internal/policyfile": {"internal/strictyaml", "probe", "probe/policy", "qdisc"},
	// Which packets a deterministic fault acts on; plain types, for both sides of the socket.
	"internal/content": {"internal/ether", "qdisc"},
	// The link layer of a packet, for both of the rooms that read one.
	"internal/ether": {},
	"internal/lab":   {"internal/child", "internal/failpoint", "internal/lab/service", "internal/target", "internal/testbed/control", "internal/testbed/settings", "namespaces", "qdisc"},
	// Runs one service, and knows no lab.
	"internal/lab/service": {"internal/child", "internal/monotonic", "namespaces"},
	"internal/lab/":        {"internal/child", "internal/impairment", "internal/lab", "internal/lab/examples", "internal/strictyaml", "internal/target", "internal/testbed/settings", "namespaces", "qdisc"},
	"internal/lease":       {"internal/content", "internal/failpoint", "internal/fault", "internal/monotonic", "internal/schedule", "internal/target", "namespaces", "qdisc"},
	// The clock that events and records are told by.
	"internal/monotonic": {},
	// Where tests have the process killed.
	"internal/failpoint": {},
	// What is being done to the kernel, on disk; it declares no interface and knows no engine.
	"internal/journal": {"internal/fault", "internal/monotonic", "internal/target", "namespaces", "qdisc"},
	// Engines know what a fault is and where; never who holds it.
	"internal/engine/": {"internal/child", "internal/content", "internal/engine/ebpf/model", "internal/failpoint", "internal/fault", "internal/match", "internal/target", "namespaces", "qdisc"},
	// What makes services fail tells their keepers to.
	"internal/engine/process": {"internal/fault", "internal/lab/service", "internal/monotonic"},
	// Containers and their processes, without the libraries of what runs them.
	"internal/container": {"qdisc"},
	// Where the packets of what a name stands for pass.
	"internal/location": {"internal/cgroup", "internal/container", "internal/fault", "internal/target", "namespaces", "qdisc"},
	// What a match selects, as Go and as a program for the kernel; for both engines.
	"internal/match": {"internal/ether", "internal/target"},
	// What a verification found, for both sides of the socket.
	"internal/fidelity": {},
	// Sends numbered packets through a fault and judges what arrives.
	"internal/verify":   {"internal/fault", "internal/fidelity", "internal/match", "internal/target", "namespaces", "qdisc"},
	"internal/offload":  {"internal/failpoint", "internal/fault", "internal/target", "namespaces"},
	"internal/prober":   {"internal/child", "internal/content", "internal/evidence", "internal/policyfile", "namespaces", "probe", "probe/grpc", "probe/http", "probe/load", "probe/policy", "probe/postgres", "probe/tcp", "probe/udp"},
	"internal/evidence": {"internal/child", "namespaces", "probe"},
	// The answers are plain types; what tries the kernel stands below them.
	"internal/feature":  {"internal/fault"},
	"internal/feature/": {"internal/cgroup", "internal/engine/", "internal/evidence", "internal/fault", "internal/feature", "internal/match", "internal/target", "namespaces", "qdisc"},
	"internal/wire":     {"internal/profile", "internal/schedule", "api/", "internal/content", "internal/fault", "internal/feature", "internal/lab", "internal/lab/labfile", "internal/target", "probe", "qdisc"},
	"internal/client":   {"internal/profile", "api/", "internal/content", "internal/fault", "internal/feature", "internal/lab", "internal/lab/labfile", "internal/target", "internal/fidelity", "internal/wire", "probe", "qdisc"},
	// Who may do what, the configuration that says so, and the log of who did.
	"internal/access": {"internal/fault", "qdisc"},
	"internal/config": {"internal/access", "internal/fault", "internal/profile", "internal/strictyaml", "qdisc", "internal/target"},
	// How every file of ours is read, and what is wrong with one is said.
	"internal/strictyaml": {"qdisc"},
	// An impairment as those files say it.
	"internal/impairment": {"qdisc"},
	"internal/audit":      {"internal/monotonic"},
	// Metrics and traces: what the agent does, for others to see. The books of the faults
	// know nothing of it; it stands around what they work with.
	"internal/telemetry": {"api/", "internal/config", "internal/content", "internal/fault", "internal/lease", "internal/target", "internal/version", "qdisc"},
	"internal/agent": {"internal/cgroup", "internal/profile", "api/", "internal/access", "internal/audit", "internal/child", "internal/config", "internal/journal", "internal/content", "internal/engine/", "internal/evidence", "internal/failpoint", "internal/fault", "internal/feature", "internal/feature/",
		"internal/lab", "internal/lab/", "internal/lease", "internal/location", "internal/container", "internal/offload", "internal/policyfile", "internal/prober", "internal/target", "internal/telemetry", "internal/testbed", "internal/verify", "internal/version", "internal/wire", "namespaces", "probe", "qdisc"},
	// What must hold of the numbers of an experiment, as one line.
	"internal/kpi": {"internal/strictyaml", "qdisc"},
	// What a run of somebody's tests said.
	"internal/suite":           {},
	"internal/experiment":      {"internal/suite", "internal/experiment/plan", "internal/fault", "internal/kpi", "probe", "probe/policy", "qdisc"},
	"internal/experiment/plan": {"internal/content", "internal/fault", "internal/impairment", "internal/kpi", "internal/policyfile", "internal/strictyaml", "internal/testbed/settings", "probe", "probe/policy", "qdisc"},
	"internal/catalogue":       {"internal/experiment/plan", "internal/strictyaml", "qdisc"},
	// Servers that answer with what they were asked, and their contract.
	"internal/testbed": {"internal/child", "internal/testbed/control", "internal/testbed/settings", "probe", "probe/grpc/echo", "probe/http", "probe/policy", "probe/tcp", "probe/udp"},
	// How such a server is looked at and set, and what an http-tier does, for both sides.
	"internal/testbed/control":  {},
	"internal/testbed/settings": {"internal/policyfile", "internal/strictyaml", "probe/policy", "qdisc"},
	"internal/report":           {"internal/suite", "internal/experiment", "internal/fault", "internal/kpi", "internal/version", "probe", "qdisc"},
	"internal/cli": {"internal/suite", "internal/profile", "internal/schedule", "internal/schedule/", "internal/catalogue", "internal/client", "internal/content", "internal/experiment", "internal/experiment/plan", "internal/fault", "internal/feature", "internal/kpi", "internal/lab", "internal/lab/labfile",
		"internal/policyfile", "internal/strictyaml", "internal/testbed/control", "internal/report", "internal/target", "internal/fidelity", "internal/version", "namespaces", "probe", "probe/policy", "qdisc"},
	"internal/testenv": {"internal/feature", "namespaces", "qdisc"},
	// Certificates for tests of TLS.
	"internal/testenv/testca": {},
}

// rule finds the entry for a package: its own name, or the longest prefix.
func rule(pkg string) (key string, imports []string, ok bool) {
	if imports, ok = allowed[pkg]; ok {
		return pkg, imports, true
	}
	for k, v := range allowed {
		if strings.HasSuffix(k, "/") && strings.HasPrefix(pkg, k) && len(k) > len(key) {
			key, imports, ok = k, v, true
		}
	}
	return key, imports, ok
}

func TestImportEdges(t *testing.T) {
	for _, goos := range []string{"linux", "darwin"} {
		pkgs := list(t, goos, "./...")
		if len(pkgs) < 10 {
			t.Fatalf("%s: go list found %d packages", goos, len(pkgs))
		}
		for _, p := range pkgs {
			from := strings.TrimPrefix(p.ImportPath, module+"/")
			key, may, ok := rule(from)
			if !ok {
				t.Errorf("%s: a new room: say in test/arch what it may import", from)
				continue
			}
			for _, imp := range p.Imports {
				to, ours := strings.CutPrefix(imp, module+"/")
				if !ours {
					continue
				}
				if !slices.ContainsFunc(may, func(m string) bool {
					return m == to || strings.HasSuffix(m, "/") && strings.HasPrefix(to, m)
				}) {
					t.Errorf("%s imports %s; %s may import: %s", from, to, key, strings.Join(may, ", "))
				}
			}
		}
	}
}

// netemctl starts quickly and runs on machines where no engine does.
func TestNetemctlLinksNoEngine(t *testing.T) {
	for _, goos := range []string{"linux", "darwin"} {
		deps := list(t, goos, "-deps", "./cmd/netemctl")
		if len(deps) < 20 {
			t.Fatalf("%s: go list -deps found %d packages", goos, len(deps))
		}
		for _, p := range deps {
			for _, heavy := range []string{
				"github.com/cilium/ebpf", "github.com/Shopify/toxiproxy", "github.com/jackc/pgx",
				"github.com/prometheus", "go.opentelemetry.io", module + "/internal/telemetry",
				module + "/internal/engine/", module + "/internal/evidence", module + "/internal/agent", module + "/internal/lease",
			} {
				if strings.HasPrefix(p.ImportPath, heavy) {
					t.Errorf("%s: netemctl links %s (go list -deps ./cmd/netemctl)", goos, p.ImportPath)
				}
			}
		}
	}
}

// What the agent shows of itself is no part of what it does: only one room knows how
// that is done, the others have hooks at most.
func TestOneRoomMeasures(t *testing.T) {
	found := false
	for _, p := range list(t, "linux", "./...") {
		for _, imp := range p.Imports {
			if !strings.HasPrefix(imp, "github.com/prometheus/") && !strings.HasPrefix(imp, "go.opentelemetry.io/") {
				continue
			}
			if found = true; p.ImportPath != module+"/internal/telemetry" {
				t.Errorf("%s imports %s", p.ImportPath, imp)
			}
		}
	}
	if !found {
		t.Error("nobody measures")
	}
}

func TestRule(t *testing.T) {
	for pkg, want := range map[string]string{
		"internal/engine/netem": "internal/engine/",
		"internal/lab":          "internal/lab",
		"internal/lab/x":        "internal/lab/",
		"internal/nope":         "",
	} {
		if got, _, _ := rule(pkg); got != want {
			t.Errorf("rule(%q) = %q, want %q", pkg, got, want)
		}
	}
}

package cli

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/client"
	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/feature"
	"netemd/internal/fidelity"
	"netemd/internal/profile"
	"netemd/qdisc"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var unreachable = fault.WithHint(fmt.Errorf("%w: nothing listens at /run/netemd/netemd.sock", client.ErrUnreachable), "start it with: netemd")

// TestGolden runs command lines one after the other in one world, and compares all
// that they print, and their exit codes, with testdata/NAME.golden.
func TestGolden(t *testing.T) {
	sound := feature.Report{
		Kernel: "6.12.0", Features: []feature.Feature{{Name: "sch_netem", State: feature.Yes}, {Name: "tcx", State: feature.Yes}, {Name: "tun", State: feature.Yes}},
		Auto: fault.Netem, AutoReason: "a try in a scratch namespace succeeded",
	}
	for _, c := range []struct {
		name  string
		world world
		lines []string
	}{
		{name: "help", lines: []string{"--help", "help exit-codes", "show --help", "stats --help", "clear --help", "loss --help", "apply --help", "verify --help", "toxic --help", "toxic latency --help", "compare --help", "lab exec --help", "help lab exec", "help lab exec x"}},
		{name: "profile", world: world{agent: &fakeAgent{profiles: []profile.Profile{{Name: "office", Summary: "the line", Uplink: qdisc.Netem{Delay: time.Second}}}}}, lines: []string{
			"profile list", "profile show 3g", "profile show office", "profile show ./testdata/mine.yaml", "profile show ./testdata/mine.yaml -o json", "profile show lossy-wifi",
			"apply --profile 3g --target pg --dry-run", "apply --profile 3g --target pg --direction to --dry-run", "apply --profile 3g --link-of target --direction to --target pg --dry-run",
			"apply --profile cross-az --target pg --loss 1% --dry-run", "apply --profile 3g --rate 5mbit --queue 100ms --target pg --dry-run", "apply --profile ./testdata/mine.yaml --target pg", "list", "show f1", "show f1 -o json",
			"apply --profile office --target pg --direction from", "change f1 --loss 5%",
			"profile show 5g", "profile", "profile show ./testdata/none.yaml", "profile show ./testdata/bad-profile.yaml", "apply --profile 5g --target pg", "apply --link-of target --loss 1% --target pg",
			"apply --profile 3g --dev lo --dry-run", "loss 5% --profile 3g --target pg",
		}},
		{name: "policy", lines: []string{
			"policy --help", "policy example", "policy example breaker", "policy example breakr", "policy example a b", "policy check everything", "policy check none", "policy check everything -o json",
			"policy check naive-retry", "policy check full-jitter", "policy check hedge", "policy check ./testdata/bad-policy.yaml", "policy check ./testdata/no-policy.yaml", "policy check braker", "policy check", "policy",
		}},
		{name: "process", world: world{agent: &fakeAgent{}}, lines: []string{
			"process --help", "process kill --help", "process restart --help",
			"process kill pg/postgres --dry-run", "process kill web/a web/b web/c --every 1.5s --jitter 20% --count 8 --seed 7 --dry-run", "process stop web/a --every 1s --down 300ms --dry-run", "process restart web/a web/b --every 5s --count 2 --dry-run -o json",
			"process stop pg/postgres --down 0s", "list", "show f1", "show f1 -o json", "process kill web/a -- true",
			"process kill", "process kill web/a/b", "process kill web/a web/a", "process kill web/a --count 3", "process kill web/a --every 1s --down 2s", "process kill web/a --every 1s --down 0s", "process kill web/a --at-most 2",
			"process kill web/a --jitter 60% --every 1s", "process kil web/a", "process kill web/a -o json -- true",
		}},
		{name: "run", world: world{agent: &fakeAgent{}}, lines: []string{
			"run --help", "run testdata/tail-plan.yaml", "run testdata/tail-plan.yaml --repeats 1 --seed 9 -o json", "run testdata/tail-plan.yaml --quick --dry-run", "run testdata/tail-plan.yaml --dry-run -o json", "run testdata/bad-plan.yaml", "run testdata/none.yaml", "run", "run testdata/tail-plan.yaml --repeats 0", "run pg/los-tail", "run [", "run --all x", "run testdata/tail-plan.yaml testdata/tail-plan.yaml -o jsonl", "list",
			"catalogue", "catalogue pg/baseline", "catalogue pg/*", "catalogue x", "catalogue -o json",
		}},
		{name: "schedule", world: world{agent: &fakeAgent{}}, lines: []string{
			"apply --schedule testdata/brownout.yaml --target pg --dry-run", "apply --schedule testdata/brownout.yaml --seed 4 --target pg --dry-run", "apply --schedule testdata/short.yaml --target pg --dry-run -o json", "apply --schedule testdata/flaps.yaml --target pg --dry-run",
			"apply --schedule testdata/short.yaml --target pg", "list", "show f1", "show f1 -o json", "apply --schedule testdata/short.yaml --target pg -- true",
			"apply --schedule testdata/bad-schedule.yaml --target pg", "apply --schedule testdata/none.yaml --target pg", "apply --schedule testdata/short.yaml --loss 5% --target pg",
			"apply --schedule testdata/short.yaml --profile 3g --target pg", "apply --schedule testdata/short.yaml --verify --target pg", "apply --schedule testdata/short.yaml",
		}},
		{name: "refused", lines: []string{
			"loss 20", "loss 120%", "loss -1%", "loss -1% --target pg", "loss 1,5% --target pg", "loss 0.1 --target pg", "loss NaN% --target pg",
			"loss --target pg", "loss 20% 30% --target pg", "loss 20%", "delay 5", "delay -5ms --target pg", "loss 0% --target pg",
			"apply --loss 20 --target pg", "apply --loss -1% --target pg", "apply --target pg", "apply --target pg --delay 10ms --limit 0",
			"apply --target pg --jitter 5ms", "loss 20% --target pg --direction up", "loss 20% --target pg --engine iptables",
			"loss 20% --target pg --ttl 5", "loss 20% --target pg --ttl 0s", "loss 20% --target pg --ttl 25h", "loss 20% --target pg --seed x",
			"loss 20% --target pg --seed 0", "loss 20% --target pg --limit -1", "loss 20% --target pg --limit abc", "loss 1e2% --target pg", "loss 0.00000001% --target pg",
			"los 20%", "frobnicate", "lab ups", "target", "help frob", "help toxic frob", "completion tcsh", "completion", "lab", "toxic", "probe", "loss 20% --los 3%", "-o yaml list", "watch -o json", "clear", "clear f1 --all",
			"change f1", "list x", "list -- x", "toxic latency --target pg", "toxic bandwidth --rate 1mbps --target pg",
			"toxic limit_data --bytes 200 --target pg", "toxic slow_close --target pg", "toxic slow_close --delay 1 --target pg", "toxic timeout --seed 7 --target pg", "toxic timeout --toxicity 30% --seed 0 --target pg", "toxic timeout --toxicity 30% --seed 7 --toxiproxy 127.0.0.1:8474 --proxy x", "probe pg --target pg -n 0", "probe pg", "lab exec server",
			"lab exec server --", "lab exec server -o json -- true", "loss 20% --target pg --", "loss 20% --target pg -o json -- true", "toxic down --target pg -o jsonl -- true", "doctor --engine stream",
			"loss 20% --target pg --dev v0", "loss 20% --target pg --port 80", "loss 20% --target pg --netns blue", "loss 20% --target pg --direction egress", "loss 20% --dev v0 --direction up",
			"loss 20% --dev v0 --port 0", "loss 20% --dev v0 --port 80-70", "loss 20% --dev v0 --port 80,", "loss 20% --dev v0 --dst 192.0.2.1/24", "loss 20% --dev v0 --dst 192.0.2", "loss 20% --dev v0 --protocol ip",
			"loss 20% --dev v0 --protocol icmp --port 80", "loss 20% --dev v0 --control --port 80", "loss 20% --dev v0@blue", "loss 20% --dev v0 --netns ../x", "loss 20% --dev=", "loss 20% --dev v0 --force all", "loss 20% --dev v0 --offload on",
			"loss 20% --dev v0 --dst 192.0.2.1 --src 2001:db8::1 --dry-run", "loss 20% --dev v0 --verify --dry-run", "clear --netns blue", "clear --dev v0 --all", "clear --dev v0 --netns=",
			"loss 20% --dev v0 --netns=", "loss 20% --dev v0 --dev lo", "loss 20% --dev v0 --netns blue --netns green", "clear --target pg --target x", "show \"\"", "clear \"\"", "change \"\" --loss 1%", "loss 20% --target pg --ttl 0", "verify f1 --timeout 0",
			"apply --target pg --loss-gemodel 1%", "apply --target pg --loss-gemodel 1,10", "apply --target pg --loss-state 1%,2%", "apply --target pg --loss 1% --loss-gemodel 1%,10%", "apply --target pg --slot fast",
			"apply --target pg --slot-distribution uniform,10ms,1ms", "apply --target pg --slot 1ms --slot-distribution normal,10ms,1ms", "rate 10mbps --target pg", "rate 0bit --target pg", "rate 7bit --target pg", "apply --delay 10ms --cell-size 48 --target pg", "apply --target pg --delay 10ms --queue 10ms",
			"apply --target pg --loss 5% --expect-rate 1gbit", "rate 10mbit --target pg --queue 200ms --limit 5", "apply --target pg --delay 10ms --rate 1mbit --queue 1s --expect-rate 1mbit", "apply --target pg --ecn --delay 10ms",
			"delay 10ms --jitter 1ms --distribution custom --target pg", "delay 10ms --jitter 1ms --distribution-file /no/such/file --target pg", "verify f1 --timeout 0s",
		}},
		{name: "plan", lines: []string{
			"loss 20% --target pg --dry-run", "loss 20% --target pg --dry-run -o json", "loss 20% --target pg --dry-run --engine netem -o jsonl",
			"delay 100ms --jitter 20ms --target pg --dry-run --engine netem --direction both -o json",
			"reorder 25% --delay 10ms --target pg --dry-run --engine ebpf -o json", "partition --target pg --direction from --dry-run",
			"loss 20% --target nope --dry-run", "loss 20% --seed 7 --target pg --dry-run", "loss 20% --seed 7 --target pg --direction both --dry-run", "delay 5m --jitter 100ns --target pg --dry-run",
			"delay 20ms --jitter 7us --target pg --dry-run", "delay 274s --jitter 64us --target pg --dry-run",
			"duplicate 1% --duplicate-correlation 5% --target pg --dry-run",
		}},
		{name: "plan-device", lines: []string{
			"loss 20% --dev v0 --dry-run", "loss 20% --dev v0 --netns blue --port 5432 --dry-run --engine netem -o json",
			"delay 100ms --dev lo --dry-run", "delay 100ms --dev lo --protocol tcp --port 5432 --direction both --dry-run", "delay 100ms --dev lo --direction both --dry-run", "delay 100ms --dev lo --direction from --dry-run",
			"loss 100% --dev v0 --dst 192.0.2.10 --exclude-port 22,9526 --dry-run", "loss 1% --dev v0 --dst db.example --protocol udp --direction ingress --dry-run",
			"loss 1% --dev v0 --dst nowhere.example --dry-run", "loss 1% --dev v0 --protocol icmpv6 --control --dry-run", "partition --dev v0 --control --direction both --force ssh,default-route --dry-run",
			"loss 20% --dev v0 --offload off --engine ebpf --dry-run", "loss 20% --dev v0 --netns blue --port 80 --offload off --engine ebpf --dry-run -o json", "loss 1% --dev v0 --protocol 47 --src 2001:db8::/32 --dry-run --engine ebpf", "loss 1% --dev v0 --protocol 136 --port 80 --src-port 1000-2000 --dry-run",
		}},
		{name: "models", lines: []string{
			"apply --target pg --loss-gemodel 1%,10% --dry-run", "apply --target pg --loss-gemodel 1%,10%,90%,0.1% --ecn", "apply --target pg --loss-state 1%,10%,0%,100%,0% --dry-run",
			"rate 300kbit --target pg --queue 200ms --dry-run", "rate 300kbit --target pg --delay 100ms", "apply --rate 300kbit --delay 100ms --queue 200ms --target pg", "delay 100ms --expect-rate 1gbit --target pg", "delay 1ms --expect-rate 1mbit --target pg --dry-run", "delay 100s --expect-rate 10000gbit --target pg --dry-run",
			"delay 100ms --jitter 20ms --preserve-order --target pg --dry-run", "apply --rate 10mbit --packet-overhead -4 --cell-size 48 --cell-overhead 5 --target pg",
			"apply --slot 10ms,20ms --slot-packets 5 --slot-bytes 64kB --target pg --dry-run", "apply --slot-distribution normal,20ms,5ms --target pg",
			"change f1 --loss 5%", "change f1 --loss-state 1%,10%,0%,100%,0% --ecn=false", "show f1", "show f1 -o json", "change f2 --queue 100ms", "change f2 --rate 0bit", "change f4 --slot 0ms", "change f5 --slot-packets 3",
		}},
		{name: "tc", lines: []string{
			"apply --target pg --tc \"delay 100ms 20ms loss 5%\"", "change f1 --tc \"loss 10%\"", "change f1 --tc \"loss 0% del 50ms\"", "change f1 --tc \"reorder 25%\"", "loss 5% --target pg", "change f2 --tc \"reorder 25%\"", "apply --target pg --tc \"reorder 25%\"", "apply --target pg --tc \"\"", "delay 1ms --jitter 1ms --distribution-file \"\" --target pg", "apply --target pg --tc \"loss 5% loss 6%\"", "apply --target pg --tc \"dlay 100ms\"", "apply --target pg --tc \"loss 5%\" --delay 10ms",
			"apply --target pg --tc \"loss gemodel 1% 10%\" --dry-run",
		}},
		{name: "drop", world: world{agent: &fakeAgent{matched: 3121, log: chosenLog(2)}}, lines: []string{
			"drop --help", "drop syn --count 2 --target pg", "hold data:3 --for 200ms --target pg --direction both", "hold match 'tcp.len > 100' --for 1s --count 1 --per-connection --dev v0 --netns blue --port 80",
			"drop every:2 --per-connection --dev v0 -o json", "list", "show f1", "show f2", "show f1 -o json", "stats", "packets --help", "packets f1", "packets f1 -o json", "packets f1 -o jsonl", "packets f1 --follow", "packets f1 --follow -o jsonl",
			"packets f1 --follow -o json", "packets", "packets f99", "change f1 --loss 5%", "renew f1", "drop syn --count 1 --target pg -- true", "clear f1", "packets f1", "clear --target pg", "clear --all",
		}},
		{name: "drop-many", world: world{agent: &fakeAgent{log: content.Log{Records: chosenLog(13).Records, Chosen: 20_000, Missed: 7, Skipped: 3, Forgotten: 5}}}, lines: []string{
			"drop rst --target pg -- true", "packets f1", "packets f1 --follow", "packets f1 --follow -o jsonl",
		}},
		{name: "drop-none", world: world{agent: &fakeAgent{}, code: 3}, lines: []string{"drop rst --target pg -- true", "packets f1 -o json", "show f1", "drop rst --target pg", "show f2", "packets f2", "packets f2 -o json"}},
		{name: "drop-plan", lines: []string{
			"drop syn --count 1 --target pg --dry-run", "drop syn --count 1 --target pg --dry-run -o json", "hold data:2 --for 20ms --count 1 --dev v0 --direction both --dry-run", "drop match 'udp.len > 100' --dev v0 --netns blue --protocol udp --offload off --dry-run -o json",
			"drop syn --dev v0 --tcp-flags syn,!ack --tcp-flags !ece --dry-run", "loss 1% --dev v0 --tcp-flags syn,!ack --port 80 --dry-run", "loss 1% --dev v0 --tcp-flags rst --dst db.example --engine ebpf --dry-run -o json", "drop syn --target pg --engine netem --dry-run", "drop syn --target nope --dry-run",
		}},
		{name: "drop-refused", lines: []string{
			"drop", "drop --target pg", "drop syn", "drop sin --target pg", "drop syn ack --target pg", "drop syn:2 --target pg", "drop data --target pg", "drop data:0 --target pg", "drop every:x --target pg", "drop match --target pg", "drop match 'tcp.len >' --target pg", "drop match tcp.len > 5 --target pg",
			"drop match 'tcp.foo > 1' --target pg", "drop syn --count 0 --target pg", "drop syn --count 3000000000 --target pg", "drop syn --per-connection --target pg", "drop syn --for 1s --target pg", "hold syn --target pg", "hold syn --for 0s --target pg", "hold syn --for 200 --target pg", "hold syn --for 2m --target pg", "hold syn --for 1us --target pg", "drop match foo --target pg", "drop syn --tcp-flags ack --dev v0 --dry-run", "drop rst --tcp-flags !rst --dev v0 --dry-run",
			"drop syn --target pg --engine netem", "drop syn --target pg --engine stream", "drop syn --dev v0 --protocol udp", "drop syn --target pg --tcp-flags syn", "drop syn --dev v0 --tcp-flags sin", "loss 1% --dev v0 --tcp-flags syn --protocol udp", "loss 1% --dev v0 --tcp-flags syn,!syn", "loss 1% --dev v0 --tcp-flags syn --tcp-flags !syn", "drop syn --target pg --verify", "drop syn --target pg -o json -- true", "drop syn --target pg --",
		}},
		{name: "devices", lines: []string{
			"loss 20% --dev v0 --netns blue --protocol tcp --dst 192.0.2.0/24,db.example --port 80 --port 8000-8100 --exclude-dst 192.0.2.7 --force ssh --offload off",
			"list", "show f1", "show f1 -o json", "loss 1% --dev v0 --direction ingress", "clear --dev v0", "clear --dev v0 --netns blue", "clear --dev v0 --netns blue",
		}},
		{name: "stats", world: world{agent: &fakeAgent{matched: 3121, queued: 12, missing: []string{"overflow", "delayed"}}}, lines: []string{
			"stats", "stats -o json", "loss 20% --target pg", "toxic down --target pg", "stats f1", "stats f1 -o json", "stats", "stats -o jsonl", "stats f2", "stats f9", "stats f1 f2",
		}},
		{name: "app", world: world{agent: &fakeAgent{matched: 200}}, lines: []string{
			"app --help", "app error --help", "app error --status 503 --rate 20% --retry-after 1s --target pg",
			"app apply --error \"20% 503 UNAVAILABLE\" --delay \"20% 300ms jitter=50ms\" --abort 5% --pushback 500ms --method GET --path '/pay/*' --header a=b --seed 7 --target pg -o json",
			"list", "show f1", "show f2", "stats", "loss 20% --target pg", "stats", "stats f1 -o json", "app abort --rate 5% --target pg -- true", "clear --all",
		}},
		{name: "app-none", world: world{agent: &fakeAgent{}}, lines: []string{"app delay 300ms --target pg -- true"}},
		{name: "app-plan", lines: []string{
			"app error --status 503 --rate 20% --target http --dry-run", "app delay 300ms --jitter 50ms --rate 20% --seed 7 --target http --dry-run", "app abort --rate 5% --seed 7 --target echo/grpc --dry-run -o json",
			"app abort --target pg --dry-run", "app abort --target nope --dry-run",
		}},
		{name: "app-refused", lines: []string{
			"app", "app error --target pg", "app error --status 503", "app error --status 200 --target pg", "app error --status 503 --rate 20 --target pg", "app error --status 503 --rate 0% --target pg",
			"app error --code NOPE --target pg", "app error --code INTERNAL --retry-after 1s --target pg", "app error --status 503 --retry-after 500ms --target pg", "app error --status 503 --pushback 1s --target pg",
			"app delay --target pg", "app delay 300 --target pg", "app delay 10ms --jitter 20ms --target pg", "app delay 0s --target pg", "app abort --rate 101% --target pg", "app abort x --target pg",
			"app apply --target pg", "app apply --error 503 --target pg", "app apply --error \"60% 503\" --delay \"50% 300ms\" --target pg", "app apply --abort 5% --retry-after 1s --target pg",
			"app abort --method get --target pg", "app abort --path pay --target pg", "app abort --header a --target pg", "app abort --header a=b --header A=c --target pg", "app abort --seed 0 --target pg",
			"app abort --dev v0", "app abort --target pg -o json -- true",
		}},
		{name: "verify", lines: []string{
			"loss 20% --target pg --verify", "verify f1", "verify f1 -n 1000 --rate 500", "verify f1 -o json", "verify f9", "verify", "verify f1 -n 10", "verify f1 --rate 20001",
			"loss 20% --target pg --verify -- true",
		}},
		{name: "verify-failed", world: world{agent: &fakeAgent{matched: 3121, verdict: fidelity.Fail}}, lines: []string{
			"loss 20% --target pg --verify -o json", "verify f1", "list", "loss 20% --target pg --verify -- true", "list",
		}},
		{name: "verify-inconclusive", world: world{agent: &fakeAgent{matched: 3121, verdict: fidelity.Inconclusive}}, lines: []string{
			"loss 20% --target pg --verify", "verify f1 -o jsonl",
		}},
		{name: "faults", lines: []string{
			"list", "list -o json", "list -o jsonl", "loss 20% --target pg", "delay 100ms --jitter 20ms --target pg --ttl 90s --direction both -o json",
			"toxic latency --latency 300ms --jitter 100ms --target pg", "list", "list -o jsonl", "show f1", "show f1 -o json", "show f9",
			"show f3 -o json", "change f1 --loss 0%", "change f1 --loss 5% --delay 0ms", "renew f1 --ttl 2h", "renew f2", "loss 20% --target nope", "clear f1", "clear f1", "clear f99", "clear --target pg -o json",
			"clear --all",
		}},
		{name: "labs", lines: []string{
			"lab list", "lab show pg", "lab up pg", "lab list", "lab show pg -o json", "lab up nope", "target list", "target list -o json",
			"target resolve pg", "target resolve nope", "lab exec client -- ip addr", "loss 20% --target pg --direction both", "toxic down --target pg", "lab show pg", "lab show pg -o yaml", "lab list -o yaml", "lab diff pg", "lab diff testdata/pg.yaml", "lab diff testdata/pg.yaml -o jsonl", "lab down pg", "lab down pg",
			"lab show pg", "lab show nope",
		}},
		{name: "labfiles", world: world{dialErr: unreachable}, lines: []string{
			"lab up testdata/shop.yaml --dry-run", "lab up testdata/shop.yaml --dry-run -o json --as other", "lab up testdata/bad.yaml", "lab up testdata/bad.yaml --dry-run -o json",
			"lab up testdata/none.yaml", "lab up -", "lab up testdata/shop.yaml", "lab up star --dry-run", "lab up star --as S --dry-run", "lab up nope --dry-run", "lab example ring", "lab example nope", "lab up",
		}},
		{name: "doctor", world: world{stale: []string{"ghost"}}, lines: []string{
			"doctor", "doctor -o json", "doctor --engine auto", "doctor --engine netem", "doctor --engine ebpf",
		}},
		{name: "doctor-sound", world: world{agent: &fakeAgent{features: sound}}, lines: []string{"doctor", "doctor --engine netem"}},
		{name: "no-agent", world: world{dialErr: unreachable}, lines: []string{
			"loss 20% --target pg", "list", "doctor", "lab up pg", "probe pg --target pg", "compare --target pg", "loss 20% --target pg --dry-run -o jsonl",
		}},
		{name: "waiting", world: world{agent: &fakeAgent{matched: 3121, waits: 1}}, lines: []string{"loss 20% --target pg --wait 30s -- true", "loss 20% --target pg --wait 30s --repair"}},
		{name: "waited", world: world{agent: &fakeAgent{waits: 99}}, lines: []string{"loss 20% --target pg --wait 30s", "toxic down --target pg"}},
		{name: "denied-by-rule", world: world{agent: &fakeAgent{err: fault.WithHint(fmt.Errorf("apply: %w: uid 1000 (ci) may not apply on pg", fault.ErrDenied), "a rule would do")}},
			lines: []string{"loss 20% --target pg", "list", "clear --target pg"}},
		{name: "foreign", world: world{agent: &fakeAgent{clearErr: fmt.Errorf("clear: %w: fault f1 belongs to uid 7 (ci)", fault.ErrConflict)}},
			lines: []string{"clear f1", "clear --target pg", "clear --dev v0 --netns blue", "clear --dev v0", "clear --all"}},
		{name: "watch", lines: []string{"watch --after 3", "watch --life bqk", "watch --after 3 --life xyz", "watch --after -1 --life bqk", "watch --after 3 --life \"\"", "watch -o json"}},
		{name: "endpoint", lines: []string{
			"list --socket /a --address b:1", "list --address b", "list --address b:1", "list --tls-cert c", "list --address b:1 --tls-cert c", "list --address b:1 --tls-cert c --tls-key k",
			"doctor --address b:1 --tls-cert c --tls-key k --engine auto", "doctor --address b:1 --tls-cert c --tls-key k -o jsonl",
		}},
		{name: "denied", world: world{dialErr: fault.WithHint(fmt.Errorf("agent socket: %w", fs.ErrPermission), "run as root")}, lines: []string{"loss 20% --target pg"}},
		{name: "unsupported", world: world{agent: &fakeAgent{err: fault.WithHint(fmt.Errorf("netem: kernel 6.18.5 has no sch_netem: %w", errors.ErrUnsupported), "--engine ebpf works here")}},
			lines: []string{"loss 20% --target pg --engine netem"}},
		{name: "conflict", world: world{agent: &fakeAgent{err: fmt.Errorf("%w: f1 of uid 1000 holds pg for 9m more", fault.ErrConflict)}},
			lines: []string{"loss 20% --target pg"}},
		{name: "probe", lines: []string{"probe pg --target pg -n 40", "probe pg --target pg -n 40 -o json", "probe pg --target pg --layer proxy -n 10 -o jsonl"}},
		{name: "compare", lines: []string{
			"compare --target pg", "loss 5% --target pg", "compare --target pg --loss 5%", "clear --all",
			"loss 5% --loss-correlation 25% --target pg", "show f5", "clear --all", "compare --target pg --loss 5% --loss-correlation 25%",
		}},
		{name: "compare-inconclusive", world: world{agent: &fakeAgent{}}, lines: []string{"compare --target pg --loss 20%"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &c.world
			if w.agent == nil {
				w.agent = newFakeAgent()
			}
			var got strings.Builder
			for _, line := range c.lines {
				w.stdout.Reset()
				w.stderr.Reset()
				code := w.run(t.Context(), shellWords(line)...)
				fmt.Fprintf(&got, "$ netemctl %s\n%s", line, w.stdout.String())
				for l := range strings.Lines(w.stderr.String()) {
					fmt.Fprintf(&got, "! %s", l)
				}
				fmt.Fprintf(&got, "=> %d\n\n", code)
			}
			golden(t, c.name, got.String())
		})
	}
}

// chosenLog are the first n packets that a rule chose.
func chosenLog(n int) content.Log {
	log := content.Log{Chosen: uint64(n)}
	for i := range n {
		r := content.Record{
			Time: int64(i+1) * 1e9, Wall: noon.Add(time.Duration(i)*time.Second + 123456789), Source: "10.77.0.1:40000", Destination: "10.77.0.2:5432",
			Protocol: 6, Flags: 0x02, Sequence: 4_294_967_295, Length: 60, Segments: 1,
		}
		switch i {
		case 1: // a super-packet
			r.Flags, r.Sequence, r.Payload, r.Segment, r.Length, r.Segments = 0x18, 7, 4344, 3, 4396, 3
		case 2:
			r = content.Record{Time: r.Time, Wall: r.Wall, Source: "[fd00::1]:53", Destination: "[fd00::2]:53", Protocol: 17, Payload: 12, Length: 60, Segments: 1}
		case 3:
			r = content.Record{Time: r.Time, Wall: r.Wall, Source: "10.0.0.1", Destination: "10.0.0.2", Protocol: 1, Length: 84, Segments: 1}
		}
		log.Records = append(log.Records, r)
	}
	return log
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got (accept with -update):\n%s", diff)
	}
}

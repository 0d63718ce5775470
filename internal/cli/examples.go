package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// examples are what each command's help shows, by the command's path; a test runs
// them through the commands' own parsing.
var examples = map[string]string{
	"": `
netemctl lab up pg                        # a client, a wire and a real PostgreSQL
netemctl compare --target pg --loss 20%   # why packet loss is not latency
netemctl loss 20% --target pg             # every fault ends by itself: --ttl 10m
netemctl clear --all`,

	"run": `
netemctl run --all --quick --dry-run          # what would be run, and how long
netemctl run pg/loss-tail
netemctl run 'pg/*' --repeats 5 --out out/pg
netemctl run ./mine.yaml -o json`,
	"report": `
netemctl report out/run                       # as run said it, and report.html again
netemctl report out/before out/after          # what changed beyond noise
netemctl report out/before out/after -o json`,
	"catalogue schema": `
netemctl catalogue schema > plan.schema.json`,
	"catalogue": `
netemctl catalogue
netemctl catalogue pg/loss-tail > mine.yaml   # to begin one of your own with`,
	"loss": `
netemctl loss 20% --target pg
netemctl loss 20% --target container:web:8080   # or pid:N, host:NAME, ...
netemctl loss 20% --target pg --wait 5m -- go test ./...
netemctl loss 1% --dev eth0 --protocol tcp --port 5432 --dst db.example --dry-run`,
	"delay": `
netemctl delay 100ms --target pg
netemctl delay 100ms --jitter 20ms --distribution normal --target pg
netemctl delay 50ms --direction both --target pg
netemctl delay 100ms --expect-rate 1gbit --dev v0 --netns blue --port 80,8000-8100`,
	"reorder": `
netemctl reorder 25% --delay 10ms --target pg
netemctl reorder 25% --delay 10ms --gap 5 --target pg   # every fifth at most`,
	"duplicate": `
netemctl duplicate 1% --target pg
netemctl duplicate 1% --target pg --direction from   # the answers`,
	"corrupt": `
netemctl corrupt 0.1% --target pg
netemctl corrupt 0.1% --target pg --engine ebpf`,
	"rate": `
netemctl rate 10mbit --target pg --queue 200ms
netemctl rate 1MBps --dev v0 --netns blue --direction ingress`,
	"partition": `
netemctl partition --target pg --ttl 30s --repair
netemctl partition --target pg --direction from   # requests arrive, answers do not
netemctl partition --dev v0 --dst 192.0.2.0/24 --exclude-port 22`,
	"apply": `
netemctl apply --target pg --loss 5% --delay 50ms --jitter 10ms
netemctl apply --target pg --tc "delay 100ms 20ms loss 5%"
netemctl apply --profile satellite --target pg --loss 1%       # both directions
netemctl apply --schedule brownout.yaml --target pg -- ./client`,

	"drop": `
netemctl drop syn --count 1 --target pg -- ./client       # its first connect takes 1s longer
netemctl drop data:3 --count 1 --per-connection --target pg
netemctl drop match 'payload.at(0, "Q")' --target pg      # the simple queries of PostgreSQL
netemctl drop every:100 --dev v0 --netns blue --dry-run`,
	"hold": `
netemctl hold synack --for 200ms --target pg --direction from
netemctl hold data:1 --for 1s --count 1 --target pg -- ./client
netemctl hold match 'tcp.len >= 1000' --for 20ms --dev v0`,

	"toxic": `
netemctl toxic latency --latency 300ms --target pg
netemctl toxic down --target pg -- ./client
netemctl toxic down --toxiproxy http://127.0.0.1:8474 --proxy redis
netemctl toxic down --toxiproxy 127.0.0.1:8474 --listen 127.0.0.1:9 --upstream db.example:5432`,
	"app": `
netemctl app error --status 503 --rate 20% --target http
netemctl app apply --error "20% 503" --delay "20% 300ms" --target http
netemctl app abort --rate 5% --target grpc -- ./client`,
	"app error": `
netemctl app error --status 503 --rate 20% --retry-after 1s --target http
netemctl app error --code UNAVAILABLE --rate 20% --pushback 500ms --target grpc
netemctl app error --status 503 --path '/pay/*' --header x-tenant=a --target http`,
	"app delay": `
netemctl app delay 300ms --rate 20% --target http
netemctl app delay 300ms --jitter 50ms --seed 7 --target http --dry-run`,
	"app abort": `
netemctl app abort --rate 5% --target grpc
netemctl app abort --rate 5% --path '/netemd.testbed.v1.Echo/*' --target grpc -- ./client`,
	"app apply": `
netemctl app apply --error "20% 503" --delay "20% 300ms jitter=50ms" --abort 5% --target http
netemctl app apply --error "20% UNAVAILABLE" --seed 7 --target grpc -- ./client`,
	"toxic apply": `
netemctl toxic apply --toxic "latency latency=300ms" --toxic "bandwidth rate=1mbit to" --target pg
netemctl toxic apply --toxic "slicer average_size=64B toxicity=30%" --target pg -- ./client`,
	"toxic latency": `
netemctl toxic latency --latency 300ms --jitter 100ms --target pg
netemctl toxic latency --latency 300ms --toxicity 10% --target pg`,
	"toxic timeout": `
netemctl toxic timeout --timeout 5s --target pg
netemctl toxic timeout --target pg                # hold connections for ever`,
	"toxic reset_peer": `
netemctl toxic reset_peer --target pg
netemctl toxic reset_peer --toxicity 30% --seed 7 --target pg   # the same ones each time
netemctl toxic reset_peer --timeout 500ms --stream upstream --target pg`,
	"toxic limit_data": `
netemctl toxic limit_data --bytes 200B --target pg
netemctl toxic limit_data --bytes 64KiB --stream upstream --target pg`,
	"toxic bandwidth": `
netemctl toxic bandwidth --rate 100KBps --target pg
netemctl toxic bandwidth --rate 1mbit --stream upstream --target pg`,
	"toxic slicer": `
netemctl toxic slicer --average-size 64B --target pg
netemctl toxic slicer --average-size 64B --size-variation 32B --delay 10ms --target pg`,
	"toxic slow_close": `
netemctl toxic slow_close --delay 2s --target pg
netemctl toxic slow_close --delay 500ms --direction to --target pg`,
	"toxic down": `
netemctl toxic down --target pg --ttl 30s
netemctl toxic down --target pg -- ./client`,

	"process": `
netemctl process kill pg/postgres
netemctl process kill web/api-a web/api-b web/api-c --every 1.5s --count 8 -- ./client`,
	"process kill": `
netemctl process kill pg/postgres --down 5s
netemctl process kill web/a web/b --every 1.5s --jitter 20% --seed 7 --dry-run`,
	"process stop": `
netemctl process stop pg/postgres --down 2s -- ./client
netemctl process stop pg/postgres --down 0s --ttl 30s   # until the fault ends`,
	"process restart": `
netemctl process restart pg/postgres
netemctl process restart web/api-a web/api-b --every 5s --count 4`,

	"change": `
netemctl change kqv1 --loss 5%
netemctl change kqv1 --loss 5% --delay 0ms   # and no delay any more
netemctl change kqv1 --tc "loss 5%"          # the delay stays`,
	"list": `
netemctl list
netemctl list -o jsonl   # one object a line`,
	"show": `
netemctl show kqv1
netemctl show kqv1 -o json`,
	"renew": `
netemctl renew kqv1
netemctl renew kqv1 --ttl 1h`,
	"clear": `
netemctl clear kqv1
netemctl clear --target pg
netemctl clear --dev v0 --netns blue
netemctl clear --all`,
	"stats": `
netemctl stats
netemctl stats kqv1 -o json`,
	"packets": `
netemctl packets kqv1
netemctl packets kqv1 --follow -o jsonl`,
	"verify": `
netemctl verify kqv1
netemctl verify kqv1 -n 100000 --rate 5000 --timeout 1m`,
	"profile": `
netemctl profile list
netemctl profile show satellite`,
	"profile list": `
netemctl profile list
netemctl profile list -o json`,
	"profile show": `
netemctl profile show 3g
netemctl profile show ./mine.yaml`,
	"watch": `
netemctl watch
netemctl watch -o jsonl
netemctl watch --after 41 --life kqv -o jsonl   # what came after number 41`,

	"probe": `
netemctl probe pg --target pg
netemctl probe pg --target pg --rate 50/s --duration 30s --warmup 2s
netemctl probe pg --target pg --policy full-jitter --timeout 500ms`,
	"probe pg": `
netemctl probe pg --target pg -n 200
netemctl probe pg --target pg --layer proxy --concurrency 8 --pace 0s
netemctl probe pg --target pg --mode query --pool 4 --ramp 10..200/30s
netemctl probe pg --target pg --policy breaker --timeout 300ms --out out/probe`,
	"probe tcp": `
netemctl probe tcp --target tcp -n 100
netemctl probe tcp --target tcp --mode echo --keep --rate 200/s --duration 10s
netemctl probe tcp --target tcp --mode bulk --bytes 4MiB -n 20 --concurrency 1`,
	"probe udp": `
netemctl probe udp --target udp --rate 100/s --duration 10s --timeout 1s
netemctl probe udp --target udp --bytes 1200B -n 500 --pace 10ms`,
	"probe http": `
netemctl probe http --target http --path /echo -n 100
netemctl probe http --target http --http 2 --keep --rate 100/s --arrival poisson --duration 20s
netemctl probe http --target http --rate 20/s --spike 200/2s@5s --duration 15s`,
	"probe grpc": `
netemctl probe grpc --target grpc -n 200
netemctl probe grpc --target grpc --mode bidi --messages 100 --bytes 1KiB -n 20`,
	"compare": `
netemctl compare --target pg --loss 5% --delay 20ms
netemctl compare --target pg --loss 20% -n 500 --out out/compare
netemctl compare --target http --probe http --path /delay/5ms --rate 50/s --duration 20s --loss 5%
netemctl compare --target grpc --probe grpc --mode bidi --policy full-jitter --delay 20ms`,

	"lab": `
netemctl lab up pg
netemctl lab example dumbbell > my.yaml
netemctl lab up ./my.yaml --as mine
netemctl lab down pg`,
	"lab up": `
netemctl lab up pg                       # of those that are built in
netemctl lab up ring --as ring2
netemctl lab up ./shop.yaml --dry-run
netemctl lab up -                        # the file comes by standard input`,
	"lab diff": `
netemctl lab diff pg
netemctl lab diff ./shop.yaml
netemctl lab diff ./shop.yaml --as mine`,
	"lab example": `
netemctl lab example three-tier > shop.yaml`,
	"lab schema": `
netemctl lab schema > lab.schema.json`,
	"lab down": `
netemctl lab down pg`,
	"lab list": `
netemctl lab list
netemctl lab list -o json`,
	"lab show": `
netemctl lab show pg
netemctl lab show pg -o yaml > pg.yaml`,
	"lab exec": `
sudo netemctl lab exec client -- psql -h 10.77.0.2 -U postgres
sudo netemctl lab exec --lab pg server -- ss -ti`,
	"lab server": `
netemctl lab server tiers/front
netemctl lab server tiers/front --set ./front.yaml
netemctl lab server tiers/front --reset`,
	"target": `
netemctl target list
netemctl target add web --container web --port 8080`,
	"target add": `
netemctl target add web --container web --port 8080
netemctl target add db --host db.example --port 5432 --protocol tcp
netemctl target add lan --address-in 198.51.100.0/24
netemctl target add api --unit api.service`,
	"target remove": `
netemctl target remove web
netemctl target remove web --force   # clears the faults on it`,
	"target list": `
netemctl target list
netemctl target list -o json`,
	"target resolve": `
netemctl target resolve pg
netemctl target resolve container:web:8080 -o json`,

	"policy": `
netemctl policy example breaker > mine.yaml
netemctl policy check ./mine.yaml`,
	"policy example": `
netemctl policy example                       # the built-in ones
netemctl policy example breaker > mine.yaml   # to begin one of your own with`,
	"policy check": `
netemctl policy check ./mine.yaml
netemctl policy check everything -o json`,
	"policy schema": `
netemctl policy schema > policy.schema.json`,

	"doctor": `
netemctl doctor
netemctl doctor --engine auto    # content with either engine
netemctl doctor --engine netem   # exit code 6 without sch_netem`,
	"version": `
netemctl version
netemctl version -o json`,
	"help": `
netemctl help toxic latency
netemctl help exit-codes`,
	"completion": `
netemctl completion bash > /etc/bash_completion.d/netemctl`,
	"completion bash": `
netemctl completion bash > /etc/bash_completion.d/netemctl`,
	"completion zsh": `
netemctl completion zsh > /usr/share/zsh/site-functions/_netemctl`,
	"completion fish": `
netemctl completion fish > ~/.config/fish/completions/netemctl.fish`,
	"completion powershell": `
netemctl completion powershell > netemctl.ps1`,
}

// showExamples puts the examples into a command's help, and those below it.
func showExamples(cmd *cobra.Command) {
	if text := examples[below(cmd)]; text != "" {
		cmd.Example = strings.TrimPrefix(strings.ReplaceAll(text, "\n", "\n  "), "\n")
	}
	for _, c := range cmd.Commands() {
		showExamples(c)
	}
}

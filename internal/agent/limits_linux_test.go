package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/access"
	"netemd/internal/config"
	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/wire"
	"netemd/qdisc"
)

// dial is a connection without the client's own checks.
func dial(t testing.TB, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// What no request has is refused in words that name the field and the limit, and is written
// down.
func TestRefusedRequests(t *testing.T) {
	log := &logged{}
	a, _ := serveWith(t, Config{Log: log.logger()})
	conn := dial(t, a.cfg.Socket)
	faults, labs := netemv1.NewFaultsClient(conn), netemv1.NewLabsClient(conn)
	apply := func(change func(*netemv1.ApplyRequest)) error {
		r := wire.ApplyRequest(fault.Spec{Target: "pg", Packet: &qdisc.Netem{Loss: 1}})
		change(r)
		_, err := faults.Apply(t.Context(), r)
		return err
	}
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"10 MiB": {apply(func(r *netemv1.ApplyRequest) { r.RequestId = strings.Repeat("x", 10<<20) }),
			"bytes, and the agent takes 1048576 at most (limits.request_bytes of its configuration)"},
		"a long id":   {apply(func(r *netemv1.ApplyRequest) { r.RequestId = strings.Repeat("x", 5000) }), "want a text of at most 4096 bytes, not 5000"},
		"../":         {apply(func(r *netemv1.ApplyRequest) { r.Spec.Target = "../../etc/passwd" }), `target "../../etc/passwd": want a target's name: letters, digits`},
		"a NUL":       {apply(func(r *netemv1.ApplyRequest) { r.Spec.Target = "pg\x00" }), `target "pg\x00": want a target's name`},
		"a NUL in id": {apply(func(r *netemv1.ApplyRequest) { r.RequestId = "a\x00b" }), `request_id "a\x00b": want a text without control characters`},
		"a newline":   {apply(func(r *netemv1.ApplyRequest) { r.Spec.Force = []string{"a\nb"} }), `force[0] "a\nb": want a text without control characters`},
		"a long name": {apply(func(r *netemv1.ApplyRequest) { r.Spec.Target = strings.Repeat("p", 65) }), "want a target's name: letters, digits, '-', '_', '.' and '/', without '..', at most 64"},
		"a namespace": {apply(func(r *netemv1.ApplyRequest) {
			r.Spec.Target, r.Spec.Selector = "", &netemv1.TrafficSelector{Namespace: "../x", Device: "v0"}
		}), `netns "../x": want the name of a network namespace`},
		"a device": {apply(func(r *netemv1.ApplyRequest) {
			r.Spec.Target, r.Spec.Selector = "", &netemv1.TrafficSelector{Device: "../x"}
		}), `dev "../x"`},
		"many entries": {apply(func(r *netemv1.ApplyRequest) { r.Spec.Force = make([]string, 5000) }), "force: want at most 4096 entries, not 5000"},
		"a lab":        {second(labs.Down(t.Context(), &netemv1.LabDownRequest{Name: "../pg"})), `name "../pg": want a name: letters`},
		"a fault":      {second(faults.Get(t.Context(), &netemv1.GetRequest{Id: "a\x1b[2J"})), `id "a\x1b[2J": want the id of a fault`},
		"a cleared device": {second(faults.Clear(t.Context(), &netemv1.ClearRequest{What: &netemv1.ClearRequest_Device{Device: &netemv1.DeviceName{Namespace: "..", Device: "v0"}}})),
			`netns "..": want`},
		"a hold that begins with a renewal": {hold(t.Context(), faults, wire.HoldRenew()), "hold: want apply or resume as the first message"},
		"a hold that resumes nothing":       {hold(t.Context(), faults, wire.HoldResume("zzz1", 1)), "unknown fault"},
		"a lab that is streamed":            {labUp(t.Context(), labs, "a/../b"), `name "a/../b": want a name`},
	} {
		err := wire.ErrorOf(tt.err)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if !strings.HasPrefix(name, "a hold that resumes") && !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	if !says(log.String(), "call refused", "larger than max (10485", "Faults/Apply") {
		t.Error("the request that was too large is not in the log")
	}
}

func second[M any](_ M, err error) error { return err }

func hold(ctx context.Context, c netemv1.FaultsClient, first *netemv1.HoldRequest) error {
	s, err := c.Hold(ctx)
	if err == nil {
		if err = s.Send(first); err == nil {
			_, err = s.Recv()
		}
	}
	return err
}

func labUp(ctx context.Context, c netemv1.LabsClient, name string) error {
	s, err := c.Up(ctx, &netemv1.LabUpRequest{Name: name})
	if err == nil {
		_, err = s.Recv()
	}
	return err
}

// One owner has no more than a quarter of what waits for what comes.
func TestFollowersAreSharedAmongOwners(t *testing.T) {
	a := &Agent{cfg: Config{Settings: settings(func(c *config.Config) { c.Limits.Followers = 8 })}}
	follow := func(uid uint32) (func(), error) {
		return a.follow(&call{peer: peerInfo{uid: uid, owner: "uid 7 (bob)"}, verb: access.Watch}, &netemv1.WatchRequest{})
	}
	var leave []func()
	for _, uid := range []uint32{7, 7, 8, 8, 9, 9} {
		l, err := follow(uid)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	if _, err := follow(7); !errors.Is(err, fault.ErrBusy) || !says(err.Error(), "watch: ", "2 of uid 7 (bob) watch or follow", "a quarter of limits.followers") {
		t.Errorf("a third of one owner: %v", err)
	}
	for _, l := range leave {
		l()
	}
	if _, err := follow(7); err != nil || a.followers.n != 1 || len(a.followers.of) != 1 {
		t.Errorf("after they left: %v, %d, %v", err, a.followers.n, a.followers.of)
	}
}

// As many faults, watchers and probes are held as the configuration says, and the error
// names the limit.
func TestLimits(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	agent, c := serveWith(t, Config{Settings: settings(func(c *config.Config) {
		c.Limits.Faults, c.Limits.Followers, c.TTL.Max = 3, 1, c.TTL.Default
	})})
	for i := range uint16(3) {
		apply(t, c, fault.Spec{Selector: ports(a, port(5001+i)), Packet: &qdisc.Netem{Loss: 1}})
	}
	_, err := c.Apply(t.Context(), fault.Spec{Selector: ports(a, port(5009)), Packet: &qdisc.Netem{Loss: 1}, Engine: fault.EBPF})
	if !errors.Is(err, fault.ErrBusy) || !says(err.Error(), "3 faults are held", "limits.faults") {
		t.Errorf("a fourth fault: %v", err)
	}
	_, err = c.Renew(t.Context(), "zzz1", 0)
	if err == nil {
		t.Error("an unknown fault was renewed")
	}
	_, err = c.Apply(t.Context(), fault.Spec{Selector: ports(a, port(5009)), Packet: &qdisc.Netem{Loss: 1}, Engine: fault.EBPF, TTL: 2 * fault.DefaultTTL})
	if !errors.Is(err, qdisc.ErrInvalid) || !says(err.Error(), "to 10m", "ttl.max") {
		t.Errorf("a longer time than allowed: %v", err)
	}

	faults := netemv1.NewFaultsClient(dial(t, filepath.Join(agent.cfg.StateDir, "netemd.sock")))
	ctx, stop := context.WithCancel(t.Context())
	first, err := faults.Watch(ctx, &netemv1.WatchRequest{After: 1})
	if err == nil {
		_, err = first.Recv() // it is counted by now
	}
	if err != nil {
		t.Fatal(err)
	}
	watch := func() error {
		s, err := faults.Watch(t.Context(), &netemv1.WatchRequest{After: 1})
		if err == nil {
			_, err = s.Recv()
		}
		return wire.ErrorOf(err)
	}
	if err := watch(); !errors.Is(err, fault.ErrBusy) || !says(err.Error(), "1 watch or follow", "limits.followers") {
		t.Errorf("a second watcher: %v", err)
	}
	stop()
	eventually(t, "a watcher makes room", func() bool { return watch() == nil })

	up := []string{"pg"}
	if err := labRoom(up, "redis", 1); !errors.Is(err, fault.ErrBusy) || !says(err.Error(), "1 labs are up", "limits.labs") || fault.HintOf(err) == "" {
		t.Errorf("a second lab: %v", err)
	}
	if err := errors.Join(labRoom(up, "pg", 1), labRoom(up, "redis", 2)); err != nil {
		t.Errorf("a lab that is up, and one that has room: %v", err)
	}

	var p probing
	end, err := p.begin("ann", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.begin("ann", 1); !errors.Is(err, fault.ErrBusy) || !says(err.Error(), "ann has 1 running", "limits.probes_per_owner") {
		t.Errorf("a second probe: %v", err)
	}
	if _, err := p.begin("bob", 1); err != nil {
		t.Errorf("another's probe: %v", err)
	}
	end()
	if _, err := p.begin("ann", 1); err != nil {
		t.Errorf("the next probe: %v", err)
	}
}

// A hook of a device takes 63 programs in the kernel: one fault more is refused in words that
// say so, and what to do.
func TestMostFaultsAtOneHook(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	_, c := serveWith(t, Config{Log: slog.New(slog.DiscardHandler)})
	const most = 63
	for i := range uint16(most + 1) {
		spec := fault.Spec{Selector: ports(a, port(5001+i)), Packet: &qdisc.Netem{Loss: 1}, Engine: fault.EBPF}
		f, err := c.Apply(t.Context(), spec)
		if i < most {
			if err != nil {
				t.Fatalf("fault %d: %v", i+1, err)
			}
			continue
		}
		if errors.Is(err, errors.ErrUnsupported) { // tcx is what takes so few
			t.Fatalf("fault %d: %+v, %v: want busy, since others may go", i+1, f, err)
		}
		if !errors.Is(err, fault.ErrBusy) || !says(err.Error(), "63 programs are there already, which is the most that the kernel takes at a hook") || !says(fault.HintOf(err), "several") {
			t.Errorf("fault %d: %+v, %v, hint %q", i+1, f, err, fault.HintOf(err))
		}
	}
	if fs, err := c.List(t.Context()); err != nil || len(fs) != most {
		t.Errorf("%d faults are left, %v, want %d", len(fs), err, most)
	}
}

// Labs that come up at the same time are as many as limits.labs allows, and no more.
func TestLabsAtTheSameTime(t *testing.T) {
	const most, many = 2, 8
	a, _ := serveWith(t, Config{Settings: settings(func(c *config.Config) { c.Limits.Labs = most })})
	var up atomic.Int32
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			d := lab.Definition{Name: fmt.Sprintf("nt-agent-%d-most%d", os.Getpid(), i), Nodes: []lab.Node{{Name: "a"}}}
			switch _, err := a.labUp(t.Context(), d, lab.Identity{}, nil); {
			case err == nil:
				up.Add(1)
			case !errors.Is(err, fault.ErrBusy):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := up.Load(); got != most {
		t.Errorf("%d labs came up, want %d", got, most)
	}
	// A place that was reserved is free again once its lab could not be made, or is down.
	infos, err := a.labs.List(t.Context())
	if err != nil || len(infos) == 0 {
		t.Fatal(infos, err)
	}
	if _, err := a.labs.Down(t.Context(), infos[0].Name); err != nil {
		t.Fatal(err)
	}
	d := lab.Definition{Name: fmt.Sprintf("nt-agent-%d-last", os.Getpid()), Nodes: []lab.Node{{Name: "a", Sysctls: []lab.Sysctl{{Name: "net.no_such_thing", Value: "1"}}}}}
	if _, err := a.labUp(t.Context(), d, lab.Identity{}, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a lab with a wrong sysctl: %v", err)
	}
	d.Nodes[0].Sysctls = nil
	if _, err := a.labUp(t.Context(), d, lab.Identity{}, nil); err != nil {
		t.Errorf("a lab in the place that is free: %v", err)
	}
}

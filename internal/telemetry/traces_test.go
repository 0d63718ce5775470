package telemetry

import (
	"context"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/config"
	"netemd/internal/engine/ebpf"
	"netemd/internal/engine/netem"
	"netemd/internal/fault"
	"netemd/internal/lease"
	"netemd/internal/target"
	"netemd/qdisc"
)

// collector takes spans, as an OpenTelemetry collector does.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*tracev1.ResourceSpans
}

func (c *collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, r.GetResourceSpans()...)
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// all are the spans by name, and the attributes of their resources.
func (c *collector) all() (spans map[string][]*tracev1.Span, resource map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans, resource = map[string][]*tracev1.Span{}, map[string]string{}
	for _, r := range c.spans {
		for _, a := range r.GetResource().GetAttributes() {
			resource[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, s := range r.GetScopeSpans() {
			for _, s := range s.GetSpans() {
				spans[s.GetName()] = append(spans[s.GetName()], s)
			}
		}
	}
	return spans, resource
}

// serveOn runs a gRPC server on a port of loopback until the test ends.
func serveOn(t *testing.T, s *grpc.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); wg.Wait() })
	return l.Addr().String()
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// engineless takes everything and does nothing; its faults on a device "busy" fail.
type engineless struct{}

func (engineless) Set(_ context.Context, p target.Place, _ qdisc.Netem, _ time.Time) error {
	if p.Device == "busy" {
		return fmt.Errorf("%w: the device is busy", fault.ErrConflict)
	}
	return nil
}

func (engineless) Read(context.Context, target.Place) (fault.Status, error) {
	return fault.Status{}, fs.ErrNotExist
}
func (engineless) Clear(context.Context, target.Place) error { return nil }
func (engineless) Close() error                              { return nil }

type noJournal struct{}

func (noJournal) Intend(context.Context, fault.Fault, []target.Place) error { return nil }
func (noJournal) Hold(context.Context, fault.Fault) error                   { return nil }
func (noJournal) End(context.Context, string, fault.State) error            { return nil }

// books are the books of the faults behind the API.
type books struct {
	netemv1.UnimplementedFaultsServer
	leases *lease.Manager
}

func (b books) spec(device string) fault.Spec {
	return fault.Spec{Target: device, Owner: "uid 0", Packet: &qdisc.Netem{Delay: time.Millisecond}}
}

func (b books) Apply(ctx context.Context, r *netemv1.ApplyRequest) (*netemv1.Fault, error) {
	f, err := b.leases.Apply(ctx, b.spec(r.GetSpec().GetTarget()))
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &netemv1.Fault{Id: f.ID}, nil
}

func (b books) Hold(s grpc.BidiStreamingServer[netemv1.HoldRequest, netemv1.HoldResponse]) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	if err := s.Send(&netemv1.HoldResponse{Fault: &netemv1.Fault{Id: "abc1"}}); err != nil {
		return err
	}
	<-s.Context().Done()
	return s.Context().Err()
}

// agent is a gRPC server of faults with telemetry.
func agent(t *testing.T, tel *Telemetry) *grpc.ClientConn {
	t.Helper()
	m := lease.New(tel.Steps(lease.Config{
		Engines: map[fault.Engine]lease.Engine{fault.EBPF: engineless{}},
		Choose:  func(context.Context, []target.Place) (fault.Engine, string, error) { return fault.EBPF, "test", nil },
		Resolve: func(_ context.Context, s fault.Spec) (target.Target, error) {
			return target.Target{To: target.Place{Namespace: "nt", Device: s.Target, Index: len(s.Target), Cookie: 1, Owned: true, Hook: target.Egress}}, nil
		},
		Protect: func(context.Context, fault.Spec, []target.Place) error { return nil },
		Journal: noJournal{}, Log: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	s := grpc.NewServer(tel.ServerOptions()...)
	netemv1.RegisterFaultsServer(s, books{leases: m})
	return dial(t, serveOn(t, s))
}

func apply(t *testing.T, c *grpc.ClientConn, device string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := netemv1.NewFaultsClient(c).Apply(ctx, &netemv1.ApplyRequest{Spec: &netemv1.FaultSpec{Target: device}})
	return err
}

func tracesTo(address string) config.Traces {
	return config.Traces{OTLPEndpoint: address, Insecure: true}
}

func TestTraces(t *testing.T) {
	to := &collector{}
	s := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(s, to)
	var l logged
	tel := open(t, Config{Traces: tracesTo(serveOn(t, s))}, &l)
	c := agent(t, tel)
	const theirs = "0af7651916cd43dd8448eb211c80319c"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+theirs+"-b7ad6b7169203331-01")
	if _, err := netemv1.NewFaultsClient(c).Apply(ctx, &netemv1.ApplyRequest{Spec: &netemv1.FaultSpec{Target: "v0"}}); err != nil {
		t.Fatal(err)
	}
	if err := apply(t, c, "busy"); err == nil {
		t.Fatal("a fault on a busy device was made")
	}
	_ = c.Invoke(t.Context(), "/no.such/Method", &netemv1.Fault{}, &netemv1.Fault{})
	if err := tel.Close(t.Context()); err != nil { // hands over what there is
		t.Fatal(err)
	}
	spans, resource := to.all()
	call := "netem.v1.Faults/Apply"
	if len(spans[call]) != 2 || len(spans["no.such/Method"]) != 0 {
		t.Fatalf("%d spans of Apply; all: %v", len(spans[call]), spans)
	}
	first := spans[call][0]
	if first.GetStartTimeUnixNano() > spans[call][1].GetStartTimeUnixNano() {
		first = spans[call][1]
	}
	if got := hex.EncodeToString(first.GetTraceId()); got != theirs {
		t.Errorf("trace %s, want the caller's %s", got, theirs)
	}
	for name, want := range map[string]int{"resolve": 2, "protect": 1, "choose": 1, "engine set": 1, "journal intend": 1, "journal hold": 1} {
		n := 0
		for _, s := range spans[name] {
			if string(s.GetParentSpanId()) == string(first.GetSpanId()) {
				n++
			}
		}
		if n != want {
			t.Errorf("%d spans %q in the one of the call, want %d", n, name, want)
		}
	}
	failed := slices.ContainsFunc(spans["engine set"], func(s *tracev1.Span) bool {
		return s.GetStatus().GetCode() == tracev1.Status_STATUS_CODE_ERROR && strings.Contains(s.GetStatus().GetMessage(), "the device is busy")
	})
	if !failed || len(spans["engine clear"]) != 1 {
		t.Errorf("the step that failed says nothing of it, or was not undone: %v, %v", spans["engine set"], spans["engine clear"])
	}
	if resource["service.name"] != "netemd" || resource["service.version"] == "" || resource["host.name"] == "" {
		t.Errorf("the resource is %v", resource)
	}
	if strings.Contains(l.String(), "WARN") {
		t.Errorf("logged: %s", &l)
	}
}

// A collector that is not there, and one that takes what it gets and answers nothing,
// are told of once, and hold up neither calls nor the end.
func TestCollectorThatIsNotThere(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for name, endpoint := range map[string]string{"silent": silent.Addr().String(), "closed": closed.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			var l logged
			tel := open(t, Config{Traces: tracesTo(endpoint)}, &l)
			c := agent(t, tel)
			begun := time.Now()
			const calls = 3000 // more than the queue has room for
			for range calls {
				if err := apply(t, c, "busy"); status.Code(err) != codes.FailedPrecondition {
					t.Fatal(err)
				}
			}
			took := time.Since(begun)
			begun = time.Now()
			if err := tel.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if end := time.Since(begun); end > 5*closeTime {
				t.Errorf("the end took %v", end)
			}
			if took > time.Minute {
				t.Errorf("%d calls took %v", calls, took)
			}
			if n := strings.Count(l.String(), "traces are lost"); n > 1 || n+strings.Count(l.String(), "the last spans are lost") == 0 {
				t.Errorf("told %d times:\n%s", n, &l)
			}
		})
	}
}

func TestMetricsOfCalls(t *testing.T) {
	tel := open(t, metricsAt(Config{}), &logged{})
	tel.Start()
	c := agent(t, tel)
	for _, device := range []string{"v0", "v10", "busy"} {
		if err := apply(t, c, device); (err != nil) != (device == "busy") {
			t.Fatal(err)
		}
	}
	for i := range 20 { // what a peer makes up is one series
		_ = c.Invoke(t.Context(), fmt.Sprintf("/netem.v1.Faults/Made%d", i), &netemv1.Fault{}, &netemv1.Fault{})
		_ = c.Invoke(t.Context(), fmt.Sprintf("/x%d/y", i), &netemv1.Fault{}, &netemv1.Fault{})
	}
	hold, err := netemv1.NewFaultsClient(c).Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Send(&netemv1.HoldRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := hold.Recv(); err != nil {
		t.Fatal(err)
	}
	says(t, tel,
		`netemd_calls_total{method="Faults/Apply",result="ok"} 2`,
		`netemd_calls_total{method="Faults/Apply",result="conflict"} 1`,
		`netemd_calls_in_progress{method="Faults/Apply"} 0`,
		`netemd_calls_in_progress{method="Faults/Hold"} 1`,
		`netemd_apply_duration_seconds_count{method="Faults/Apply",result="ok"} 2`,
		`netemd_apply_duration_seconds_count{method="Faults/Apply",result="conflict"} 1`,
		`netemd_apply_duration_seconds_count{method="Faults/Hold",result="ok"} 1`,
		`netemd_apply_duration_seconds_bucket{method="Faults/Apply",result="ok",le="+Inf"} 2`,
	)
	if text, _ := read(t, tel, Path); strings.Contains(text, "Made") || strings.Contains(text, "/x") {
		t.Errorf("a peer makes series:\n%s", text)
	}
}

// What the engines can do beside lease.Engine is found behind the spans: the books unwrap
// what does not do it by itself, and so only what has a span needs to stand there.
func TestEnginesKeepWhatTheyCan(t *testing.T) {
	s := steps{}
	for _, e := range []lease.Engine{&netem.Engine{}, &ebpf.Engine{}, engineless{}} {
		traced := s.engine(e)
		if around, ok := traced.(interface{ Unwrap() lease.Engine }); !ok || around.Unwrap() != e {
			t.Errorf("%T is not found behind %T", e, traced)
		}
		_, content := e.(lease.ContentEngine)
		if _, spans := traced.(lease.ContentEngine); spans != content {
			t.Errorf("%T chooses packets: %t, with spans %t", e, content, spans)
		}
	}
}

// manyOfOne is a journal that takes many faults at once.
type manyOfOne struct {
	lease.Journal
	manyJournal
}

// A journal that takes many faults at once does so behind the spans, and no other seems to.
func TestJournalKeepsWhatItCan(t *testing.T) {
	if _, ok := (steps{}).journal(manyOfOne{}).(manyJournal); !ok {
		t.Error("the journal takes one fault at a time with spans")
	}
	if _, ok := (steps{}).journal(struct{ lease.Journal }{}).(manyJournal); ok {
		t.Error("a journal of single faults takes many with spans")
	}
}

// Package telemetry shows what the agent does to those who watch over machines: metrics
// for Prometheus and traces for OpenTelemetry. Both are off until they are configured.
// Nothing of it can hold up a call, and no target, owner or id is in a metric.
package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"netemd/internal/config"
	"netemd/internal/fault"
)

// closeTime is how long Close may take to hand over the last spans.
const closeTime = 2 * time.Second

// Config says what is shown, where, and of what. The functions are called from Start on,
// and only while somebody reads the metrics; they are safe for concurrent use.
type Config struct {
	// Metrics.Listen is the only port that is opened. Whoever reaches it can read, without
	// a certificate, how many faults and calls there are, but not whose or at what; an
	// address other than loopback's has to be written for that, and is logged.
	Metrics config.Metrics
	// Traces go to a collector. The header variables of OpenTelemetry's environment
	// (OTEL_EXPORTER_OTLP_HEADERS) are heeded, for a collector that wants a token.
	Traces config.Traces
	// Collect returns the faults that are held; nil: none.
	Collect func() []fault.Fault
	// Waiting returns how many Applies wait for another fault's end; nil: none.
	Waiting func() int
}

// Telemetry is what was configured. A nil one, and one of an empty Config, do nothing.
// It is safe for concurrent use.
type Telemetry struct {
	cfg Config
	log *slog.Logger

	// What follows is nil without metrics.
	registry *prometheus.Registry
	calls    *calls
	faults   *faults
	listener net.Listener
	http     *http.Server
	serving  sync.WaitGroup

	// What follows is nil without traces.
	provider *sdktrace.TracerProvider
	exporter *patient
	tracer   trace.Tracer
}

// New opens the port of the metrics and prepares the traces; nobody is answered until
// Start. The caller must call Close. It needs no privilege, and no collector that is
// there already.
func New(cfg Config, log *slog.Logger) (*Telemetry, error) {
	t := &Telemetry{cfg: cfg, log: log}
	if cfg.Metrics.Listen != "" {
		if err := t.listen(); err != nil {
			return nil, err
		}
	}
	if cfg.Traces.OTLPEndpoint != "" {
		if err := t.trace(); err != nil {
			return nil, errors.Join(err, t.Close(context.Background()))
		}
	}
	return t, nil
}

// Start answers those who read the metrics.
func (t *Telemetry) Start() {
	if t == nil || t.http == nil {
		return
	}
	t.serving.Go(func() {
		if err := t.http.Serve(t.listener); !errors.Is(err, http.ErrServerClosed) {
			t.log.Error("metrics are not shown any more", "err", err)
		}
	})
}

// ServerOptions are what a gRPC server needs so that its calls are counted and traced.
func (t *Telemetry) ServerOptions() []grpc.ServerOption {
	if t == nil {
		return nil
	}
	var options []grpc.ServerOption
	if t.calls != nil {
		options = append(options, grpc.StatsHandler(t.calls))
	}
	if t.provider != nil {
		options = append(options, grpc.StatsHandler(t.tracedCalls()))
	}
	return options
}

// Observe counts something that happened to a fault. It may wait for Config.Collect, and
// so is not for those who hold a lock; events come in their order, from one goroutine.
func (t *Telemetry) Observe(e fault.Event) {
	if t != nil && t.faults != nil {
		t.faults.observe(e)
	}
}

// Addr is where the metrics are read; nil: nowhere.
func (t *Telemetry) Addr() net.Addr {
	if t == nil || t.listener == nil {
		return nil
	}
	return t.listener.Addr()
}

// Close closes the port and sends the spans that are left, for 2 s at most: a collector
// that is not there holds up no end. It may be called again.
func (t *Telemetry) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), closeTime, errors.New("the last spans were not taken in time"))
	defer cancel()
	if t.provider != nil {
		if err := t.provider.Shutdown(ctx); err != nil { // whoever wanted them has been told why they do not come
			t.log.Warn("traces: the last spans are lost", "err", err)
			// Its own end comes last, and may not have come: what it still tries is called off.
			_ = t.exporter.Shutdown(ctx)
		}
	}
	if t.http == nil {
		return nil
	}
	err := t.http.Shutdown(ctx)
	if err != nil { // somebody reads slowly
		err = t.http.Close()
	}
	if closing := t.listener.Close(); !errors.Is(closing, net.ErrClosed) { // the server was never started
		err = errors.Join(err, closing)
	}
	t.serving.Wait()
	return err
}

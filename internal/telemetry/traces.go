package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/stats"

	"netemd/internal/version"
)

// exportTime is how long the collector may take for some spans, with what is tried again.
const exportTime = 5 * time.Second

// instrument names the library to OpenTelemetry.
const instrument = "netemd/internal/telemetry"

// trace prepares the traces. Nothing is dialled before there is a span.
func (t *Telemetry) trace() error {
	options := []otlptracegrpc.Option{
		otlptracegrpc.WithEndpoint(t.cfg.Traces.OTLPEndpoint), otlptracegrpc.WithTimeout(exportTime),
	}
	if t.cfg.Traces.Insecure {
		options = append(options, otlptracegrpc.WithInsecure())
	}
	out, err := otlptracegrpc.New(context.Background(), options...)
	if err != nil {
		return fmt.Errorf("traces to %s: %w", t.cfg.Traces.OTLPEndpoint, err)
	}
	// Some of its parts tell their errors to the process only.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { t.log.Debug("traces", "err", err) }))
	t.exporter = &patient{SpanExporter: out, endpoint: t.cfg.Traces.OTLPEndpoint, log: t.log}
	t.provider = newProvider(t.exporter)
	t.tracer = t.provider.Tracer(instrument)
	t.log.Info("traces", "endpoint", t.cfg.Traces.OTLPEndpoint, "insecure", t.cfg.Traces.Insecure)
	return nil
}

// newProvider hands spans over in the background: where out is too slow they are lost, and
// no call waits. A peer that has a trace of its own says whether it is recorded.
func newProvider(out sdktrace.SpanExporter) *sdktrace.TracerProvider {
	host, _ := os.Hostname() // an empty one says as much
	return sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(out), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "netemd"),
			attribute.String("service.version", version.String()),
			attribute.String("host.name", host),
		)))
}

// tracedCalls makes a span of each call but those for the health, which come all the time.
func (t *Telemetry) tracedCalls() stats.Handler {
	return otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithMeterProvider(noop.NewMeterProvider()),
		otelgrpc.WithPropagators(propagation.TraceContext{}),
		otelgrpc.WithFilter(func(i *stats.RPCTagInfo) bool { return methods[i.FullMethodName] != "" }))
}

// patient is an exporter that says once when nobody takes the spans, and when somebody
// does again.
type patient struct {
	sdktrace.SpanExporter
	endpoint string
	log      *slog.Logger
	failing  atomic.Bool
}

// ExportSpans drops what cannot be handed over; the error has been told.
func (p *patient) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := p.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && p.failing.CompareAndSwap(false, true):
		p.log.Warn("traces are lost: the collector does not take them", "endpoint", p.endpoint, "err", err)
	case err == nil && p.failing.CompareAndSwap(true, false):
		p.log.Info("traces are taken again", "endpoint", p.endpoint)
	}
	return nil
}

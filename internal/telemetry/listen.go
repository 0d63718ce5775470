package telemetry

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Path is where the metrics are.
const Path = "/metrics"

// What one who reads the metrics may take. Prometheus gives up after 10 s unless it is
// told otherwise (scrape_timeout).
const (
	readTime   = 5 * time.Second
	scrapeTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	maxReaders = 4
	maxHeaders = 16 << 10
)

// listen opens the port, behind which there is nothing but the metrics.
func (t *Telemetry) listen() error {
	l, err := net.Listen("tcp", t.cfg.Metrics.Listen)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	t.listener = l
	t.registry = prometheus.NewRegistry()
	t.calls, t.faults = newCalls(), newFaults(t.cfg)
	t.registry.MustRegister(t.calls, t.faults, buildInfo(),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	errors := slog.NewLogLogger(t.log.Handler(), slog.LevelWarn)
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		ErrorLog: errors, ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: maxReaders, Timeout: scrapeTime,
	}))
	t.http = &http.Server{
		Handler: mux, ErrorLog: errors, MaxHeaderBytes: maxHeaders,
		ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: 2 * scrapeTime, IdleTimeout: idleTime,
	}
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		t.log.Warn("metrics can be read from other hosts, by anybody", "address", l.Addr().String())
	}
	t.log.Info("metrics", "address", l.Addr().String(), "path", Path)
	return nil
}

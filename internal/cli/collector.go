package cli

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
	"netemd/internal/report"
	"netemd/qdisc"
)

const (
	// noCollector is a value of --otlp.
	noCollector = "none"
	// tracesPath is where a collector takes traces, below its endpoint (OTLP/HTTP).
	tracesPath = "/v1/traces"
	// exportLimit is how long the end of a run waits for the collector.
	exportLimit = 5 * time.Second

	wantCollector = "the http or https address of an OTLP/HTTP collector, such as http://127.0.0.1:4318, or none"
)

// otlpFlag is where spans go.
func otlpFlag(cmd *cobra.Command, dst *string) {
	cmd.Flags().Var(once(dst, "URL", wantCollector), "otlp", "send spans of calls, attempts and faults to this OTLP/HTTP collector, such as http://127.0.0.1:4318 (default $OTEL_EXPORTER_OTLP_ENDPOINT; none: to nobody)")
	completeWords(cmd, "otlp", nil)
}

// exporter begins to send to the collector that --otlp or OpenTelemetry's own variables name
// (opentelemetry.io/docs/specs/otel/protocol/exporter); nil for none. Those of one signal come
// before the general ones.
func (a *app) exporter(flag string) (*report.Exporter, error) {
	get := func(name string) string {
		if v := a.env.Getenv("OTEL_EXPORTER_OTLP_TRACES_" + name); v != "" {
			return v
		}
		return a.env.Getenv("OTEL_EXPORTER_OTLP_" + name)
	}
	to, from, whole := flag, "--otlp", false
	if flag == "" {
		if a.env.Getenv("OTEL_SDK_DISABLED") == "true" || a.env.Getenv("OTEL_TRACES_EXPORTER") == noCollector {
			return nil, nil
		}
		from = "OTEL_EXPORTER_OTLP_ENDPOINT"
		if to = a.env.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); to != "" {
			from, whole = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", true
		} else {
			to = a.env.Getenv(from)
		}
	}
	if to == "" || to == noCollector {
		return nil, nil
	}
	if flag == "" && get("PROTOCOL") == "grpc" {
		a.say("no spans are sent to %s, which takes gRPC by OTEL_EXPORTER_OTLP_PROTOCOL: netemctl speaks OTLP/HTTP", to)
		return nil, nil
	}
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || !isPort(u.Port()) {
		return nil, fault.WithHint(&qdisc.FieldError{Field: from, Value: to, Want: wantCollector}, "a token goes into OTEL_EXPORTER_OTLP_HEADERS")
	}
	if !whole && !strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), tracesPath) {
		u = u.JoinPath(tracesPath)
	}
	c := report.Collector{URL: u.String(), Gzip: get("COMPRESSION") == "gzip"}
	if c.Headers, err = otlpHeaders(get("HEADERS")); err != nil {
		return nil, err
	}
	if text := get("TIMEOUT"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return nil, &qdisc.FieldError{Field: "OTEL_EXPORTER_OTLP_TIMEOUT", Value: text, Want: "a number of milliseconds above 0, such as 10000"}
		}
		c.Timeout = time.Duration(n) * time.Millisecond
	}
	if flag == "" {
		a.say("spans go to %s, by %s (--otlp none: to nobody)", u.Redacted(), from)
	}
	return report.Export(c), nil
}

// isPort takes the port of a URL; empty is that of its scheme.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}

// otlpHeaders reads key1=value1,key2=value2, values being percent-encoded. Errors do not say
// the values, which may be secret.
func otlpHeaders(text string) (map[string]string, error) {
	headers := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || name == "" || err != nil || strings.ContainsAny(name, " \t:") || strings.ContainsAny(value, "\r\n") {
			return nil, usageError{fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: header %d: want NAME=VALUE, percent-encoded, such as authorization=Bearer%%20abc", len(headers)+1)}
		}
		headers[name] = value
	}
	return headers, nil
}

// sayExported ends the sending, and warns of what was not sent.
func (a *app) sayExported(e *report.Exporter) {
	if e == nil {
		return
	}
	sent := e.Close(exportLimit, a.env.Now())
	if sent.Unsent == 0 && sent.UnsentFaults == 0 {
		return
	}
	why := ""
	if sent.Err != nil {
		why = ": " + oneLine(sent.Err)
	}
	a.warn([]string{fmt.Sprintf("the spans of %d of %d calls and %d of %d faults were not sent to the collector%s",
		sent.Unsent, sent.Unsent+sent.Calls, sent.UnsentFaults, sent.UnsentFaults+sent.Faults, why)})
}

package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/experiment"
	"netemd/probe"
)

func TestTime(t *testing.T) {
	for _, c := range []struct {
		ms   float64
		want string
	}{
		{0.04, "0.0 ms"}, {1.44, "1.4 ms"}, {9.94, "9.9 ms"}, {9.96, "10 ms"}, {221.4, "221 ms"}, {999.4, "999 ms"},
		{999.6, "1.00 s"}, {3094, "3.09 s"}, {12345, "12.3 s"},
	} {
		if got := Time(&c.ms); got != c.want {
			t.Errorf("Time(%v) = %q, want %q", c.ms, got, c.want)
		}
	}
	if got := Time(nil); got != "-" {
		t.Errorf("Time(nil) = %q", got)
	}
}

func TestExplain(t *testing.T) {
	c := fixture()
	got := strings.Join(Explain(c), "\n")
	for _, want := range []string{
		"With loss 20% to pg half of the calls took ", " times the median", "connection request", "retransmission timeout",
		"tail loss probe", "so it has no tail",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	c.Conclusive = false
	if got := Explain(c); got != nil {
		t.Errorf("an inconclusive comparison is explained: %v", got)
	}
}

func TestLossLine(t *testing.T) {
	for _, c := range []struct {
		loss experiment.Loss
		want string
	}{
		{experiment.MeasureLoss(20, 0, 1000, 200), "asked for 20% loss; measured 20.00% (200 of 1000 packets; 99.9% interval 16.17% to 24.47%): as asked"},
		{experiment.MeasureLoss(20, 0, 1000, 300), "asked for 20% loss; measured 30.00% (300 of 1000 packets; 99.9% interval 25.47% to 34.96%): not as asked"},
		{experiment.MeasureLoss(20, 50, 2000, 59), "asked for 20% loss with 50% correlation, which netem's generator makes about 2.9%; " +
			"measured 2.95% (59 of 2000 packets; no interval, for each draw depends on the one before)"},
		{experiment.MeasureLoss(20, 100, 10, 10), "asked for 20% loss with 100% correlation, which repeats its first draw: all packets or none; " +
			"measured 100.00% (10 of 10 packets)"},
		{experiment.MeasureLoss(20, 50, 0, 0), "asked for 20% loss with 50% correlation; nothing was measured, for no packet passed the fault"},
	} {
		if got := LossLine(&experiment.Row{Loss: &c.loss}); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// TestExplainDelay has a proxy that shows the same as the packets.
func TestExplainDelay(t *testing.T) {
	c := fixture()
	*c.Row(experiment.LayerPacket) = *c.Row(experiment.LayerProxyLatency)
	c.Rows[1].Layer = experiment.LayerPacket
	got := strings.Join(Explain(c), "\n")
	if !strings.Contains(got, "for this fault a proxy shows about the same") || strings.Contains(got, "has no tail") {
		t.Errorf("a plain delay is told as a tail:\n%s", got)
	}
}

func TestExplainNoSuccess(t *testing.T) {
	c := fixture()
	p := c.Row(experiment.LayerPacket)
	p.P50, p.P90, p.P99, p.Max, p.OK = nil, nil, nil, nil, 0
	if got := Explain(c); len(got) == 0 || !strings.Contains(got[0], "no call of 200 succeeded") {
		t.Errorf("got %q", got)
	}
}

func TestComparisonFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out", "demo")
	c := fixture()
	if err := Comparison(dir, c); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{EventsFile, PageFile, ResultFile, SamplesFile}, names); diff != "" {
		t.Error(diff)
	}
	var result struct {
		SchemaVersion int
		Kind          string
		Data          struct {
			Target string
			Rows   []map[string]any
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &result); err != nil {
		t.Fatal(err)
	}
	if result.SchemaVersion != 1 || result.Kind != "compare" || len(result.Data.Rows) != 4 {
		t.Fatalf("envelope %d %q with %d rows", result.SchemaVersion, result.Kind, len(result.Data.Rows))
	}
	packet := result.Data.Rows[1]
	for _, field := range []string{
		"target", "layer", "count", "ok", "errors", "p50_ms", "p90_ms", "p99_ms", "max_ms", "causes", "engine", "fault",
		"asked_loss_percent", "measured_loss_percent", "packets_seen", "packets_lost",
	} {
		if _, ok := packet[field]; !ok {
			t.Errorf("no %s in the packet row", field)
		}
	}
	if packet["layer"] != "packet" {
		t.Errorf("layer %v", packet["layer"])
	}
	f, err := os.Open(filepath.Join(dir, SamplesFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := map[string]int{}
	for s := bufio.NewScanner(f); s.Scan(); {
		var l sampleLine
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		lines[l.Layer]++
	}
	if diff := cmp.Diff(map[string]int{"none": 200, "packet": 200, "proxy": 200, "proxy+latency": 200}, lines); diff != "" {
		t.Error(diff)
	}
}

func TestPageStandsAlone(t *testing.T) {
	var b bytes.Buffer
	if err := WriteHTML(&b, fixture()); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if m := regexp.MustCompile(`(?i)https?:|<script|<link|@import|src=|url\(`).FindString(page); m != "" {
		t.Errorf("the page refers to something outside: %q", m)
	}
	if strings.Contains(page, "ZgotmplZ") || strings.Contains(page, "NaN") || strings.Contains(page, "%!") {
		t.Error("a value was refused or misformatted by the template")
	}
	wellFormed(t, page)
}

// wellFormed checks that every element is closed, void elements aside.
func wellFormed(t *testing.T, page string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(page, "<!DOCTYPE html>")))
	d.Strict = false
	d.AutoClose = []string{"meta"}
	d.Entity = xml.HTMLEntity
	depth := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
	}
	if depth != 0 {
		t.Errorf("%d elements are not closed", depth)
	}
}

func TestPageInconclusive(t *testing.T) {
	c := fixture()
	c.Conclusive, c.Reasons = false, []string{"0 packets matched <the> fault"}
	c.Rows = c.Rows[:2]
	c.Latency = nil
	var b bytes.Buffer
	if err := WriteHTML(&b, c); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "0 packets matched &lt;the&gt; fault") {
		t.Error("the reason is missing or not escaped")
	}
	if strings.Contains(b.String(), "Why the proxy cannot") {
		t.Error("the page concludes although it must not")
	}
}

func TestPlotWithoutSuccess(t *testing.T) {
	c := fixture()
	for i := range c.Rows {
		for j := range c.Rows[i].Samples {
			c.Rows[i].Samples[j].Class = probe.Timeout
		}
	}
	var b bytes.Buffer
	if err := WriteHTML(&b, c); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Error("an empty plot has no numbers")
	}
}

func TestCurveEndsAtItsShare(t *testing.T) {
	c := curve{Layer: "packet", Steps: []float64{1, 10, 100}, Count: 4}
	p := newPlot(1000, 400, []curve{c}, false)
	want := p.y(0.75)
	got := p.path(c)
	if last := regexp.MustCompile(`V([0-9.]+)H[0-9.]+$`).FindStringSubmatch(got); last == nil || last[1] != oneDecimal(want) {
		t.Errorf("path %s does not end at %v, 3 of 4 calls", got, want)
	}
	if p.x(10)-p.x(1) < 1 || (p.x(100)-p.x(10))-(p.x(10)-p.x(1)) > 0.01 {
		t.Error("the x axis is not logarithmic")
	}
}

func oneDecimal(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// TestPageSample writes the page to a folder of the caller's choice, to be looked
// at: NETEMD_REPORT_SAMPLE=DIR go test -run TestPageSample.
func TestPageSample(t *testing.T) {
	dir := os.Getenv("NETEMD_REPORT_SAMPLE")
	if dir == "" {
		t.Skip("NETEMD_REPORT_SAMPLE is not set")
	}
	if err := Comparison(dir, fixture()); err != nil {
		t.Fatal(err)
	}
}

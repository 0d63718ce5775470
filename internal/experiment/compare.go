package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"netemd/internal/fault"
	"netemd/probe"
	"netemd/qdisc"
)

// Prober runs a probe. row is the layer that the run is a row of, empty for the
// calibration, which is in no row. The result has the samples, or none where there were
// more than are kept.
type Prober interface {
	Probe(ctx context.Context, row string, r probe.Request, progress func(done, count int)) (probe.Result, error)
}

// Plan is what to compare.
type Plan struct {
	Target    string
	Packet    qdisc.Netem
	Direction fault.Direction
	Engine    fault.Engine
	// Within is the id of the fault beside which the comparison runs, whose holder's faults
	// combine with it; empty for none.
	Within string
	// Request is each row's, whose target and layer are filled in.
	Request probe.Request
	// Policy is the name of the client policy around the calls; empty: none.
	Policy string
	// Proxy says that the target has one; without it there are two rows. Of the kind udp
	// there are two in any case.
	Proxy bool
	// Asked says the packet fault in words.
	Asked       string
	Environment Environment
}

// Progress says what a comparison does: Step is a phrase; Done of Count calls are
// made.
type Progress func(step string, done, count int)

// Numbers that a comparison rests on.
const (
	calibrationCalls = 20
	// pgTurns is how often the server answers in a call of PostgreSQL after the TCP
	// handshake: pgx with SCRAM, then prepare and execute; of other calls it is one. It only
	// sizes the calibration where the row without a toxic did not count its turns; the
	// number that is used is measured.
	pgTurns = 5
	// busyShare is the share of slow calls without a fault from which the machine is
	// called busy.
	busyShare = 0.05
	// sameMedian is how far two medians may be apart, as a share, to be called the
	// same.
	sameMedian = 0.2
	// minTurns is the number below which a latency toxic does not touch a call at all, as a
	// connect, which the proxy answers by itself.
	minTurns = 0.5
)

// Compare runs the rows one after the other. Every fault is cleared on every way
// out, also when ctx ends; the comparison made so far is returned then, with
// ctx's cause as the error.
func Compare(ctx context.Context, p Plan, prober Prober, faults Faults, progress Progress) (Comparison, error) {
	r := &run{plan: p, prober: prober, faults: faults, progress: progress}
	q := p.Request.WithDefaults()
	r.result = Comparison{
		Target: p.Target, Asked: p.Asked, Direction: p.Direction, Kind: q.Kind, Calls: CallWords(q), Policy: p.Policy,
		Count: q.Count, Concurrency: q.Concurrency, PaceMS: max(0, ms(q.Pace)), DurationMS: ms(q.Length()),
		TimeoutMS: ms(q.Timeout), Environment: p.Environment, Started: time.Now(),
		Rows: []Row{}, Placement: []string{}, Reasons: []string{}, Warnings: []string{},
	}
	steps := []func(context.Context) error{r.none, r.packet}
	switch {
	case q.Kind == probe.KindUDP:
		r.warn("udp has no rows of the proxy layer: a TCP proxy carries no packets")
	case !p.Proxy:
		r.warn("target %s has no proxy, so there are no rows of the proxy layer", p.Target)
	default:
		steps = append(steps, r.proxy, r.proxyLatency)
	}
	var err error
	for _, step := range steps {
		if err = step(ctx); err != nil {
			break
		}
	}
	r.result.Ended = time.Now()
	r.result.Conclusive = err == nil && len(r.result.Reasons) == 0
	return r.result, err
}

type run struct {
	plan     Plan
	prober   Prober
	faults   Faults
	progress Progress
	result   Comparison
}

func (r *run) none(ctx context.Context) error {
	res, took, err := r.probe(ctx, "no fault", LayerNone, r.plan.Request)
	if err != nil {
		return err
	}
	if res.Summary.OK < res.Summary.Count {
		r.doubt("the control run is not healthy: %d of %d calls succeeded without any fault",
			res.Summary.OK, res.Summary.Count)
	}
	slow := 0
	for _, n := range res.Summary.Causes {
		slow += n
	}
	if float64(slow) > busyShare*float64(res.Summary.Count) {
		r.warn("the control run is slow itself (%d of %d calls above %g ms): this machine is busy, "+
			"and not every slow call of the other rows is the fault's", slow, res.Summary.Count, res.Summary.ThresholdMS)
	}
	r.add(LayerNone, res, took, Row{Fault: "none"})
	return nil
}

func (r *run) packet(ctx context.Context) error {
	packet := r.plan.Packet
	h, err := Hold(ctx, r.faults, fault.Spec{
		Target: r.plan.Target, Direction: r.plan.Direction, Engine: r.plan.Engine, Packet: &packet, Within: r.plan.Within,
	}, nil)
	if err != nil {
		return fmt.Errorf("packet layer: %w", err)
	}
	f := h.Fault
	r.result.Engine, r.result.EngineReason = f.Engine, f.EngineReason
	r.result.Placement = append(r.result.Placement, f.Placement...)
	r.result.Warnings = append(r.result.Warnings, f.Warnings...)
	res, took, err := r.probe(ctx, "packet layer: "+r.plan.Asked, LayerPacket, r.plan.Request)
	last, releaseErr := h.Release(ctx)
	if err != nil {
		return errors.Join(err, releaseErr)
	}
	c := last.Counters
	row := Row{
		Engine: f.Engine, Fault: r.plan.Asked, FaultID: f.ID, State: last.State, Counters: new(PacketCounters(c)),
	}
	if packet.Loss > 0 {
		row.Loss = new(MeasureLoss(packet.Loss, packet.LossCorrelation, c.Seen, c.Lost))
	}
	r.judge(last, row.Loss, h.Gaps(), releaseErr)
	r.add(LayerPacket, res, took, row)
	return nil
}

// judge says whether the packet row is what it claims to be.
func (r *run) judge(last fault.Fault, loss *Loss, gaps Gaps, releaseErr error) {
	c := last.Counters
	if releaseErr != nil {
		r.doubt("the packet fault was not held to its end: %v", releaseErr)
	} else if last.State != fault.Active {
		r.doubt("the packet fault was %s while the calls ran", last.State)
	} else if gaps.Count > 0 {
		r.doubt("the packet fault was not in force for %v while the calls ran", gaps.Total.Round(time.Millisecond))
	}
	switch {
	case last.State != fault.Active: // then the counters are not known
	case c.Seen == 0:
		r.doubt("0 packets matched the packet fault: nothing was impaired")
	case loss != nil && loss.NoEffect():
		r.doubt("%d packets matched the fault and not one was lost, although %v was asked for", loss.Seen, loss.Asked)
	case loss != nil && loss.Judged() && !loss.AsAsked():
		r.warn("the loss that was measured, %.2f %% (%.2f..%.2f), is not what was asked for, %v",
			*loss.Measured, *loss.Low, *loss.High, loss.Asked)
	}
	if c.Overflow > 0 {
		r.warn("%d packets were lost to a full queue, beside the fault", c.Overflow)
	}
	if c.Late > 0 {
		r.warn("%d packets were thrown away late, the engine having stood still", c.Late)
	}
	if c.Refused > 0 {
		r.warn("%d packets were refused by the device, beside the fault", c.Refused)
	}
	if c.Opened > 0 {
		r.warn("%d packets passed unimpaired because the engine was late", c.Opened)
	}
}

func (r *run) proxy(ctx context.Context) error {
	res, took, err := r.probe(ctx, "through the proxy, no toxic", LayerProxy, r.plan.Request)
	if err != nil {
		return err
	}
	if res.Summary.OK == 0 {
		r.doubt("not one call through the proxy succeeded, without a toxic")
	}
	r.add(LayerProxy, res, took, Row{Fault: "none"})
	return nil
}

func (r *run) proxyLatency(ctx context.Context) error {
	packet, plain := r.result.Row(LayerPacket), r.result.Row(LayerProxy)
	if packet.P50 == nil || plain.P50 == nil {
		r.warn("no row %s: without a successful call there is no median to copy", LayerProxyLatency)
		return nil
	}
	gap := *packet.P50 - *plain.P50
	if gap < 1 {
		r.warn("no row %s: the packet layer's median is not above the proxy's, so there is no latency to add",
			LayerProxyLatency)
		return nil
	}
	guess := r.turns(plain)
	first := roundMS(gap / guess)
	few := calibration(r.plan.Request)
	cal, _, err := r.withLatency(ctx, first, "calibrating the latency toxic", "", few)
	if err != nil {
		return err
	}
	turns := guess
	if p50 := cal.Summary.P50; p50 != nil {
		turns = (*p50 - *plain.P50) / ms(first)
	} else {
		r.warn("no call succeeded while the latency toxic was calibrated; %g answers a call are assumed", guess)
	}
	if math.Abs(turns) < minTurns { // far below 0 the machine has become quicker meanwhile
		r.warn("no row %s: a latency toxic does not make these calls slower, for they wait for no answer of the server that passes the proxy",
			LayerProxyLatency)
		return nil
	}
	turns = max(1, turns)
	added := roundMS(gap / turns)
	r.result.Latency = &Latency{
		AddedMS: ms(added), Turns: math.Round(turns*100) / 100, CalibrationCalls: few.Count, CalibrationMS: ms(first),
	}
	res, took, err := r.withLatency(ctx, added, "through the proxy, latency of the same median", LayerProxyLatency, r.plan.Request)
	if err != nil {
		return err
	}
	if p50 := res.Summary.P50; p50 != nil && math.Abs(*p50-*packet.P50) > sameMedian**packet.P50 {
		r.warn("the latency toxic's median, %.0f ms, is not the packet layer's, %.0f ms: "+
			"the path was not the same during the calibration", *p50, *packet.P50)
	}
	r.add(LayerProxyLatency, res, took, Row{Engine: fault.Stream, Fault: fmt.Sprintf("latency %v downstream", added)})
	return nil
}

// turns is how often a call is thought to wait for the server, for the calibration.
func (r *run) turns(plain *Row) float64 {
	switch {
	case plain.Turns != nil && *plain.Turns >= 1:
		return *plain.Turns
	case r.result.Kind == probe.KindPostgres:
		return pgTurns
	}
	return 1
}

// calibration is a few of the calls: there must be enough for a median, in the same loop.
func calibration(r probe.Request) probe.Request {
	r.Duration, r.Warmup = 0, 0
	if r.Count == 0 || r.Count > calibrationCalls {
		r.Count = calibrationCalls
	}
	return r
}

func (r *run) withLatency(
	ctx context.Context, d time.Duration, step, row string, calls probe.Request,
) (probe.Result, time.Duration, error) {
	h, err := Hold(ctx, r.faults, fault.Spec{
		Target: r.plan.Target, Within: r.plan.Within,
		Toxics: []fault.Toxic{{Kind: fault.Latency, Stream: fault.Downstream, Latency: d}},
	}, nil)
	if err != nil {
		return probe.Result{}, 0, fmt.Errorf("proxy layer: %w", err)
	}
	res, took, err := r.probe(ctx, step, row, calls)
	last, releaseErr := h.Release(ctx)
	switch {
	case err != nil:
		return res, took, errors.Join(err, releaseErr)
	case releaseErr != nil:
		r.doubt("the latency toxic was not held to its end: %v", releaseErr)
	case last.State != fault.Active:
		r.doubt("the latency toxic was %s while the calls ran", last.State)
	}
	return res, took, nil
}

func (r *run) probe(ctx context.Context, step, row string, calls probe.Request) (probe.Result, time.Duration, error) {
	calls.Target, calls.Layer = r.plan.Target, probe.LayerDirect
	if row != LayerNone && row != LayerPacket {
		calls.Layer = probe.LayerProxy
	}
	r.progress(step, 0, calls.Count)
	began := time.Now()
	res, err := r.prober.Probe(ctx, row, calls, func(done, count int) { r.progress(step, done, count) })
	if ctx.Err() != nil {
		return res, 0, context.Cause(ctx)
	}
	if err != nil {
		return res, 0, fmt.Errorf("%s: %w", step, err)
	}
	if row != "" && len(res.Samples) < res.Summary.Count {
		r.warn("row %s has %d calls: with more than %d, they are in no curve and not in samples.jsonl", row, res.Summary.Count, probe.DefaultKeep)
	}
	return res, time.Since(began), nil
}

func (r *run) add(layer string, res probe.Result, took time.Duration, row Row) {
	row.Summary, row.Samples, row.ElapsedMS = res.Summary, res.Samples, ms(took)
	row.Layer, row.Target = layer, r.plan.Target
	r.result.Rows = append(r.result.Rows, row)
}

func (r *run) doubt(format string, args ...any) {
	r.result.Reasons = append(r.result.Reasons, fmt.Sprintf(format, args...))
}

func (r *run) warn(format string, args ...any) {
	r.result.Warnings = append(r.result.Warnings, fmt.Sprintf(format, args...))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// roundMS is a latency in the toxic's resolution, 1 ms, and at least that.
func roundMS(v float64) time.Duration {
	return max(1, time.Duration(math.Round(v))) * time.Millisecond
}

package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
	"netemd/qdisc"
)

func outageTo(o *fault.Outage) *netemv1.Outage {
	if o == nil {
		return nil
	}
	return &netemv1.Outage{
		Action: string(o.Action), Services: o.Services, DownNs: int64(o.Down), EveryNs: int64(o.Every), JitterPercent: float64(o.Jitter),
		Count: int32(o.Count), AtMost: int32(o.AtMost), Seed: o.Seed,
	}
}

func outageOf(m *netemv1.Outage) *fault.Outage {
	if m == nil {
		return nil
	}
	return &fault.Outage{
		Action: fault.OutageAction(m.GetAction()), Services: m.GetServices(), Down: time.Duration(m.GetDownNs()), Every: time.Duration(m.GetEveryNs()),
		Jitter: qdisc.Percent(m.GetJitterPercent()), Count: int(m.GetCount()), AtMost: int(m.GetAtMost()), Seed: m.GetSeed(),
	}
}

func outageRun(r *fault.OutageRun) *netemv1.OutageRun {
	if r == nil {
		return nil
	}
	m := &netemv1.OutageRun{
		Of: int32(r.Of), Done: int32(r.Done), Skipped: int32(r.Skipped), Failed: int32(r.Failed), Down: r.Down, Over: r.Over, Next: unlessZeroTime(r.Next),
	}
	for _, s := range r.Strikes {
		m.Strikes = append(m.Strikes, &netemv1.OutageStrike{
			Number: int32(s.Number), Service: s.Service, Action: string(s.Action), Due: unlessZeroTime(s.Due),
			Down: instant(s.Down), Up: instant(s.Up), Ready: instant(s.Ready),
			Pid: int32(s.PID), NewPid: int32(s.NewPID), Skipped: s.Skipped, Error: s.Error,
		})
	}
	return m
}

func outageRunOf(m *netemv1.OutageRun) *fault.OutageRun {
	if m == nil {
		return nil
	}
	r := &fault.OutageRun{
		Of: int(m.GetOf()), Done: int(m.GetDone()), Skipped: int(m.GetSkipped()), Failed: int(m.GetFailed()), Down: m.GetDown(), Over: m.GetOver(), Next: timeOf(m.GetNext()),
	}
	for _, s := range m.GetStrikes() {
		r.Strikes = append(r.Strikes, fault.StrikeRecord{
			Number: int(s.GetNumber()), Service: s.GetService(), Action: fault.OutageAction(s.GetAction()), Due: timeOf(s.GetDue()),
			Down: instantOf(s.GetDown()), Up: instantOf(s.GetUp()), Ready: instantOf(s.GetReady()),
			PID: int(s.GetPid()), NewPID: int(s.GetNewPid()), Skipped: s.GetSkipped(), Error: s.GetError(),
		})
	}
	return r
}

func instant(i fault.Instant) *netemv1.OutageInstant {
	if i.IsZero() {
		return nil
	}
	return &netemv1.OutageInstant{Time: timestamppb.New(i.Time), MonotonicNs: i.Monotonic}
}

func instantOf(m *netemv1.OutageInstant) fault.Instant {
	return fault.Instant{Time: timeOf(m.GetTime()), Monotonic: m.GetMonotonicNs()}
}

// unlessZeroTime is nil for no time, and timeOf no time for nil.
func unlessZeroTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func timeOf(m *timestamppb.Timestamp) time.Time {
	if m == nil {
		return time.Time{}
	}
	return m.AsTime()
}

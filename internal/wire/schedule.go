package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
	"netemd/internal/schedule"
	"netemd/qdisc"
)

func scheduleTo(s *schedule.Schedule) *netemv1.Schedule {
	if s == nil {
		return nil
	}
	m := &netemv1.Schedule{Name: s.Name, Rounds: int32(s.Rounds), JitterPercent: float64(s.Jitter), Seed: s.Seed}
	for _, step := range s.Steps {
		one := &netemv1.ScheduleStep{ForNs: int64(step.For)}
		one.Packet, one.PacketFrom = impairmentTo(step.Impairment)
		if r := step.Ramp; r != nil {
			one.Ramp = &netemv1.ScheduleRamp{EveryNs: int64(r.Every)}
			one.Ramp.Packet, one.Ramp.PacketFrom = impairmentTo(r.To)
		}
		if f := step.Flap; f != nil {
			one.Flap = &netemv1.ScheduleFlap{PeriodNs: int64(f.Period), DutyPercent: float64(f.Duty)}
		}
		m.Steps = append(m.Steps, one)
	}
	return m
}

func scheduleOf(m *netemv1.Schedule) (*schedule.Schedule, error) {
	if m == nil {
		return nil, nil
	}
	s := &schedule.Schedule{Name: m.GetName(), Rounds: int(m.GetRounds()), Jitter: qdisc.Percent(m.GetJitterPercent()), Seed: m.GetSeed()}
	for _, one := range m.GetSteps() {
		step := schedule.Step{For: time.Duration(one.GetForNs())}
		var err error
		if step.Impairment, err = impairmentOf(one.GetPacket(), one.GetPacketFrom()); err != nil {
			return nil, err
		}
		if r := one.GetRamp(); r != nil {
			step.Ramp = &schedule.Ramp{Every: time.Duration(r.GetEveryNs())}
			if step.Ramp.To, err = impairmentOf(r.GetPacket(), r.GetPacketFrom()); err != nil {
				return nil, err
			}
		}
		if f := one.GetFlap(); f != nil {
			step.Flap = &schedule.Flap{Period: time.Duration(f.GetPeriodNs()), Duty: qdisc.Percent(f.GetDutyPercent())}
		}
		s.Steps = append(s.Steps, step)
	}
	return s, nil
}

func impairmentTo(i schedule.Impairment) (packet, from *netemv1.Netem) {
	if i.Packet != (qdisc.Netem{}) {
		packet = Netem(i.Packet)
	}
	if i.PacketFrom != nil {
		from = Netem(*i.PacketFrom)
	}
	return packet, from
}

func impairmentOf(packet, from *netemv1.Netem) (i schedule.Impairment, err error) {
	n, err := netemOf(packet)
	if err != nil {
		return i, err
	}
	if n != nil {
		i.Packet = *n
	}
	i.PacketFrom, err = netemOf(from)
	return i, err
}

func faultStep(s *fault.Step) *netemv1.FaultStep {
	if s == nil {
		return nil
	}
	m := &netemv1.FaultStep{
		Number: s.Number, Of: s.Of, Step: int32(s.Step), Round: int32(s.Round), Began: timestamppb.New(s.Began), Over: s.Over,
		LateNs: int64(s.Late), MaxLateNs: int64(s.MaxLate), Skipped: s.Skipped,
	}
	if !s.Next.IsZero() {
		m.Next = timestamppb.New(s.Next)
	}
	return m
}

func faultStepOf(m *netemv1.FaultStep) *fault.Step {
	if m == nil {
		return nil
	}
	s := &fault.Step{
		Number: m.GetNumber(), Of: m.GetOf(), Step: int(m.GetStep()), Round: int(m.GetRound()), Began: m.GetBegan().AsTime(), Over: m.GetOver(),
		Late: time.Duration(m.GetLateNs()), MaxLate: time.Duration(m.GetMaxLateNs()), Skipped: m.GetSkipped(),
	}
	if m.GetNext() != nil {
		s.Next = m.GetNext().AsTime()
	}
	return s
}

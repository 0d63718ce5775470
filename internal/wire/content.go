package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/content"
)

func contentRule(r *content.Rule) *netemv1.ContentRule {
	if r == nil {
		return nil
	}
	return &netemv1.ContentRule{
		Kind: string(r.Kind), N: r.N, Expression: r.Expr, Count: r.Count, PerConnection: r.PerConnection, HoldNs: int64(r.Hold),
	}
}

func contentRuleOf(m *netemv1.ContentRule) *content.Rule {
	if m == nil {
		return nil
	}
	return &content.Rule{
		Kind: content.Kind(m.GetKind()), N: m.GetN(), Expr: m.GetExpression(), Count: m.GetCount(), PerConnection: m.GetPerConnection(),
		Hold: time.Duration(m.GetHoldNs()),
	}
}

// Packets translates a part of what a rule did.
func Packets(l content.Log) *netemv1.PacketsMessage {
	m := &netemv1.PacketsMessage{Chosen: l.Chosen, Missed: l.Missed, Skipped: l.Skipped, ForgottenConnections: l.Forgotten}
	for _, r := range l.Records {
		m.Packets = append(m.Packets, &netemv1.ChosenPacket{
			MonotonicNs: r.Time, Time: timestamppb.New(r.Wall), Source: r.Source, Destination: r.Destination, Protocol: uint32(r.Protocol),
			TcpFlags: uint32(r.Flags), Sequence: r.Sequence, PayloadBytes: r.Payload, DataSegment: r.Segment,
			LengthBytes: r.Length, WirePackets: r.Segments,
		})
	}
	return m
}

// PacketsOf translates an answer.
func PacketsOf(m *netemv1.PacketsMessage) content.Log {
	l := content.Log{Chosen: m.GetChosen(), Missed: m.GetMissed(), Skipped: m.GetSkipped(), Forgotten: m.GetForgottenConnections()}
	for _, p := range m.GetPackets() {
		l.Records = append(l.Records, content.Record{
			Time: p.GetMonotonicNs(), Wall: p.GetTime().AsTime(), Source: p.GetSource(), Destination: p.GetDestination(), Protocol: uint8(p.GetProtocol()),
			Flags: uint8(p.GetTcpFlags()), Sequence: p.GetSequence(), Payload: p.GetPayloadBytes(), Segment: p.GetDataSegment(),
			Length: p.GetLengthBytes(), Segments: p.GetWirePackets(),
		})
	}
	return l
}
